"""Rows that see no key and are not as the run asks for are said as that, and as nothing else."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from mha_parity.core.options import Policy
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
