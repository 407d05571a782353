"""Rows of one sample with an axis of heads, required ids and windows, slices, and two paddings."""

from __future__ import annotations

import pytest

from mha_parity.core.parameters import Role
from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.call_parameters import role
from mha_parity.targets.static.documented_layout import documents_multiples
from mha_parity.targets.static.projection_names import WINDOW
from subject_checks import checks_of

judged = checks_of("rows_of_one_sample.py", cases=80)


@pytest.mark.parametrize("name", ["one_sample", "documents", "windowed"])
def test_right_ones_of_one_sample_pass(name: str) -> None:
    """(L, H, D) is found; numbers of segments, and a window, are tried."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    assert any("called with no projection weights; (L, H, D)" in note for note in verdict.notes)
    assert "not tried" not in verdict.sentence


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("one_sample_by_heads", "scale-num-heads"),
        ("documents_unscaled", "scale-none"),
        ("windowed_loosely", "causal-loose"),
    ],
)
def test_wrong_ones_of_one_sample_are_named(name: str, bug: str) -> None:
    """Whatever else they take, the mistake is that of the catalogue."""
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert [bug] == [each.bug for each in verdict.diagnosis], verdict.diagnosis


@pytest.mark.parametrize(
    ("name", "outcome", "offered"),
    [
        ("Sliced", Outcome.FAIL, True),
        ("SlicedRight", Outcome.PASS, True),
        ("SlicedAsDocumented", Outcome.PASS, False),
        ("SlicedRefusing", Outcome.PASS, False),
        ("Bounded", Outcome.PASS, False),
    ],
)
def test_lengths_are_asked_between_those_that_are_answered(
    name: str, outcome: Outcome, *, offered: bool
) -> None:
    """A limit, a refusal and documented multiples leave them out; a mistake does not."""
    verdict = judged(name, cases=120)
    assert outcome is verdict.outcome, verdict
    (status,) = (r.status for r in verdict.features if (r.axis, r.value) == ("size", "medium"))
    assert offered is (status != "not offered")


def test_a_length_that_raises_by_mistake_is_said_with_its_rule() -> None:
    """The rule has the size of the slices."""
    (found,) = judged("Sliced", cases=120, diagnose=True).diagnosis
    assert "wherever L > 64 and L % 64 != 0" in found.title


@pytest.mark.parametrize(
    ("name", "of_queries"), [("TwoPads", "x_pad"), ("MaskOfQueries", "query_mask")]
)
def test_a_padding_of_keys_beside_one_of_queries_is_judged(name: str, of_queries: str) -> None:
    """That of keys is passed; that of queries, which torch's layer lacks, leaves the run open."""
    verdict = judged(name)
    assert Outcome.INCONCLUSIVE is verdict.outcome, verdict
    assert f"`{of_queries}`" in verdict.sentence
    assert any("`ctx_pad`: True hides" in note for note in verdict.notes)


def test_an_inverted_padding_of_keys_fails() -> None:
    """Its documentation says that padded keys are hidden."""
    assert Outcome.FAIL is judged("TwoPadsInverted").outcome


@pytest.mark.parametrize(
    ("text", "limited"),
    [
        ("Past 64 queries, their length L is a multiple of 64.", True),
        ("Lengths must be multiples of 64.", True),
        ("The sequence length\n    has to be divisible by the block size.", True),
        ("The block size of 64 must divide the sequence length.", True),
        ("Full tiles: L % 64 == 0.", True),
        ("Sequence lengths are padded to a multiple of 64 inside.", False),
        ("Any sequence length works, not only a multiple of 64.", False),
        ("A sequence of tokens; the embedding must be divisible by the heads.", False),
        ("Queries are split in heads; d_model must be divisible by n_heads.", False),
        ("H a multiple of Hk.", False),
    ],
)
def test_multiples_are_those_of_lengths(text: str, *, limited: bool) -> None:
    """Of widths, of what is padded, and of any length nothing is limited."""

    def target() -> None: ...

    target.__doc__ = text
    assert limited is documents_multiples(target)


@pytest.mark.parametrize(
    ("name", "default", "found"),
    [
        ("ctx_pad", None, Role.MASK),
        ("tgt_pad", None, Role.MASK),
        ("left_pad", None, Role.OTHER),
        ("do_pad", True, Role.OTHER),
        ("n_pad", None, Role.SIZE),
        ("query_padded", None, Role.INPUT),
    ],
)
def test_padding_is_a_mask_by_its_name(name: str, default: object, found: Role) -> None:
    """Numbers, switches and inputs that are padded are none."""
    assert found is role(name, "call", default)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("window", True),
        ("window_size", True),
        ("sliding_window", True),
        ("window_mask", False),
        ("q_windows", False),
        ("context_window", False),
    ],
)
def test_a_window_is_a_number_by_its_name(name: str, *, is_one: bool) -> None:
    """Masks and rows of windows are none."""
    assert is_one is (WINDOW.search(name) is not None)
