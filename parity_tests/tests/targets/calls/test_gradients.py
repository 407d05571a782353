"""Gradients of every layer of Linears and of every function of tensors are judged on request."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.core.case import parse
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.judging.output import JudgeSettings
from mha_parity.run.case_run import run_cases
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.layers.weight_packing import ProjectionSlot, unpack
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS

RIGHT = [
    "gradients_of_layers.py:Packed", "gradients_of_layers.py:of_weights",
    "mask_meanings.py:TorchNames", "mask_meanings.py:PairMask",
    "layers_in_the_wild.py:ListOfHeads",
]  # fmt: skip
WRONG = {
    "KeysDetached": "gradient of in_proj_weight",
    "BiasDetached": "gradient of attn_mask",
    "of_weights_halved": "gradient of in_proj_weight",
}


def judged(name: str) -> Verdict:
    """Return the verdict on forward and gradients of one of the subjects, in float64."""
    subject = load.load(f"{SUBJECTS}/{name}")
    asked = Options(
        cases=14,
        dtypes=("float64",),
        grad=True,
        diagnose=False,
        shrink=False,
    )
    return check(bind_in_process(subject, asked), asked)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_hold(name: str) -> None:
    """Gradients of inputs, weights, biases and added masks are torch's."""
    verdict = judged(name)
    assert 0 == verdict.failed, verdict
    asked = {row.name for row in verdict.checks if row.name.startswith("gradient of ")}
    assert {"gradient of query", "gradient of in_proj_weight"} <= asked


@pytest.mark.parametrize(("name", "check_name"), WRONG.items(), ids=WRONG)
def test_wrong_gradients_fail(name: str, check_name: str) -> None:
    """What is cut off fails where it is missing, though the output is right."""
    verdict = judged(f"gradients_of_layers.py:{name}")
    assert Outcome.FAIL == verdict.outcome
    failed = {row.name for row in verdict.checks if row.failed}
    assert check_name in failed
    assert "output" not in failed


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("each", ["parts", "heads", "columns"])
def test_parts_of_a_packed_weight_come_back(each: str, turned: bool) -> None:
    """A packed weight is split into the weights that it was made of."""
    slot = ProjectionSlot("qkv", ("q", "k", "v"), each, turned)
    weights = {part: np.random.default_rng(i).random((6, 6)) for i, part in enumerate("qkv")}
    found = unpack(slot, slot.pack(weights, 2), 2)
    assert all(np.array_equal(weights[part], found[part]) for part in "qkv")


def test_a_mask_that_is_the_same_in_all_samples_has_a_gradient_for_each() -> None:
    """Of rows that see no key any mask is -inf: one passed for all samples has one gradient."""
    candidate = bind_in_process(load.load(f"{SUBJECTS}/added_masks.py:broadcast_bias"), Options())
    features = "floatpadding-boolmask-maskedrows-grad-float64-s0"
    (result,) = run_cases(candidate, [parse(f"qkv-N2-L1-S1-H1-D1-{features}")], JudgeSettings())
    names = [each.check for each in result.check_results if not each.severity.fails]
    assert not result.fails, result.check_results
    assert "gradient of key_padding_mask" in names
