"""Rows that see no key and are not as the run asks for are said as that, and as nothing else."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from mha_parity.core.options import Policy
from mha_parity.core.verdict import Outcome
from mha_parity.run.demanded_rows import REMEDIES
from subject_checks import check_subject

TORCH = "torch.nn:MultiheadAttention"


@pytest.mark.parametrize(("wanted", "words"), [("zero", "zero"), ("uniform", "the mean")])
def test_a_right_layer_that_answers_otherwise_has_no_other_cause(
    wanted: Policy, words: str
) -> None:
    """Torch's NaN under another demand: one line, with what is found, asked for and to do."""
    verdict = check_subject(TORCH, cases=40, diagnose=True, fully_masked=wanted)
    (cause,) = verdict.diagnosis
    assert re.match(r"rows that see no key are (zero or )?NaN( or zero)? in", cause.title)
    assert f"in {verdict.failed} cases, and --fully-masked asks for {words}" in cause.title
    assert REMEDIES[wanted] == cause.remedy


@pytest.mark.parametrize("grad", [False, True])
def test_a_right_layer_holds_where_all_values_are_zero(grad: bool) -> None:
    """The mean of values of 0 is 0: rows that the fill makes uniform are not called zero there.

    Their gradients, which are those of uniform weights, are not judged by those of no weights.
    """
    options = {"features": (("regime", "zeros"),), "cases": 60, "grad": grad}
    verdict = check_subject("linear_layers.py:Attention", fully_masked="uniform", **options)
    assert Outcome.PASS is verdict.outcome, verdict
    drawn = {each.name for each in verdict.checks}
    assert "fully masked rows" in drawn


def test_zeros_fail_where_the_mean_of_other_values_is_asked_for() -> None:
    """Rows of zeros, where the values are none, fail by these rows alone."""
    verdict = check_subject("linear_layers.py:ZeroRows", fully_masked="uniform", cases=60)
    assert Outcome.FAIL is verdict.outcome
    assert {"fully masked rows"} == {each.check_result.check for each in verdict.failures}


def test_a_bug_is_named_before_the_rows() -> None:
    """A layer without scale gets its name, and the rows are said behind it."""
    subject = "linear_layers.py:Unscaled"
    verdict = check_subject(subject, cases=40, diagnose=True, fully_masked="zero")
    first, second = verdict.diagnosis
    assert "scale-none" == first.bug
    assert second.title.startswith("rows that see no key are the mean of the values in ")


def test_every_demand_has_a_remedy() -> None:
    """What a run may ask for is what there are remedies for."""
    assert set(get_args(Policy)) == set(REMEDIES)
