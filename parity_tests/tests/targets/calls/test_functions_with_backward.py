"""Gradients of a function are those of the function that stands beside it, where there is one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.companion_backward import backward_beside
from subject_checks import checks_of, load_subject

judged = checks_of("functions_with_backward.py", cases=40)
FILE = "functions_with_backward.py"


@pytest.mark.parametrize(
    ("name", "backward"),
    [
        ("attention_forward", "attention_backward"),
        ("projected", "projected_backward"),
        ("unbiased", "unbiased_backward"),
        ("of_module", "of_module_backward"),
    ],
)
def test_right_ones_pass_with_their_gradients(name: str, backward: str) -> None:
    """By the names of its `return`, of a dictionary, or in order; kills those of masks wanted."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(f"`{backward}` stands beside it" in note for note in verdict.notes), verdict.notes
    found = {each.name for each in verdict.checks}
    assert {"gradient of query", "gradient of in_proj_weight"} & found, found


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("flash_fwd", "gradient of query"),
        ("biased", "gradient of attn_mask"),
        ("by_torch", "gradient of query"),
    ],
)
def test_wrong_backward_functions_fail(name: str, check: str) -> None:
    """Their outputs are right, and what autograd would compute of torch's tensors too."""
    verdict = judged(name)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert check in {each.check_result.check for each in verdict.failures}


def test_a_backward_pass_that_reads_no_given_scale_is_named() -> None:
    """Kills a factor that is read in plain problems alone, where the scale is the default."""
    (found,) = judged("scaled", diagnose=True, cases=60).diagnosis
    assert "with a scale that is given: the gradients dQ, dK are multiplied by 1/sqrt(D)" in (
        found.title
    )
    assert "the scale that the forward pass took" in found.remedy


def test_a_gradient_that_is_averaged_is_named_by_the_sizes_that_it_is_divided_by() -> None:
    """Kills sizes of which one is the product of two others: N H was read as D."""
    found = judged("averaged", diagnose=True, cases=60).diagnosis
    titles = " ".join(each.title for each in found)
    assert "gradient of attn_mask is 1/(N H)" in titles
    assert all("do not average" in each.remedy for each in found)


def test_a_gradient_of_a_mask_behind_the_scale_is_no_average() -> None:
    """Both are factors below 1: kills one remedy for both."""
    found = judged("biased", diagnose=True, cases=60).diagnosis
    assert "gradient of attn_mask is 1/sqrt(D)" in " ".join(each.title for each in found)
    assert all("before it is multiplied by the scale" in each.remedy for each in found)


def test_what_takes_unknown_arguments_is_named_and_not_asked() -> None:
    """Kills a crash of the harness's own call that is counted as the target's."""
    verdict = judged("of_strangers")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    said = "`of_strangers_backward` was not asked for gradients: it takes `steps`, `rate`"
    assert any(note.startswith(said) for note in verdict.notes), verdict.notes


def test_a_function_of_another_name_is_none() -> None:
    """Of a library neither, nor the target itself; a class has a method of its own."""
    assert backward_beside(load_subject(f"{FILE}:flash_bwd")) is None
    assert backward_beside(load_subject("layers_with_backward.py:ByHand")) is None
    assert backward_beside(SimpleNamespace(__name__="of_strangers", __module__=None)) is None
