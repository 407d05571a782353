"""Memory, chance and made-up answers are named as such, by the check that a user runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.run.check import check
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS

CASES = 80
SEED = 2
# Target, the options it takes to see it, and the name it must get first.
DISHONEST = {
    "dishonest.py:scales_in_place": "mutates-inputs",
    "dishonest.py:caches_by_shape": "cached-answer",
    "dishonest.py:remembers_keys": "cached-answer",
    "dishonest.py:drops": "dropout-in-eval",
    "dishonest.py:keyed_to_values": "input-keyed-shortcut",
    "dishonest.py:keyed_to_size": "size-keyed-shortcut",
    "dishonest.py:zeros": "zeros-returned",
    "dishonest.py:mean_of_values": "mean-pooling",
    "dishonest.py:asks_torch": "torch-behind",
    "misbehaving_layers.py:DropsAlways": "dropout-in-eval",
    "misbehaving_layers.py:KeepsFirstWeights": "stale-weights",
    "dropping.py:keeps_size": "dropout-no-rescale",
    "dropping.py:drops_logits": "dropout-before-softmax",
    "dropping.py:drops_output": "dropout-on-output",
    "dropping.py:keeps_p": "dropout-keeps-p",
    "dropping.py:divides_by_zero": "dropout-one-nan",
    "dropping.py:shows_clean": "weights-before-dropout",
    "dropping.py:StaysOff": "sticky-eval",
    "dropping.py:Cuts": "kv-length-mismatch",
}
# Judged in a process of their own, as the command does; the others' names do not depend on it.
ISOLATED = ("dishonest.py:scales_in_place", "dropping.py:StaysOff")
# Held by the check of the same name in tests/checks/test_dropout.py; named in `make test-all`.
DROPPING = {"keeps_size", "drops_output", "keeps_p", "divides_by_zero", "shows_clean", "Cuts"}
HONEST = ("projected.py:f", "keep_mask.py:Stacked")


def verdict(folder: Path, target: str, **options: object) -> Verdict:
    """Return the verdict on a target, as the command has it."""
    options = {"in_process": target not in ISOLATED} | options
    asked = Options(cases=CASES, seed=SEED, shrink=False, **options)  # type: ignore[arg-type]  # any option
    with opened(f"{folder}/{target}", asked) as candidate:
        return check(candidate, asked)


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("target", "name"),
    [
        pytest.param(
            target,
            name,
            id=f"{target}-seed{SEED}",
            marks=pytest.mark.slow if target.partition(":")[2] in DROPPING else (),
        )
        for target, name in DISHONEST.items()
    ],
)
def test_each_is_named(target: str, name: str) -> None:
    """What no formula explains gets its name first, with the remedy and the evidence for it."""
    forbid = ("torch",) if name == "torch-behind" else ()
    found = verdict(SUBJECTS, target, forbid=forbid)
    assert Outcome.FAIL is found.outcome
    first = found.diagnosis[0]
    assert name == first.bug
    assert first.confident
    assert first.remedy
    assert first.evidence


@pytest.mark.parametrize("target", HONEST, ids=[f"{t}-seed{SEED}" for t in HONEST])
def test_nothing_is_said_of_the_honest(target: str) -> None:
    """A candidate without memory passes, and no diagnosis is made."""
    found = verdict(SUBJECTS, target)
    assert 0 == found.failed
    assert found.passed > CASES / 2
    assert () == found.diagnosis


def test_torch_is_let_pass_where_nobody_forbids_it() -> None:
    """A target that hands its work to torch is right; only who promised otherwise is at fault."""
    found = verdict(SUBJECTS, "dishonest.py:asks_torch")
    assert 0 == found.failed
    assert found.passed > CASES / 2
