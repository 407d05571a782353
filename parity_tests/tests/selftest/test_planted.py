"""Planted bugs are seen in 500 cases, and one that no case can show is reported as missed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mha_parity.catalogue.conditional_bugs import Planted
from mha_parity.catalogue.extreme_values import planted_extreme_values
from mha_parity.catalogue.interactions import planted_interactions
from mha_parity.catalogue.plain_attention import Attention
from mha_parity.catalogue.registry import whole_offer
from mha_parity.catalogue.sizes import planted_sizes
from mha_parity.catalogue.values import planted_values
from mha_parity.core.features import Offer, make_offer
from mha_parity.selftest import planted_run
from mha_parity.selftest.planted_run import (
    SEEDS,
    detection_markdown,
    detection_probability,
    detections,
    planted,
    sentences,
)

DATA = Path(planted_run.__file__).parent / "data"

FUNCTION = {"form": "qkv", "projection": "none", "inputs": ("self", "cross")}
OFFERS: dict[str, Offer] = {
    "everything": whole_offer(),
    "switch": make_offer(**FUNCTION, attn=("none", "causal")),
    "function": make_offer(**FUNCTION, attn=("none", "bool2d", "float2d", "causal"),
                           padding=("none", "bool"), kv_heads=("equal", "fewer"), dtype="float32"),
    "layer": make_offer(inputs=("self", "distinct"), attn=("none", "causal"),
                        bias_kv=("no", "yes")),
    "half": make_offer(**FUNCTION, attn=("none", "causal"), dtype=("float16", "bfloat16")),
}  # fmt: skip
# How many of the planted interactions a target with these features can have.
INTERACTIONS = {"everything": 21, "switch": 4, "function": 12, "layer": 6, "half": 4}

QUICK_SIZES = ("D % 8 == 0", "D > 64", "S % 16 == 0", "17 <= S <= 48", "S > 128", "S == 2", "H > 7",
         "N == L", "N H == L", "D == 128", "keys of a partial tile of 64",
         "last row of a tile of 64", "S > 64 and S % 64 == 1")  # fmt: skip


@pytest.mark.parametrize("seed", [0, 7], ids="seed{}".format)
def test_planted_size_bugs_are_seen(seed: int) -> None:
    """Each of these bugs, wrong only at certain sizes, fails a case among 500."""
    bugs = [bug for bug in planted_sizes() if bug.condition in QUICK_SIZES]

    assert len(QUICK_SIZES) == len(bugs)
    assert [] == [each.bug.condition for each in detections(bugs, [seed]) if not each.seen]


@pytest.mark.parametrize("seed", [0, 7], ids="seed{}".format)
def test_planted_value_bugs_are_seen(seed: int) -> None:
    """Each bug of zeros, ties, subnormal numbers and maxima fails a case among 500."""
    assert [] == [s.bug.condition for s in detections(planted_values(), [seed]) if not s.seen]


@pytest.mark.parametrize("seed", [0, 7], ids="seed{}".format)
def test_planted_bugs_of_extreme_values_are_seen(seed: int) -> None:
    """Each bug of infinity and of the largest number fails a case among 500."""
    assert [] == [
        s.bug.condition for s in detections(planted_extreme_values(), [seed]) if not s.seen
    ]


@pytest.mark.repeats(1)
@pytest.mark.parametrize(("name", "count"), INTERACTIONS.items(), ids=list(INTERACTIONS))
def test_planted_bugs_of_interactions_are_seen(name: str, count: int) -> None:
    """Under ten seeds, 500 cases fail each of them that the target's features do not exclude."""
    found = detections(planted_interactions(), range(SEEDS), offer=OFFERS[name])

    assert count * SEEDS == sum(each.seen for each in found)
    assert {0, SEEDS} >= {each.seen for each in found}


def test_a_right_attention_is_not_seen() -> None:
    """A planted entry that computes the right attention is missed, and the sentence says so."""
    right = Planted(condition="N > 0", family="none", holds=lambda _: True, kind=Attention)
    found = detections([right], [0], count=40)

    assert 0 == found[0].seen
    assert next(sentences(found)).startswith("Missed: wrong only if N > 0: seen under 0 of 1 seeds")


def test_the_published_table_is_of_all_planted_bugs() -> None:
    """The page has a row for each family with as many bugs as are planted, and names each miss."""
    page = (DATA / "mutants.md").read_text("utf-8")
    published = re.findall(r"^\| ([a-z ]+) \((\d+)\) \| (\d+) of (\d+) \|", page, re.MULTILINE)
    counts = Counter(bug.family for bug in planted())
    missed = re.findall(r"^- Missed: .* under (\d+) of (\d+) seeds", page, re.MULTILINE)

    assert {(f, str(n), str(n * SEEDS)) for f, n in counts.items()} == {
        (family, bugs, runs) for family, bugs, _, runs in published
    }
    assert sum(int(runs) - int(seen) for _, _, seen, runs in published) == sum(
        int(seeds) - int(seen) for seen, seeds in missed
    )


def test_a_miss_is_in_the_markdown() -> None:
    """The section has a row per family, and says which bug was missed."""
    right = Planted(condition="N > 0", family="none", holds=lambda _: True, kind=Attention)
    lines = detection_markdown(detections([right], [0], count=3)).splitlines()

    assert "| none (1) | 0 of 1 | - | 0 | none |" in lines
    assert "- 0 of 1 planted bugs are seen." in lines


def test_every_condition_is_planted_once() -> None:
    """Conditions are unique, and each holds for some size."""
    conditions = [bug.condition for bug in planted_sizes()]

    assert len(set(conditions)) == len(conditions)
    assert len(conditions) > 150


@pytest.mark.parametrize(
    ("share", "count", "probability"), [(0.5, 2, 0.75), (0.0, 9, 0.0), (1, 1, 1)]
)
def test_the_detection_probability_is_binomial(
    share: float, count: int, probability: float
) -> None:
    """A run sees a share p of all cases with probability 1 - (1 - p)^N."""
    assert probability == detection_probability(share, count)
