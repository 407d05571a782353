"""Each experiment finds what is planted, in numbers, and nothing in a right attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, attend, catalogue
from mha_parity.core.candidate import NOT_ASKED, Answer, CandidateError, FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.core.features import offer
from mha_parity.diagnose import diagnose
from mha_parity.diagnose.experiments.calls import Caller, CallResult
from mha_parity.diagnose.experiments.digits import digits
from mha_parity.diagnose.experiments.examination import examine, findings
from mha_parity.diagnose.experiments.features import features
from mha_parity.diagnose.experiments.masks import masks
from mha_parity.diagnose.experiments.rules import (
    EVERYWHERE,
    OffIndices,
    ends_rule,
    index_rule,
    size_rule,
)
from mha_parity.diagnose.experiments.scale import law, measured
from mha_parity.diagnose.experiments.sizes import scan
from mha_parity.diagnose.experiments.state import CallHistoryEffect, earlier_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.problem import Problem

PROJECTED = offer(form="qkv", projection="none", inputs=("cross",))
LAYER = offer(
    inputs=("self", "cross", "distinct"),
    bias=("no", "yes"),
    attn=("none", "bool2d", "float2d", "bool3d"),
    padding=("none", "bool"),
)


def candidate(
    kind: type[Attention], offered: dict[str, tuple[str, ...]] | None = None
) -> Candidate:
    """Return an attention as a candidate; projected inputs unless said otherwise."""
    return FunctionCandidate("planted", lambda p: attend(kind, p), offered or PROJECTED)


def caller(kind: type[Attention], offered: dict[str, tuple[str, ...]] | None = None) -> Caller:
    """Return the caller of an attention, without a limit of time."""
    return Caller(candidate(kind, offered), lambda: True)


def causes(kind: type[Attention], offered: dict[str, tuple[str, ...]] | None = None) -> str:
    """Return what the experiments say they understood."""
    found = findings(examine(caller(kind, offered)))
    return "\n".join(f"{f.text} | {f.evidence}" for f in found if f.understood)


class Powered(Attention):
    """The scores changed by a function before the softmax."""

    change: Callable[[Array], Array] = staticmethod(lambda z: z)

    def softmax(self, scores: Array) -> Array:
        """Change, then normalise."""
        changed = self.change(np.where(np.isfinite(scores), scores, 0))
        return super().softmax(np.where(np.isfinite(scores), changed, scores))


def powered(change: Callable[[Array], Array]) -> type[Attention]:
    """Return the attention with a function of the scores."""
    return type("Changed", (Powered,), {"change": staticmethod(change)})


class Window(Attention):
    """Keys further than 16 places away are not seen."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what is far."""
        i, j = np.indices(scores.shape[-2:])
        return np.where(np.abs(i - j) <= 16, super().mask_scores(scores), -np.inf)


class NoTail(Attention):
    """The keys behind the last whole tile of 32 are left out."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide the tail."""
        keys = scores.shape[-1]
        whole = max(keys // 32, 1) * 32
        return np.where(np.arange(keys) < whole, super().mask_scores(scores), -np.inf)


class FirstHeadLeftOut(Attention):
    """Head 0 stays 0."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Clear head 0."""
        mixed = super().apply_weights(weights, v)
        mixed[:, 0] = 0
        return mixed


class LastRowsLeftOut(Attention):
    """The rows behind the last whole tile of 8 stay 0."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Clear the tail."""
        mixed = super().apply_weights(weights, v)
        mixed[:, :, mixed.shape[2] // 8 * 8 :] = 0
        return mixed


class FewerChannels(Attention):
    """The dot product leaves out the last D % 4 channels."""

    def scores(self, q: Array, k: Array) -> Array:
        """Cut q."""
        kept = q.shape[-1] // 4 * 4
        return super().scores(q[..., :kept], k[..., :kept])


class WholeTilesOfChannels(Attention):
    """The dot product leaves out the last D % 16 channels where D > 16, as by whole tiles."""

    def scores(self, q: Array, k: Array) -> Array:
        """Cut q and k."""
        kept = max(q.shape[-1] // 16 * 16, min(q.shape[-1], 16))
        return super().scores(q[..., :kept], k[..., :kept])


class SlicesOfRows(Attention):
    """A causal rule by slices of 32 rows, each masked as if it were the last rows."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what follows the last row of the slice, aligned at the end of the keys."""
        rows, keys = scores.shape[-2:]
        row, key = np.indices((rows, keys))
        ends = np.minimum(32 * (row // 32 + 1), rows)
        return np.where(key <= row + keys - ends, super().mask_scores(scores), -np.inf)


class OneInEight(Attention):
    """The dot product leaves out channels 7, 15 and so on."""

    def scores(self, q: Array, k: Array) -> Array:
        """Cut q."""
        return super().scores(np.where(np.arange(q.shape[-1]) % 8 == 7, 0, q), k)


class LargestFive(Attention):
    """A row keeps the keys of its five largest scores."""

    def softmax(self, scores: Array) -> Array:
        """Hide the others."""
        least = np.sort(scores, axis=-1)[..., -5:][..., :1]
        return super().softmax(np.where(scores >= least, scores, -np.inf))


class HalfSum(Attention):
    """The sum over the keys is kept in float16, key by key."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Round each partial sum."""
        total = np.zeros((*weights.shape[:-1], v.shape[-1]), dtype=np.float16)
        for j in range(v.shape[-2]):
            total += (weights[..., j : j + 1] * v[..., j : j + 1, :]).astype(np.float16)
        return total.astype(v.dtype)


class PaddedKeys(Attention):
    """Zero keys up to a multiple of 32 stand in the denominator."""

    def softmax(self, scores: Array) -> Array:
        """Count them."""
        top = scores.max(axis=-1, keepdims=True)
        powers = np.exp(scores - top)
        extra = -scores.shape[-1] % 32
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + extra * np.exp(-top)))


class TilesOfTheirOwn(Attention):
    """Partial softmaxes over tiles of 64 keys, added without their maxima."""

    def softmax(self, scores: Array) -> Array:
        """Subtract each tile's maximum."""
        parts = [scores[..., i : i + 64] for i in range(0, scores.shape[-1], 64)]
        powers = np.concatenate([np.exp(p - p.max(axis=-1, keepdims=True)) for p in parts], axis=-1)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


class MergedWithoutSums(Attention):
    """Two halves of the keys, merged by their maxima without their sums."""

    def softmax(self, scores: Array) -> Array:
        """Normalise each half, then weight it by exp of its maximum."""
        half = -(-scores.shape[-1] // 2)
        parts = [p for p in (scores[..., :half], scores[..., half:]) if p.shape[-1]]
        tops = [p.max(axis=-1, keepdims=True) for p in parts]
        factors = [np.exp(t - np.maximum.reduce(tops)) for t in tops]
        rows = [super(MergedWithoutSums, self).softmax(p) for p in parts]
        rows = [p * f for p, f in zip(rows, factors, strict=True)]
        return np.asarray(np.concatenate(rows, axis=-1) / sum(factors))


class HalfScores(Attention):
    """The scores are kept in float16."""

    def scores(self, q: Array, k: Array) -> Array:
        """Round."""
        return super().scores(q, k).astype(np.float16).astype(self.work_dtype)


class HalfFirstHead(Attention):
    """The weights of head 0 are kept in float16."""

    def softmax(self, scores: Array) -> Array:
        """Round head 0."""
        weights = super().softmax(scores)
        weights[:, 0] = weights[:, 0].astype(np.float16)
        return weights


PLANTED: dict[str, tuple[type[Attention], str]] = {
    "clip": (powered(lambda z: np.clip(z, -5, 5)), "scores are clipped to ±5 "),
    "cap": (powered(lambda z: 30 * np.tanh(z / 30)), "scores are capped by 30 tanh(score / 30)"),
    "relu": (powered(lambda z: np.maximum(z, 0)), "negative scores are set to 0"),
    "rounded": (powered(lambda z: np.round(z * 16) / 16), "rounded to multiples of 0.0625"),
    "base 2": (powered(lambda z: z * math.log(2)), "ln(2)/sqrt(D), so 2^score"),
    "window": (Window, "row i sees keys i-16 … i+16"),
    "tail": (NoTail, "the last keys beyond a multiple of 32"),
    "channels": (FewerChannels, "leaves out the last channels beyond a multiple of 4: 128–130"),
    "tiles of channels": (WholeTilesOfChannels, "last channels beyond a multiple of 16: 192"),
    "lanes": (OneInEight, "the dot product leaves out channels 7, 15, … (one in 8)"),
    "largest": (LargestFive, "a row sees only its 5 keys with the largest scores"),
    "half sum": (HalfSum, "the stage `sum of P V over the keys` is rounded to float16"),
    "padded": (PaddedKeys, "the denominator has 8 terms exp(0) too many"),
    "tiles": (TilesOfTheirOwn, "tiles of 64; each tile has its own maximum subtracted"),
    "merged": (MergedWithoutSums, "each tile's result is weighted by exp of its maximum alone"),
    "head": (FirstHeadLeftOut, "head 0 of 2 has weights that are all 0"),
    "slices": (SlicesOfRows, "i + (S - e), e the end of its tile of 32 rows"),
    "half": (HalfScores, "the stage `scores` is rounded to float16"),
    "columns": (catalogue()["softmax-query-axis"].kinds[0], "each column, over the queries"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_said_in_numbers(name: str) -> None:
    """The first line that is understood says what the attention computes instead."""
    kind, sentence = PLANTED[name]
    assert sentence in causes(kind).partition("\n")[0]


@pytest.mark.parametrize("offered", [PROJECTED, LAYER], ids=["projected", "layer"])
def test_nothing_is_said_of_a_right_attention(offered: dict[str, tuple[str, ...]]) -> None:
    """The right attention departs in no experiment."""
    assert [] == findings(examine(caller(Attention, offered), whole=True))


def test_a_dead_tail_of_rows_has_its_size_and_its_place() -> None:
    """Rows that nobody wrote: which, what stands there, and for which lengths."""
    found = causes(LastRowsLeftOut)
    assert "wrong wherever L % 8 != 0" in found


def leaking(problem: Problem) -> Answer:
    """Return the answer of a causal rule that leaks to random keys."""

    class Leaking(Attention):
        """Three keys in ten are seen besides those expected."""

        def mask_scores(self, scores: Array) -> Array:
            """Hide the others."""
            seen = np.random.default_rng(1).random(scores.shape[-2:]) < 0.3
            seen |= np.tri(*scores.shape[-2:]) > 0
            return np.where(seen, scores, -np.inf)

    return attend(Leaking, problem)


def test_a_sum_of_weights_near_1_is_told_from_it() -> None:
    """An output that is larger by 3e-6 is that of weights that sum to more, and it is said so."""

    def larger(problem: Problem) -> Answer:
        answer = attend(Attention, problem)
        return replace(answer, output=answer.output * (1 + 3e-6))

    found = findings(examine(Caller(FunctionCandidate("larger", larger, PROJECTED), lambda: True)))
    assert "every row of weights sums to 1 + 3e-06, expected 1" in [each.text for each in found]


def test_what_leaks_to_hidden_keys_is_no_denominator() -> None:
    """Weights of keys that a causal rule should hide take from the others: no row sums to less."""
    forced = PROJECTED | {"attn": ("causal",), "inputs": ("self",)}
    found = findings(examine(Caller(FunctionCandidate("leaks", leaking, forced), lambda: True)))
    assert found
    assert not any("sum to 0" in each.text or "denominator" in each.text for each in found)
    assert any("by no rule that was tried" in f"{each.text} {each.evidence}" for each in found)


@pytest.mark.parametrize(
    ("factor", "formula"),
    [
        (lambda p: p.head_dim**-0.5, "1/sqrt(D)"),
        (lambda p: 1 / p.head_dim, "1/D"),
        (lambda p: (p.head_dim + 1) ** -0.5, "1/sqrt(D + 1)"),
        (lambda p: (-(-p.head_dim // 8) * 8) ** -0.5, "1/sqrt(D rounded up to a multiple of 8)"),
        (lambda p: p.case.embed_dim**-0.5, "1/sqrt(E)"),
        (lambda p: 2 * p.head_dim**-0.5, "2/sqrt(D)"),
        (lambda _: 0.125, "0.125 = 1/sqrt(64) whatever D"),
        (lambda _: 0.25, "0.25 = 1/sqrt(16) whatever D: written into the code, or kept from"),
        (lambda p: 0.3 * p.head_dim**-0.37, "0.3 D^-0.37"),
        (
            lambda p: 1.4427 * math.log(2) * p.head_dim**-0.5,
            "1.00000344/sqrt(D), as with log2(e) written as 1.4427",
        ),
        (lambda p: 1.0000123 * p.head_dim**-0.5, "1.0000123/sqrt(D)"),
    ],
)
def test_the_law_of_a_scale_is_fitted_over_the_sizes(
    factor: Callable[[Problem], float], formula: str
) -> None:
    """Ten cases of unlike sizes leave one formula."""
    kind = type("Scaled", (Attention,), {"scale": lambda self: factor(self.problem)})
    assert law(measured(caller(kind))).startswith(formula)


def test_digits_are_lost_in_one_head_alone() -> None:
    """Which head rounds, at which stage, and to which dtype."""
    found = digits(caller(HalfFirstHead))
    assert found is not None
    assert (found.heads, found.stage, found.dtype) == ("the first head (0)", "weights", "float16")


def test_a_small_error_of_a_formula_is_no_rounding() -> None:
    """An error of 1e-4 that keeps its pattern when the inputs move by as much."""
    found = digits(caller(powered(lambda z: z * 1.0003)))
    assert found is not None
    assert not found.rounding


MASKS = {
    "mask-ignored": "the mask has no effect",
    "mask-after-softmax": "hidden weights are set to 0 after the softmax",
    "bool-inverted": "the mask is inverted",
    "mask-transposed": "the mask is applied transposed",
    "mask-minus-10": "hidden keys get",
    "scale-includes-mask": "the float mask is multiplied by 0.3015 = 1/sqrt(D)",
}


@pytest.mark.parametrize("name", MASKS)
def test_what_a_mask_does_instead_is_said(name: str) -> None:
    """For some kind of mask that is offered the sentence is the planted one."""
    sizes = {"inputs": ("self",)} if name == "mask-transposed" else {}
    asked = caller(catalogue()[name].kinds[0], {**LAYER, **sizes})
    assert MASKS[name] in "\n".join(each.effect for each in masks(asked))


def test_nothing_is_said_of_right_masks() -> None:
    """All kinds of masks, applied as they should be."""
    found = list(masks(caller(Attention, LAYER)))
    assert ["padding=bool", "attn=bool2d", "attn=float2d", "attn=bool3d"] == [f.name for f in found]
    assert [""] * 4 == [each.effect for each in found]


def test_one_effect_of_several_masks_is_one_line() -> None:
    """A transposed mask, whichever kind it is of."""
    kind = catalogue()["mask-transposed"].kinds[0]
    found = findings(examine(caller(kind, {**LAYER, "inputs": ("self",)})))
    assert ["with attn=bool2d, attn=float2d, attn=bool3d: the mask is applied transposed"] == [
        each.text for each in found
    ]


@pytest.mark.parametrize(("bug", "inverted"), [("bool-inverted", True), ("mask-transposed", False)])
def test_only_an_inverted_mask_is_to_be_inverted(bug: str, inverted: bool) -> None:
    """A mask that is right but for its polarity is not sent before the softmax, where it is."""
    kind = catalogue()[bug].kinds[0]
    found = findings(examine(caller(kind, {**LAYER, "inputs": ("self",)})))
    assert {inverted} == {"~mask" in each.remedy for each in found if each.stage == "mask"}


BIASED = offer(inputs=("distinct",), bias=("no", "yes"), out_proj=("identity", "general"),
               memory=("c",))  # fmt: skip


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


FEATURES: dict[str, tuple[type[Attention], str]] = {
    "right": (Attention, ""),
    "v twice": (ValueBiasTwice, "bias=yes: the bias of v is added 2 times, expected once"),
    "q late": (catalogue()["q-bias-unscaled"].kinds[0],
               "bias=yes: the bias of q is added 2.449 times, expected once (sqrt(D): q is scaled"),
    "no output bias": (NoOutputBias,
                       "out_proj=general: the bias of the output projection is not added"),
    "output transposed": (catalogue()["out-proj-transposed"].kinds[0],
                          "out_proj=general: the output is wrong"),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_the_feature_that_is_wrong_alone_is_said(name: str) -> None:
    """Of two features one is wrong; of a bias it is said how many times it is added."""
    kind, sentence = FEATURES[name]
    found = list(features(caller(kind, BIASED)))
    assert ["bias=yes", "out_proj=general"] == [each.name for each in found]
    said = [f"{each.name}: {each.effect}" for each in found if each.effect]
    assert len(said) == bool(sentence)
    assert "".join(said).startswith(sentence)


def keeps_columns() -> Callable[[Problem], Answer]:
    """Return an attention whose denominator has what a longer call before it left behind."""
    kept = np.zeros(0)

    def answer(problem: Problem) -> Answer:
        nonlocal kept
        right = Attention(problem)
        found = right.answer()
        keys = problem.key.shape[1]
        left = kept[keys:].sum() if kept.size > keys else 0.0
        kept = np.ones(max(keys, kept.size))
        return Answer(output=found.output / (1 + left))

    return answer


def test_a_call_that_changes_later_answers_is_found() -> None:
    """A buffer that a longer call filled: the call with more keys is the one."""
    asked = Caller(FunctionCandidate("keeps", keeps_columns(), PROJECTED), lambda: True)
    found = earlier_calls(asked)
    assert found.changes[0].startswith("a call with more keys changes the answer")
    assert CallHistoryEffect((), 6, 0) == earlier_calls(caller(Attention))


def odd_lengths_fail(problem: Problem) -> Answer:
    """Fail for an odd number of queries."""
    if problem.case.queries % 2:
        raise CandidateError("crash", "raised ValueError: cannot reshape")
    return attend(Attention, problem)


def test_calls_that_were_not_made_fail_nowhere() -> None:
    """Behind the last time-out no size was tried. Kills sizes that count as failing there."""
    problem = make_problem(Case(seed=1, batch=1, queries=2, keys=2, heads_count=1, head_dim=2))
    said = ("gave no answer within 1 seconds", f"{NOT_ASKED}: the process was lost 3 times")
    found = scan("L", (1, 2), [CallResult(problem, None, each) for each in said], {})
    assert ({1: True}, said[0]) == (found.crashed, found.error)


def test_the_sizes_that_make_a_call_fail_are_found() -> None:
    """Where every answer that comes is right, the crash is all there is to say."""
    failing = FunctionCandidate("odd", odd_lengths_fail, PROJECTED)
    (found,) = diagnose(failing, (), crashes=True)
    assert found.title == "the call raised ValueError: cannot reshape wherever L is odd"
    assert found.bug is None
    assert () == diagnose(candidate(Attention), (), crashes=True)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("S > 64", lambda s: s > 64),
        ("S is odd", lambda s: s % 2 == 1),
        ("S % 16 != 0", lambda s: s % 16 != 0),
        ("S > 64 and S % 64 != 0", lambda s: s > 64 and s % 64 != 0),
        ("S is no power of two", lambda s: s & (s - 1) != 0),
        ("S != L = 6", lambda s: s != 6),
        ("S != 64", lambda s: s != 64),
        (None, lambda s: s in {3, 7, 11, 50}),
    ],
)
def test_a_size_rule_is_the_shortest_that_fits(
    rule: str | None, holds: Callable[[int], bool]
) -> None:
    """Thresholds, moduli, powers and coincidences; without a rule nothing is said."""
    assert rule == size_rule("S", {s: holds(s) for s in range(1, 140)}, {"L": 6})


@pytest.mark.parametrize(
    ("rule", "off"),
    [
        ("the last row", lambda n: {n - 1}),
        ("rows from 4 on", lambda n: set(range(4, n))),
        ("the last rows beyond a multiple of 8", lambda n: set(range(n - n % 8, n))),
        (EVERYWHERE, lambda n: set(range(n))),
        (None, lambda n: {n // 2, n // 3}),
    ],
)
def test_a_place_rule_fits_every_answer(rule: str | None, off: Callable[[int], set[int]]) -> None:
    """One rule for answers of several lengths, or none."""
    seen = [OffIndices(n, frozenset(off(n))) for n in (9, 13, 20, 31)]
    assert rule == index_rule("row", seen)


def test_the_last_key_of_a_row_is_a_formula_in_i() -> None:
    """Tiles of 16 keys and 32 rows, cut at the row itself."""
    rows = np.arange(100)
    assert ends_rule(np.minimum(rows, 16 * (rows // 32 + 1) - 1), 100) == (
        "min(i, 16 * (i // 32 + 1) - 1)"
    )
    assert ends_rule(np.random.default_rng(3).integers(0, 100, 100), 100) is None
