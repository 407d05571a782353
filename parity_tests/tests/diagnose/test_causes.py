"""A name has to predict the experiments too, and what no name predicts is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, attend, catalogue
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.candidate import Answer, CandidateError, FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.core.features import offer
from mha_parity.diagnose import Observation, diagnose, errs_by_rounding, gradients
from mha_parity.diagnose.call_effects import size_border
from mha_parity.diagnose.experiments.calls import Caller
from mha_parity.diagnose.experiments.examination import examine, findings
from mha_parity.diagnose.experiments.gradients import gradient_effects
from mha_parity.diagnose.experiments.masks import masks
from mha_parity.diagnose.experiments.returned import returned
from mha_parity.diagnose.experiments.scale import LAWS
from mha_parity.diagnose.experiments.values import values
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.core.verdict import Diagnosis

PLAIN = offer(form="qkv", projection="none", inputs=("cross",), size=("small",))
FULL = PLAIN | {
    "attn": ("none", "bool2d", "causal"), "padding": ("none", "bool"),
    "weights": ("none", "averaged", "per_head"), "size": ("small", "empty"),
    "dtype": ("float64", "float32"),
}  # fmt: skip
LINEAR, UNSCALED = (catalogue()[name].kinds[0] for name in ("scale-linear", "scale-none"))


def caller(function: Callable[[Problem], Answer], offered: Offer = FULL) -> Caller:
    """Return the caller of a function of a problem, without a limit of time."""
    return Caller(FunctionCandidate("planted", function, offered), lambda: True)


def of(kind: type[Attention], offered: Offer = FULL) -> Caller:
    """Return the caller of an attention."""
    return caller(lambda p: attend(kind, p), offered)


def named(function: Callable[[Problem], Answer], sizes: list[dict[str, int]]) -> list[Diagnosis]:
    """Return what the diagnosis says of a function that fails at these sizes."""
    candidate = FunctionCandidate("planted", function, PLAIN)
    frame = {"batch": 2, "queries": 4, "keys": 6, "heads_count": 3, "head_dim": 5, "form": "qkv",
             "projection": "none", "inputs": "cross"}  # fmt: skip
    problems = [make_problem(Case(seed=i, **{**frame, **s})) for i, s in enumerate(sizes)]  # type: ignore[arg-type]  # fields vary
    return list(diagnose(candidate, [(p, function(p)) for p in problems], budget=200))


SHORT = [{"keys": n, "queries": q} for n in (5, 8, 11) for q in (3, 6)]


def test_a_name_that_predicts_cases_and_experiments_is_said() -> None:
    """1/D at all sizes is the entry of the catalogue."""
    found = named(lambda p: attend(LINEAR, p), SHORT)
    assert ("scale-linear", True) == (found[0].bug, found[0].confident)


def test_a_name_that_an_experiment_contradicts_is_not_said() -> None:
    """1/D at up to 64 keys, and 1/E beyond: all cases have few keys, the experiments have more."""
    beyond = catalogue()["scale-dmodel"].kinds[0]
    found = named(lambda p: attend(beyond if p.key.shape[1] > 64 else LINEAR, p), SHORT)
    assert not [each.bug for each in found if each.bug]


def test_state_is_said_before_any_formula() -> None:
    """1/D, but 1 after one call in a thousand: no formula is right of what remembers a call."""
    last = [0]

    def remembers(problem: Problem) -> Answer:
        kind = UNSCALED if last[0] == 991 else LINEAR
        last[0] = problem.case.seed
        return attend(kind, problem)

    found = named(remembers, SHORT)
    assert "changes the answer to an earlier problem" in found[0].title
    assert not [each.bug for each in found if each.bug]


@pytest.mark.parametrize(("more", "rounding"), [(1e-7, False), (0.0, True)])
def test_digits_of_a_formula_are_not_those_of_a_narrower_dtype(more: float, rounding: bool) -> None:
    """1e-7 in the denominator is right by float32's bounds, and its error is no rounding."""

    class Added(Attention):
        def softmax(self, scores: Array) -> Array:
            weights = super().softmax(scores)
            return weights * (1 - more) if more else weights.astype("float32").astype("float64")

    candidate = FunctionCandidate("planted", lambda p: attend(Added, p), PLAIN)
    assert rounding is errs_by_rounding(candidate)


def test_a_gradient_name_has_to_predict_designed_calls() -> None:
    """DQ without the scale at D = 5 alone is not the entry that lacks it at every D."""
    right = with_gradients(VJP)()
    wrong = catalogue()["grad-softmax-diag"].function()

    def sometimes(problem: Problem) -> Answer:
        return (wrong if problem.head_dim == 5 else right)(problem)

    offered = PLAIN | {"gradients": ("yes",)}
    cases = [
        Case(seed=s, batch=2, queries=4, keys=6, heads_count=3, head_dim=5, form="qkv",
             projection="none", inputs="cross", gradients="yes") for s in range(3)
    ]  # fmt: skip
    problems = [make_problem(case) for case in cases]
    for function, name in ((wrong, "grad-softmax-diag"), (sometimes, None)):
        candidate = FunctionCandidate("planted", function, offered)
        pairs = [(p, function(p)) for p in problems]
        found = gradients.name_wrong_gradients(candidate, pairs)
        assert name == found[0].bug


class TransposedWhereSquare(Attention):
    """A square mask is transposed."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what the transposed mask hides."""
        hidden = self.problem.hidden()
        square = hidden.shape[-1] == hidden.shape[-2]
        return np.where(hidden.swapaxes(-1, -2) if square else hidden, -np.inf, scores)


class FilledBeforeScale(Attention):
    """Hidden keys have the score -100 before it is scaled."""

    def mask_scores(self, scores: Array) -> Array:
        """Fill."""
        return np.where(self.problem.hidden(), -100 * self.problem.scale, scores)


def mask_texts(asked: Caller) -> set[str]:
    """Return what the masks do."""
    return {f"{each.name}: {each.effect}" for each in masks(asked) if each.effect}


def test_masks_are_tried_where_sizes_are_equal() -> None:
    """What is wrong for L = S alone is found, and said so."""
    found = mask_texts(of(TransposedWhereSquare))
    assert "attn=bool2d where L = S: the mask is applied transposed" in found
    assert "attn=causal where L = S: the mask is applied transposed" in found


def test_a_fill_is_read_at_a_width_at_which_it_leaks() -> None:
    """-100/sqrt(11) leaks 1e-13, less than weights can be read to; -100/sqrt(67) leaks 1e-6."""
    texts = mask_texts(of(FilledBeforeScale))
    assert texts
    assert all("at D = 67: hidden keys get the score -12.22 (-100 before" in t for t in texts)


def test_a_mask_of_one_path_names_the_path() -> None:
    """Masks that are ignored where no weights are returned, and one that is where they are."""

    def without(problem: Problem) -> Answer:
        case = problem.case
        bare = problem.replace(attn_mask=None, case=case.replace(attn="none", masked_rows="none"))
        shown = case.weights != "none"
        return attend(Attention, problem if shown is flag or case.attn != "bool2d" else bare)

    flag = True
    path = "attn=bool2d without returned weights: the mask has no effect"
    assert {path} == mask_texts(caller(without))
    flag = False
    path = "attn=bool2d with returned weights: the mask has no effect"
    assert {path} == mask_texts(caller(without))


class MaximumFromZero(Attention):
    """The running maximum starts at 0."""

    def softmax(self, scores: Array) -> Array:
        """Subtract 0 at least."""
        powers = np.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True, initial=0), 0))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


class NoMaximum(Attention):
    """Nothing is subtracted."""

    def softmax(self, scores: Array) -> Array:
        """Divide by the sum."""
        powers = np.exp(scores)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


class MaximumOfAllRows(Attention):
    """One maximum is subtracted from all rows of a head."""

    def softmax(self, scores: Array) -> Array:
        """Subtract the maximum over rows and keys."""
        powers = np.exp(scores - scores.max(axis=(-1, -2), keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (MaximumFromZero, "in float64, rows whose scores are all below -720 … -752 are NaN"),
        (NoMaximum, "in float64, rows whose scores are all above 704 … 720 are NaN"),
        (MaximumOfAllRows, "rows whose scores are all below -720 … -752 next to rows of small"),
    ],
)
def test_scores_at_which_the_softmax_fails_are_found(kind: type[Attention], text: str) -> None:
    """The constant added to a row's scores from which on its output is no number, by dtype."""
    with np.errstate(all="ignore"):
        (found, *_) = values(of(kind))
    assert text in found.text


class NothingOfNothing(Attention):
    """Rows without keys are NaN."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Divide 0 by 0."""
        return super().apply_weights(weights, v) + (np.nan if v.shape[-2] == 0 else 0)


def test_no_keys_are_a_cause_of_their_own() -> None:
    """NaN at S = 0 is said as that, and nothing of a right attention."""
    (found,) = values(of(NothingOfNothing))
    assert "with no keys (S = 0) the output is NaN, expected 0" == found.text


def returning(stage: str) -> Callable[[Problem], Answer]:
    """Return an attention whose returned weights are another stage."""

    def answer(problem: Problem) -> Answer:
        attention = Attention(problem)
        found = attention.answer()
        if found.weights is None:
            return found
        array = attention.stages[stage]
        array = array.mean(axis=1) if problem.case.weights == "averaged" else array
        return replace(found, weights=array)

    return answer


@pytest.mark.parametrize(
    ("stage", "text"),
    [("masked scores", "the scores before the softmax"), ("scores", "the scores before"),
     ("weights", "")],
)  # fmt: skip
def test_returned_weights_are_told_by_their_stage(stage: str, text: str) -> None:
    """Scores in place of weights; what is right is not mentioned."""
    found = list(returned(caller(returning(stage))))
    assert bool(text) is bool(found)
    assert all(text in each for each in found)


def test_gradients_wrong_beyond_a_length_are_found() -> None:
    """A backward pass in tiles of 64 keys is right at all small sizes."""
    right = with_gradients(VJP)()

    def tiled(problem: Problem) -> Answer:
        found = right(problem)
        if problem.key.shape[1] <= 64 or found.gradients is None:
            return found
        return replace(found, gradients={**found.gradients, "key": 0.7 * found.gradients["key"]})

    offered = PLAIN | {"gradients": ("yes",)}
    (text,) = gradient_effects(caller(tiled, offered))
    assert "wherever S > 64: gradient dK is 0.7 times the right one, in all heads and rows" == text


class Accumulates(Attention):
    """Each head adds to the output of those before it."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Sum over the heads."""
        return super().apply_weights(weights, v).cumsum(axis=1)


def test_heads_that_reach_others_are_said_to() -> None:
    """What flows from head to head is a finding, where the weights alone say nothing."""
    texts = [each.text for each in findings(examine(of(Accumulates, PLAIN)))]
    assert (
        "heads are not independent: each of 3 heads reaches the outputs of all later ones too"
        in texts
    )


def test_experiments_use_a_layout_that_is_answered() -> None:
    """Where no batch is taken, the call that fails is said and the rest measured without one."""

    def answer(problem: Problem) -> Answer:
        if problem.case.layout == "batch_first":
            raise CandidateError("crash", "raised ValueError: too many values")
        return attend(LINEAR, problem)

    texts = [f.text for f in findings(examine(caller(answer, PLAIN | {"layout": LAYOUTS})))]
    assert "the call raised ValueError: too many values with layout=batch_first" in texts[0]
    assert "the effective scale is 1/D" in texts[1]


LAYOUTS = ("batch_first", "unbatched")


def test_a_feature_that_is_ignored_is_said_to_be() -> None:
    """An appended zero key that is left out has no effect."""

    def answer(problem: Problem) -> Answer:
        return attend(Attention, problem.replace(case=problem.case.replace(zero_attn="no")))

    offered = PLAIN | {"zero_attn": ("no", "yes")}
    texts = [each.text for each in findings(examine(caller(answer, offered)))]
    assert ["with zero_attn=yes: it has no effect"] == texts


def test_a_scale_of_few_digits_is_a_law() -> None:
    """1/sqrt(D) in float16 is 1/sqrt(D) at D = 16, and not at D = 12."""
    scale = LAWS["1/sqrt(D) rounded to float16"]
    case = Case(seed=0, batch=1, queries=2, keys=2, heads_count=1, head_dim=16)
    assert 0.25 == scale(case)
    assert 12**-0.5 != scale(case.replace(head_dim=12))


def test_the_new_experiments_say_nothing_of_a_right_attention() -> None:
    """Masks of all sizes, shifted scores, no keys, returned weights and heads."""
    assert [] == findings(examine(of(Attention)))


class ScaledTwiceAtEights(Attention):
    """1/D where D is a multiple of 8."""

    def scale(self) -> float:
        """Scale once more."""
        return super().scale() ** (2 if self.problem.head_dim % 8 == 0 else 1)


class Wavy(Attention):
    """An exponential that errs by 1e-4 with the score."""

    def exp(self, x: Array) -> Array:
        """Err."""
        return np.asarray(super().exp(x) * (1 + 1e-4 * np.sin(50 * x)))


class StrictInASquare(Attention):
    """The causal rule hides the diagonal too, and nothing beyond the first L keys."""

    def mask_scores(self, scores: Array) -> Array:
        """Fill."""
        rows, keys = np.indices(scores.shape[-2:])
        square = (keys >= rows) & (keys < scores.shape[-2])
        return np.where(square & (self.problem.case.attn == "causal"), -1e9, scores)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ScaledTwiceAtEights, "the effective scale is"),
        (Wavy, "as an approximated exp does"),
        (StrictInASquare, "with attn=causal"),
    ],
)
def test_what_held_out_attentions_taught(kind: type[Attention], text: str) -> None:
    """Weights are read where answers are wrong, and a rule holds for what is hidden too."""
    offered = FULL | {"padding": ("none",), "attn": ("none", "causal")}
    (found, *_) = findings(examine(of(kind, offered)))
    assert text in found.text
    assert "the weights read out are right" not in found.text
    assert "every key is seen" not in found.text


NOTE = "determinism: elements differ by up to 3 between two equal calls."


@pytest.mark.parametrize("everywhere", [False, True])
def test_calls_that_differ_in_a_few_cases_are_no_cause_of_the_others(everywhere: bool) -> None:
    """1/D with one odd note names the scale first; what differs in every call, only that."""
    chance = np.random.default_rng(3)

    def answer(problem: Problem) -> Answer:
        found = attend(LINEAR, problem)
        if everywhere:
            found = replace(found, output=found.output + chance.random())
        return replace(found, notes=(NOTE,) if problem.case.seed == 3 else ())

    found = named(answer, SHORT)
    assert found[0].bug == (None if everywhere else "scale-linear")
    assert "differ" in found[0 if everywhere else -1].title


def small_problem(batch: int, seed: int) -> Problem:
    """Return a plain problem of projected queries."""
    return make_problem(Case(seed=seed, batch=batch, queries=4, keys=5, heads_count=2, head_dim=3,
                             inputs="cross", form="qkv", projection="none"))  # fmt: skip


def test_what_is_known_leaves_no_facts_about_plain_problems() -> None:
    """Right answers whose buffer is used again: no stage departs, and no line says so."""
    text = "output aliasing: a later call overwrites the output of an earlier one: other rows."
    problems = [small_problem(2, seed) for seed in range(3)]
    candidate = FunctionCandidate("reuses", lambda p: attend(Attention, p), PLAIN)
    answers = [replace(attend(Attention, p), notes=(text,)) for p in problems]
    found = diagnose(candidate, list(zip(problems, answers, strict=True)), budget=60)
    assert ["output-buffer-reused"] == [each.bug for each in found]


@pytest.mark.parametrize("squeezed", [True, False])
def test_an_axis_that_is_squeezed_away_is_said(squeezed: bool) -> None:
    """(1, L, E) that comes as (L, E) loses an axis; as (E, L) it does not."""
    seen = []
    for n in (1, 2):
        for seed in range(5):
            problem = small_problem(n, seed)
            found = attend(Attention, problem)
            if n == 1:
                output = found.output[0] if squeezed else found.output[0].T
                found = replace(found, output=output)
            seen.append(Observation(problem, found, failing=n == 1))
    (said,) = size_border(seen)
    assert said.title.startswith("the output loses an axis where N = 1") is squeezed
    assert ("squeeze" in said.remedy) is squeezed


@pytest.mark.parametrize("convention", ["fitted", "qkv"])
def test_causes_are_not_said_of_calls_that_may_be_misread(convention: str) -> None:
    """Odd lengths raise, and a window hides keys: where small calls were the guide, only the first.

    A convention that is recognised by its signature has no such doubt: both are said.
    """

    class Window(Attention):
        """Keys further than 3 places away are not seen."""

        def mask_scores(self, scores: Array) -> Array:
            """Hide what is far."""
            i, j = np.indices(scores.shape[-2:])
            return np.where(np.abs(i - j) <= 3, super().mask_scores(scores), -np.inf)

    def answer(problem: Problem) -> Answer:
        if problem.case.queries % 2:
            raise CandidateError("crash", "raised ValueError: cannot reshape")
        return attend(Window, problem)

    sizes = [{"queries": q, "keys": q + 3} for q in (4, 6, 8)]
    candidate = FunctionCandidate("odd", answer, PLAIN, convention=convention)
    frame = {"batch": 2, "heads_count": 3, "head_dim": 5, "form": "qkv", "projection": "none",
             "inputs": "cross"}  # fmt: skip
    problems = [make_problem(Case(seed=i, **{**frame, **s})) for i, s in enumerate(sizes)]  # type: ignore[arg-type]  # fields vary
    found = diagnose(candidate, [(p, answer(p)) for p in problems], crashes=True, budget=200)
    assert found[0].title == "the call raised ValueError: cannot reshape wherever L is odd"
    assert any("sees keys" in each.title for each in found) is (convention == "qkv")
    assert ("mend this first" in found[0].evidence) is (convention == "fitted")
