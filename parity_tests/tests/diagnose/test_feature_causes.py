"""A feature that is wrong alone is said, with its effect; nothing of a right attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.core.candidate import Answer, CandidateError, FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.conditions.features import features
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.designs.variants import ROWS_FIRST, SAMPLES_FIRST, SWAP
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem


PROJECTED = make_offer(form="qkv", projection="none", inputs=("cross",))
LAYER = make_offer(
    inputs=("self", "cross", "distinct"),
    bias=("no", "yes"),
    attn=("none", "bool2d", "float2d", "bool3d"),
    padding=("none", "bool"),
)


@pytest.mark.parametrize("offered", [PROJECTED, LAYER], ids=["projected", "layer"])
def test_nothing_is_said_of_a_right_attention(
    offered: dict[str, tuple[str, ...]], caller: Callable[..., Caller]
) -> None:
    """The right attention departs in no experiment."""
    assert [] == cause_findings(run_experiments(caller(Attention, offered), whole=True))


BIASED = make_offer(inputs=("distinct",), bias=("no", "yes"), out_proj=("identity", "general"),
               memory=("c",))  # fmt: skip


def scaled_where_shown(problem: Problem) -> Answer:
    """Return attention that scales once more where weights are returned."""
    shown = problem.case.weights != "none"
    return answer_of(TwiceScaled if shown else Attention, problem)


class TwiceScaled(Attention):
    """The scale is applied twice."""

    def scale(self) -> float:
        """Scale once more."""
        return super().scale() ** 2


def test_a_scale_that_is_wrong_with_returned_weights_is_said_of_these() -> None:
    """Masks with returned weights are wrong by that as well, and have no line of their own."""
    offered = {**LAYER, "weights": ("none", "per_head")}
    asked = Caller(FunctionCandidate("twice", scaled_where_shown, offered), lambda: True)
    found = [each.text for each in cause_findings(run_experiments(asked))]
    said = (
        "with weights=per_head: the scores are multiplied by 0.4082 = 1/sqrt(D) besides the scale"
    )
    assert [said] == found


class ValueBiasTwice(Attention):
    """The bias of v is added twice."""

    def linear(self, x: Array, name: str) -> Array:
        """Add it once more."""
        found = super().linear(x, name)
        bias = self.parameter("b_v")
        return found if name != "v" or bias is None else found + bias


class NoOutputBias(Attention):
    """The output projection has no bias."""

    def linear(self, x: Array, name: str) -> Array:
        """Take it off."""
        found = super().linear(x, name)
        bias = self.parameter("b_out")
        return found if name != "out" or bias is None else found - bias


class ValueWithKeyBias(Attention):
    """v gets the bias of k."""

    def parameter(self, name: str) -> Array | None:
        """Return the bias of k for that of v."""
        return super().parameter("b_k" if name == "b_v" else name)


FEATURES: dict[str, tuple[type[Attention], str]] = {
    "right": (Attention, ""),
    "bias of k": (ValueWithKeyBias, "bias=yes: v gets the bias of k"),
    "v twice": (ValueBiasTwice, "bias=yes: the bias of v is added 2 times, expected once"),
    "q late": (catalogue()["q-bias-unscaled"].kinds[0],
               "bias=yes: the bias of q is added 2.449 times, expected once (sqrt(D): q is scaled"),
    "no output bias": (NoOutputBias,
                       "out_proj=general: the bias of the output projection is not added"),
    "output transposed": (catalogue()["out-proj-transposed"].kinds[0],
                          "out_proj=general: the output is wrong"),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_the_feature_that_is_wrong_alone_is_said(name: str, caller: Callable[..., Caller]) -> None:
    """Of two features one is wrong; of a bias it is said how many times it is added."""
    kind, sentence = FEATURES[name]
    found = list(features(caller(kind, BIASED)))
    assert ["bias=yes", "out_proj=general"] == [each.name for each in found]
    said = [f"{each.name}: {each.effect}" for each in found if each.effect]
    assert len(said) == bool(sentence)
    assert "".join(said).startswith(sentence)


@pytest.mark.parametrize("inputs", ["self", "cross"])
def test_biases_that_are_wrong_with_one_kind_of_inputs_are_said(inputs: str) -> None:
    """Kills biases that are asked with plain inputs alone, where each branch has its own code."""

    def answer(problem: Problem) -> Answer:
        wrong = problem.case.inputs == inputs
        return answer_of(ValueWithKeyBias if wrong else Attention, problem)

    asked = Caller(FunctionCandidate("branches", answer, LAYER), lambda: True)
    found = [each.text for each in cause_findings(run_experiments(asked))]
    assert [f"with inputs={inputs}: with biases, v gets the bias of k"] == found


@pytest.mark.parametrize("inputs", ["self", "cross"])
def test_biases_that_one_kind_of_inputs_leaves_out_are_said(inputs: str) -> None:
    """Kills "it has no effect" of biases that another branch adds."""

    def answer(problem: Problem) -> Answer:
        bare = problem.replace(**dict.fromkeys(("b_q", "b_k", "b_v", "b_out")))
        return answer_of(Attention, bare if problem.case.inputs == inputs else problem)

    asked = Caller(FunctionCandidate("branches", answer, LAYER), lambda: True)
    found = [each.text for each in cause_findings(run_experiments(asked))]
    assert [f"with inputs={inputs}: biases have no effect"] == found


RESHAPED = {
    SAMPLES_FIRST: lambda out: out.reshape(*out.shape[1::-1], -1).swapaxes(0, 1),
    ROWS_FIRST: lambda out: out.swapaxes(0, 1).reshape(out.shape),
}


@pytest.mark.parametrize("said", RESHAPED)
def test_an_output_that_is_reshaped_in_one_layout_is_said(said: str) -> None:
    """Kills "the output is wrong" where samples and rows are exchanged without a transposition."""

    def answer(problem: Problem) -> Answer:
        right = answer_of(Attention, problem)
        if problem.case.layout == "batch_first":
            return right
        return replace(right, output=RESHAPED[said](right.output))

    offered = {**LAYER, "layout": ("batch_first", "sequence_first")}
    asked = Caller(FunctionCandidate("reshaped", answer, offered), lambda: True)
    (found,) = cause_findings(run_experiments(asked))
    assert (f"with layout=sequence_first: {said}", SWAP) == (found.text, found.remedy)


PLAIN = make_offer(form="qkv", projection="none", inputs=("cross",), size=("small",))
full_offer = PLAIN | {
    "attn": ("none", "bool2d", "causal"), "padding": ("none", "bool"),
    "weights": ("none", "averaged", "per_head"), "size": ("small", "empty"),
    "dtype": ("float64", "float32"),
}  # fmt: skip


def test_experiments_use_a_layout_that_is_answered(caller: Callable[..., Caller]) -> None:
    """Where no batch is taken, the call that fails is said and the rest measured without one."""

    def answer(problem: Problem) -> Answer:
        if problem.case.layout == "batch_first":
            raise CandidateError("crash", "raised ValueError: too many values")
        return answer_of(catalogue()["scale-linear"].kinds[0], problem)

    texts = [
        f.text for f in cause_findings(run_experiments(caller(answer, PLAIN | {"layout": LAYOUTS})))
    ]
    assert "the call raised ValueError: too many values with layout=batch_first" in texts[0]
    assert "the effective scale is 1/D" in texts[1]


LAYOUTS = ("batch_first", "unbatched")


def test_a_feature_that_is_ignored_is_said_to_be(caller: Callable[..., Caller]) -> None:
    """An appended zero key that is left out has no effect."""

    def answer(problem: Problem) -> Answer:
        return answer_of(Attention, problem.replace(case=problem.case.replace(zero_attn="no")))

    offered = PLAIN | {"zero_attn": ("no", "yes")}
    texts = [each.text for each in cause_findings(run_experiments(caller(answer, offered)))]
    assert ["with zero_attn=yes: it has no effect"] == texts


def test_the_new_experiments_say_nothing_of_a_right_attention(
    caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """Masks of all sizes, shifted scores, no keys, returned weights and heads."""
    assert [] == cause_findings(run_experiments(caller(Attention, full_offer)))
