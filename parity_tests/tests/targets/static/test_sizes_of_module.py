"""Sizes of a module, norms without weights, calls without autograd, and what XLA lacks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.target_call import Call
from mha_parity.targets.layers.module_constants import number_of
from subject_checks import checks_of, load_subject

judged = checks_of("module_sizes.py", dtypes=("float64", "float32"))


def test_sizes_are_set_in_calls_too() -> None:
    """Kills sizes that are set while a layer is built alone, and a weightless norm that stays."""
    right = judged("OfModule")
    assert Outcome.PASS == right.outcome, right
    assert any("`norm` taken out" in note for note in right.notes)
    assert any("`n_heads` of its module" in note for note in right.notes), right.notes
    assert Outcome.FAIL == judged("OfModuleDoubled", fail_fast=True).outcome


def test_functions_of_the_module_are_followed() -> None:
    """Kills numbers that methods read alone: a right layer scaled by a function was refused."""
    for name in ("OfFunction", "OfFlags"):  # an object of the module that raises is passed over
        right = judged(name)
        assert Outcome.PASS == right.outcome, right
    assert Outcome.FAIL == judged("OfDoublingFunction", fail_fast=True).outcome


def test_the_width_of_a_module_is_that_of_the_arrays() -> None:
    """Of a function that takes the number of heads; the width of one head stays as it is."""
    right = judged("width_of_module", cases=40)
    assert Outcome.PASS == right.outcome, right
    assert any("`d_model` of its module" in note for note in right.notes), right.notes
    wrong = judged("scale_of_module", cases=40, fail_fast=True)
    assert Outcome.FAIL == wrong.outcome, wrong


def test_numbers_that_contradict_each_other_are_not_set() -> None:
    """Kills setting both: a scale by a wrong number of the module was made right so, and passed."""
    with pytest.raises(TargetError, match="no way to call it computes attention"):
        judged("OfStaleWidth")


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("OfOwnSizes", Outcome.PASS),
        ("OfStaleScale", Outcome.FAIL),
        ("OfNormalizer", Outcome.PASS),
        ("NormedWhereMasked", Outcome.FAIL),
    ],
)
def test_what_is_a_layers_own_is_left(name: str, outcome: Outcome) -> None:
    """Kills numbers of the module that are set beside a layer's own sizes, and norms by any name.

    A constant of another width was made right so, and a last axis -1 the width; a softmax was
    taken out, and a norm that acts with masks alone.
    """
    assert outcome == judged(name, cases=60).outcome


def test_norms_of_queries_and_keys_are_not_taken_out() -> None:
    """Kills taking out any norm without weights: that of queries and keys has no counterpart."""
    normed = judged("NormedQueries", fail_fast=True)
    assert Outcome.FAIL == normed.outcome
    assert not any("taken out" in note for note in normed.notes)


def test_flex_attention_is_called_without_autograd() -> None:
    """On a CPU torch raises where an input may have a gradient, as each weight of a layer may."""
    flexible = judged("Flexible")
    assert Outcome.PASS == flexible.outcome
    assert any("called under torch.no_grad()" in note for note in flexible.notes)
    assert Outcome.FAIL == judged("FlexibleDoubled", fail_fast=True).outcome


def test_gradients_are_not_asked_without_autograd() -> None:
    """Kills a call for gradients that is repeated under no_grad: it has none to give."""
    calls = []

    def raises() -> None:
        calls.append(1)
        raise NotImplementedError("FlexAttention does not support backward on CPU.")

    with pytest.raises(CandidateError, match="does not support backward"):
        Call(raises, (), pull=lambda _: {}).make()
    assert [1] == calls


class JaxRuntimeError(RuntimeError):
    """An error of the name by which JAX raises XLA's."""


class Lazy:
    """An array of a program that runs when it is read."""

    def __init__(self, said: str) -> None:
        self.said = said

    def __array__(self, *_: object, **__: object) -> None:
        """Raise what XLA says."""
        raise JaxRuntimeError(self.said)


LACKED = (
    "INVALID_ARGUMENT: Algorithm not supported by the ElementalIrEmitter: ALG_DOT_BF16_BF16_F32"
)


@pytest.mark.parametrize(
    ("said", "severity"),
    [(LACKED, "inconclusive"), ("UNIMPLEMENTED: no such dot", "inconclusive"), ("NaN", "crash")],
)
def test_what_xla_lacks_is_not_the_targets(said: str, severity: str) -> None:
    """A program that XLA cannot compile for a processor is not asked; another error fails."""

    def raises() -> None:
        raise JaxRuntimeError(said)

    with pytest.raises(CandidateError) as caught:
        Call(raises, ()).make()
    assert severity == caught.value.severity
    with pytest.raises(CandidateError) as read:
        to_numpy(Lazy(said), "the output")
    assert ("structure" if severity == "crash" else severity) == read.value.severity


def test_sizes_of_a_module_that_its_own_imports_are_set() -> None:
    """`constants.n_embd`, while a layer is built: kills a width that is left, and a scale by it."""
    of_another = checks_of("numbers_of_another.py", cases=40)
    right = of_another("OfAnother")
    assert Outcome.PASS is right.outcome, right
    wrong = of_another("OfAnotherScaled", diagnose=True)
    assert Outcome.FAIL is wrong.outcome, wrong
    assert "scale-hardcoded-64" == wrong.diagnosis[0].bug
    assert 64 == load_subject("numbers_of_another.py:OfAnother").__init__.__globals__["c"].n_embd


def test_constants_of_a_library_are_no_sizes() -> None:
    """`math.e` has the name of a width: kills any module that is imported."""
    scope = load_subject("numbers_of_another.py:OfAnother").__init__.__globals__
    scope = {"math": math, "np": np, "c": scope["c"], "e": 1}
    found = [number_of(scope, name) for name in ("math.e", "np.e", "c.n_embd", "c.absent", "e")]
    assert [None, None, 64, None, 1] == found
