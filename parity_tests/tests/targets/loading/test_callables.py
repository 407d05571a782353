"""Autograd functions, scripts, partials and compiled layers are called as what they hold."""

from __future__ import annotations

from typing import Any

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.options import Options
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Verdict
from mha_parity.run.asked_cases import cases_for, restricted_offer
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS, checks_of


def loaded(name: str) -> Any:
    """Return a subject."""
    return load.load(f"{SUBJECTS}/held_by_torch.py:{name}")


judged = checks_of("held_by_torch.py", cases=24)


def failing(verdict: Verdict) -> set[str]:
    """Return the checks that fail."""
    return {each.check_result.check for each in verdict.failures}


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    "name", ["Kernel", "kernel", "plain", "scripted", "flash", "weights_as_arrays", "ByHead"]
)
def test_what_holds_a_right_function_passes_with_its_gradients(name: str) -> None:
    """Forward and gradients of each are torch's, and every parameter of its call is passed."""
    verdict = judged(name, grad=True)
    assert 0 == verdict.failed, verdict
    assert verdict.passed > 20, verdict.sentence
    assert ("yes",) == bind(loaded(name)).offer["gradients"][1:]
    assert verdict.parameters
    assert all(each.status is not Status.NOT_TRIED for each in verdict.parameters), verdict.sentence


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "check_name"),
    [
        ("UnscaledKeys", "gradient of key"),
        ("ByHeadDetached", "gradient of in_proj_weight"),
        ("weights_swapped_back", "gradient of out_proj.weight"),
    ],
)
def test_a_wrong_gradient_alone_fails(name: str, check_name: str) -> None:
    """The output passes without gradients, and the gradient that is wrong fails by its name."""
    assert 0 == judged(name, features=(("gradients", "no"),)).failed
    assert check_name in failing(judged(name, grad=True))


def test_a_causal_switch_that_is_torchs_at_equal_lengths_alone_is_asked_there() -> None:
    """It counts from the last key: no drawn case passes it with S unlike L."""
    asked = Options(cases=60)
    candidate = bind_in_process(loaded("kernel"), asked)
    drawn = [*cases_for(candidate, restricted_offer(candidate, asked), asked)]
    causal = {case.keys - case.queries for case in drawn if case.attn == "causal"}
    assert {0} == causal
    assert len({case.keys - case.queries for case in drawn if case.attn == "none"}) > 3


def test_a_scale_is_judged_where_it_is_a_factor_of_the_scores() -> None:
    """`softmax_scale` is judged as torch's scale; one that divides is left at its default, said so.

    The scale that a kernel wants in any case is judged as well.
    """
    for name in ("flash", "Kernel", "flash_scaled_twice"):
        assert ("default", "given") == bind(loaded(name)).offer["scale"]
    reasons = {
        "flash_dividing": "`softmax_scale` divides the scores",
        "flash_sharpened": "`scale` multiplies the scaled scores",
    }
    for name, reason in reasons.items():
        bound = bind(loaded(name))
        assert ("default",) == bound.offer["scale"]
        assert reason == bound.reasons["scale", "given"]


def test_a_given_scale_of_another_meaning_than_its_name_fails() -> None:
    """`softmax_scale` stands in for 1 / sqrt(D), and does not multiply it."""
    assert judged("flash_scaled_twice").failed


def test_heads_as_an_axis_come_before_rows_of_one_head() -> None:
    """A function of (..., L, D) is judged with several heads, wherever it has their axis."""
    for name, layout in (("kernel", "(N, H, L, D)"), ("flash", "(N, L, H, D)")):
        bound = bind(loaded(name))
        assert "many" in bound.offer["heads"]
        assert layout in str(getattr(bound, "how", ""))


def test_a_compiled_function_gets_tensors() -> None:
    """torch.compile takes NumPy's arrays in some operations: it is asked with tensors first."""
    bound = bind(loaded("compiled")())
    assert "torch" == bound.library.name


def test_a_compiled_layer_is_judged_with_its_weights_as_it_is() -> None:
    """The weights are those of the layer inside, the calls those of the compiled one."""
    layer = loaded("compiled_layer")()
    candidate = bind_in_process(layer, Options())
    built = getattr(candidate.bound, "instance", None)
    assert layer is getattr(built, "called", None)
    assert candidate.facts.own_weights is not None
    assert {"qkv.weight", "out.weight", "out.bias"} == set(candidate.facts.own_weights.places)
    asked = Options(cases=6, diagnose=False)
    assert 6 == check(candidate, asked).passed


def test_a_traced_layer_is_refused_by_what_it_is() -> None:
    """No class is left that could be built in other sizes."""
    with pytest.raises(TargetError, match=r"got TopLevelTracedModule, .* traced .* the class"):
        bind(loaded("traced_layer")())
