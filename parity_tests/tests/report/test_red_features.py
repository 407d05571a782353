"""The tests that a target with one bug turns red: those of the features that explain it."""

from __future__ import annotations

from functools import cache

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.report.by_feature import ALL_CASES, feature_outcomes
from mha_parity.run.check import check
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS

# The features that explain the failures of a target: its red tests beside that of all cases.
RED = {
    "CausalAndFloat16": ["dtype=float16", "attn=causal"],
    "Float16Only": ["dtype=float16"],
    "causal_off_by_one": ["attn=causal"],
    "CausalForgetsPadding": ["padding=bool", "padding=lengths", "attn=causal"],
    "WholeScale": ["heads=many"],
    "OddLengths": [],
}
RUNS = [(name, seed) for seed in (0, 1) for name in RED]


@cache
def verdict(name: str, seed: int) -> Verdict:
    """Return the verdict on a subject, without shrinking and diagnosis."""
    target = f"{SUBJECTS}/one_bug_each.py:{name}"
    options = Options(
        seed=seed, cases=180, dtypes=("float32", "float16"), in_process=True, diagnose=False,
        shrink=False,
    )  # fmt: skip
    with opened(target, options) as candidate:
        return check(candidate, options, target=target)


def red(found: Verdict, *expected: str) -> list[str]:
    """Return the tests that fail, in the order of the plugin."""
    outcomes = feature_outcomes(found, expected)
    return [name for name, (status, _) in outcomes.items() if status == "fail"]


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("name", "seed"), RUNS, ids=[f"{name}, seed {seed}" for name, seed in RUNS]
)
def test_a_bug_turns_its_features_red_alone(name: str, seed: int) -> None:
    """A bug is red in the features that explain it, and in nothing that its cases share."""
    assert [ALL_CASES, *RED[name]] == red(verdict(name, seed))
