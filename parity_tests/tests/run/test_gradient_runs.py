"""A run under ``--grad`` judges the gradients of targets, and fails one whose backward is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch

from mha_parity import assert_parity, judge
from mha_parity.__main__ import main
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, check_subject

if TYPE_CHECKING:
    from mha_parity.core.verdict import Verdict

CASES = 20


def verdict(name: str, **features: str) -> Verdict:
    """Judge a subject with its gradients; what is said of them is held in test_diagnose."""
    bound = bind(load.load(f"{SUBJECTS}/{name}"))
    narrowed = tuple(features.items())
    options = Options(cases=CASES, grad=True, shrink=False, diagnose=False, features=narrowed)
    return check(bound, options)


def failing(found: Verdict) -> set[str]:
    """Return the checks that some case failed."""
    return {row.name.removeprefix("gradient of ") for row in found.checks if row.failed}


def judged(found: Verdict) -> set[str]:
    """Return the gradients that were judged."""
    names = {row.name for row in found.checks if row.name.startswith("gradient of ")}
    return {name.removeprefix("gradient of ") for name in names}


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    "target",
    [
        f"{SUBJECTS}/torch_backward.py:right",
        f"{SUBJECTS}/numpy_vjp.py:Layer",
        f"{SUBJECTS}/numpy_vjp.py:Remembers",
        "mha_numpy:MultiheadAttention",
        "torch.nn:MultiheadAttention",
        "torch.nn.functional:scaled_dot_product_attention",
    ],
    ids=[
        "own backward",
        "vjp",
        "backward after a call",
        "NumPy layer",
        "layer of torch",
        "function of torch",
    ],
)
def test_right_gradients_pass(target: str) -> None:
    """Torch's layer and function, a backward and a vjp by hand pass with every gradient judged."""
    bound = bind(load.load(target))
    found = check(bound, Options(cases=30, grad=True))
    rows = {row.status for row in found.features if row.axis == "gradients"}

    assert set() == failing(found)
    assert judged(found) >= {"query", "key", "value"}
    assert {"pass"} == rows
    if bound.offer["attn"] != ("none",):
        assert "attn_mask" in judged(found)


@pytest.mark.repeats(3)
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("numpy_vjp.py:Negates", {"value", "in_proj_weight", "in_proj_bias"}),
        ("numpy_vjp.py:ForgetsScale", {"query", "in_proj_weight", "in_proj_bias"}),
        ("numpy_vjp.py:TransposesWeight", {"out_proj.weight"}),
        ("numpy_vjp.py:ForgetsBroadcast", {"attn_mask"}),
        (
            "numpy_vjp.py:ForgetsRowTerm",
            {"query", "key", "in_proj_weight", "in_proj_bias", "attn_mask"},
        ),
        ("numpy_vjp.py:ForgetsFirstHead", {"query", "in_proj_weight", "in_proj_bias"}),
        ("torch_backward.py:wrong", {"query", "key"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_gradient_fails(name: str, wrong: set[str]) -> None:
    """Sign, scale, transposition, a forgotten sum or row term, one head: what is wrong is named."""
    found = verdict(name)

    assert 1 == found.outcome.exit_status
    assert failing(found) == wrong


def test_a_gradient_of_a_mask_that_is_left_out_fails() -> None:
    """What has a `vjp` is asked for those of all arrays; a `backward` alone returns its rows'."""
    found = check_subject("numpy_vjp.py:LeavesOutMask", grad=True, cases=40, dtypes=("float64",))
    assert {"attn_mask"} == failing(found)


def test_a_mask_has_the_shape_that_a_backward_returns() -> None:
    """A forward broadcasts every shape; with gradients the one that its backward knows is passed.

    Without gradients all are.
    """
    right = bind(load.load(f"{SUBJECTS}/mask_backward.py:Biased"))
    options = Options(cases=CASES, grad=True, diagnose=False, dtypes=("float64",))
    found = check(right, options)
    assert (0, True) == (found.failed, found.passed > CASES // 2), found
    asked = {(row.axis, row.value) for row in found.features if row.cases}
    assert ("attn", "float2d") in asked
    assert ("attn", "float3d") not in asked
    assert "float3d" in right.offer["attn"]
    assert {"attn_mask"} == failing(verdict("mask_backward.py:BiasedTwice"))


def test_a_wrong_head_is_named() -> None:
    """The place of a gradient that is wrong in head 0 alone names head 0 and a row of a weight."""
    found = verdict("numpy_vjp.py:ForgetsFirstHead", dtype="float64")
    places = [
        each.check_result.where
        for each in found.failures
        if each.check_result.check == "gradient of in_proj_weight"
    ]

    assert places
    assert all(place and (place.sample, place.head) == (-1, 0) for place in places)


def test_gradients_are_judged_when_asked_for_alone() -> None:
    """Without --grad a wrong backward passes: the output is right, and no row speaks of it."""
    bound = bind(load.load(f"{SUBJECTS}/torch_backward.py:wrong"))
    found = check(bound, Options(cases=CASES))

    assert set() == judged(found)
    assert not any(row.value == "yes" for row in found.features if row.axis == "gradients")


@pytest.mark.parametrize("name", ["wrong_scale.py:f", "torch_backward.py:detached"])
def test_a_target_without_gradients_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--grad on a target that offers no gradients is a mistake of the caller: status 2, remedy."""
    status = main(["check", "--grad", "--in-process", f"{SUBJECTS}/{name}"])

    assert 2 == status
    assert "offers no gradients: it should compute with torch's tensors" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong_scale.py:f", "it takes no arrays of torch, JAX, TensorFlow or Keras"),
        ("torch_backward.py:detached", "the output has no gradient"),
        ("numpy_vjp.py:Forgets", "AttributeError"),
    ],
)
def test_the_refusal_says_what_happened(
    name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why a target offers no gradients is said: what it takes, what it returned, what it raised."""
    assert 2 == main(["check", "--grad", "--in-process", f"{SUBJECTS}/{name}"])
    assert re.search(f"Asked for some: .*{reason}", capsys.readouterr().err)


def test_the_same_gradients_cross_the_process_border() -> None:
    """In a process of its own the wrong backward fails by its gradient, the right one passes."""
    asked = {"grad": True, "cases": 25, "dtypes": ("float64",), "shrink": False, "diagnose": False}
    wrong, right = (
        judge(f"{SUBJECTS}/torch_backward.py:{name}", **asked)  # type: ignore[arg-type]  # options vary
        for name in ("wrong", "right")
    )

    assert (Outcome.FAIL, Outcome.PASS) == (wrong.outcome, right.outcome)
    assert "query" in failing(wrong)


def test_a_case_with_gradients_replays_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The id of a case says whether gradients are asked for; --grad adds them to any."""
    case = "qkv-N1-L5-S5-H2-D3-unbatched-{}float64-s11"
    target = f"{SUBJECTS}/torch_backward.py:wrong"
    plain = main(["replay", "--in-process", case.format(""), target])
    named = main(["replay", "--in-process", case.format("grad-"), target])
    asked = main(["replay", "--in-process", "--grad", case.format(""), target])

    assert (0, 1, 1) == (plain, named, asked)
    assert "gradient of query" in capsys.readouterr().out


def test_assert_parity_takes_grad() -> None:
    """The assertion of a test judges gradients as well."""
    assert_parity(torch.nn.MultiheadAttention, grad=True, cases=40, dtypes=("float64",))
    wrong = load.load(f"{SUBJECTS}/torch_backward.py:wrong")
    with pytest.raises(AssertionError, match="gradient of"):
        assert_parity(wrong, grad=True, cases=10)
