"""A LayerNorm is taken out around an attention alone, and an output is found under any name."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

FILE = "norm_places.py"
INSIDE = ("OfProjectedQueries", "OfMergedHeads", "OfEveryHead", "OfTheOutput")


judged = checks_of(FILE, cases=40, dtypes=("float64",))


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", ["Before", "Behind", "BehindSum", "BeforeBoth", "OfKeys"])
def test_norms_of_inputs_and_of_the_output_are_taken_out(name: str) -> None:
    """A norm before the projections, or of what is added to the input, stands around torch's."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    said = " ".join(verdict.notes)
    assert "`norm` taken out" in said
    assert ("`norm` is applied to the rows of key alone." in said) == (name == "OfKeys")
    added = "the input that is added to the output is what `norm` returns."
    assert (added in said) == (name == "BeforeBoth")


@pytest.mark.parametrize("name", INSIDE)
def test_norms_between_the_projections_and_of_what_is_returned_are_refused(name: str) -> None:
    """Without such a norm the layer would be another one, and pass."""
    with pytest.raises(TargetError, match="`norm` has no counterpart in torch's layer"):
        judged(name)


def test_a_wrong_layer_with_a_norm_of_the_output_fails() -> None:
    """The norm is no reason to leave a bug in the attention unsaid."""
    assert Outcome.FAIL == judged("OfTheOutputUnscaled", fail_fast=True).outcome


@pytest.mark.parametrize("name", ["Named", "named_scores"])
def test_an_output_in_a_dataclass_is_found(name: str) -> None:
    """By its shape, whatever stands before it."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict


def test_an_output_in_a_dataclass_is_judged() -> None:
    """Keys in the place of values are seen."""
    assert Outcome.FAIL == judged("NamedOfKeys", fail_fast=True).outcome


def test_a_norm_of_a_class_of_arrays_is_taken_out() -> None:
    """The part is replaced by a function of rows; a single sequence may have its input added."""
    verdict = judged("OfArrays")
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    assert "`norm` taken out" in " ".join(verdict.notes)
    assert Outcome.FAIL == judged("OfArraysTwice", fail_fast=True).outcome
