"""Gradients judged by the same rule: gold, yardstick, bound, in groups that arithmetic keeps apart.

The candidate gives the vector-Jacobian product with ``cotangent(problem)``: random numbers, because
ones make the gradient of V the same in all features and hide what permutes them. The gold is torch
autograd in float64 (long double where the problem is in float64), met by a second one in NumPy.

A row that sees no key makes all of torch's gradients NaN on the pinned path (pytorch#41508). Such a
row has no gradient to give: the gold leaves it out, and a candidate that does as torch is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import mha_torch
from mha_parity.backward import backward
from mha_parity.bound import Arithmetic, machine, roundoff, smallest
from mha_parity.gold import NEAR, split
from mha_parity.judge import IN_FORCE, ROUNDINGS, VOID, Settings, structure
from mha_parity.judgement import Judgement, Severity
from mha_parity.orders import ORDERS, Prepared
from mha_parity.pullback import pull_back
from mha_parity.values import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.candidate import Answer
    from mha_parity.gold import Gold
    from mha_parity.problem import Problem
    from mha_parity.values import Array

SALT = 0xC07A  # keeps the cotangent's stream apart from the problem's


@dataclass(frozen=True, eq=False, slots=True)
class GoldGradient:
    """The right gradient of one array, and what rounding can do to it."""

    value: Array
    limit: Array


def cotangent(problem: Problem) -> Array:
    """Return the vector of the vector-Jacobian product, (N, L, H Dv), in the problem's dtype."""
    stream = Stream(problem.case.seed ^ (SALT << 32))
    return stream.normal(*problem.output_shape).astype(problem.dtype)


def golden_gradients(problem: Problem, gold: Gold) -> dict[str, GoldGradient]:
    """Return the gold gradients under "query", "key", "value", state-dict names and float masks.

    Raises
    ------
        mha_torch.OraclesDisagreeError: torch and the second oracle differ by more than rounding
            explains.

    """
    given = cotangent(problem)
    found = backward(problem, gold, given, machine(problem.dtype))
    by_torch = {} if np.asarray(problem.masked_rows()).any() else torch_gradients(problem, given)
    _agree(problem, gold, given, {name: each.value for name, each in found.items()}, by_torch)
    wide = problem.dtype == np.float64
    return {
        name: GoldGradient(each.value if wide else by_torch.get(name, each.value), each.error)
        for name, each in found.items()
    }


def torch_gradients(problem: Problem, given: Array) -> dict[str, Array]:
    """Return what torch autograd gives in float64."""
    if problem.case.form == "mha":
        return mha_torch.gradients(
            problem.query,
            problem.key,
            problem.value,
            problem.state(),
            given,
            num_heads=problem.num_heads,
            add_zero_attn=problem.add_zero_attn,
            key_padding_mask=problem.key_padding_mask,
            attn_mask=problem.attn_mask,
            is_causal=problem.is_causal,
        )
    return _torch_core(problem, given)


def _torch_core(problem: Problem, given: Array) -> dict[str, Array]:
    """Return the gradients of attention on projected Q, K, V; masks are given as one float mask."""
    rows = (problem.query, problem.key, problem.value)
    found = mha_torch.sdpa_gradients(
        split(problem.query, problem.num_heads),
        split(problem.key, problem.num_kv_heads),
        split(problem.value, problem.num_kv_heads),
        split(given, problem.num_heads),
        attn_mask=np.where(problem.hidden(), -np.inf, problem.additive()),
        scale=problem.given_scale,
        enable_gqa=problem.num_kv_heads != problem.num_heads,
    )
    kept = {
        name: found[name].swapaxes(1, 2).reshape(each.shape)
        for name, each in zip(("query", "key", "value"), rows, strict=True)
    }
    attn, padding = problem.attn_mask, problem.key_padding_mask
    if attn is not None and attn.dtype != np.bool_:
        summed = found["attn_mask"].sum(axis=(0, 1))
        kept["attn_mask"] = summed if attn.ndim == 2 else found["attn_mask"].reshape(attn.shape)
    if padding is not None and padding.dtype != np.bool_:
        kept["key_padding_mask"] = found["attn_mask"].sum(axis=(1, 2))
    return kept


def _agree(
    problem: Problem,
    gold: Gold,
    given: Array,
    own: Mapping[str, Array],
    by_torch: Mapping[str, Array],
) -> None:
    """Raise where the oracles differ by more than rounding in float64 explains."""
    near = NEAR * float(np.finfo(np.float64).eps)
    apart = [
        name
        for name, other in by_torch.items()
        if not (np.abs(other - own[name]) <= near * np.abs(other).max(initial=0)).all()
    ]
    if not apart:
        return
    twice = Arithmetic(2.0**-52, 2.0**-52, smallest(np.dtype(np.float64)))
    limits = backward(problem, gold, given, twice)
    for name in apart:
        if not (np.abs(by_torch[name] - own[name]) <= limits[name].error).all():
            raise mha_torch.OraclesDisagreeError(
                f"gradient of {name}: torch autograd and NumPy differ by "
                f"{np.abs(by_torch[name] - own[name]).max():.3g}, which rounding does not explain."
            )


def judge_gradients(
    problem: Problem, gold: Gold, answer: Answer, settings: Settings = IN_FORCE
) -> list[Judgement]:
    """Return one judgement for every gradient that the problem has; none for empty problems."""
    if answer.gradients is None or not gold.output.size or not gold.weights.shape[-1]:
        return []
    finite = np.isfinite(gold.output) | ~np.isfinite(gold.output).all()
    if not finite.all() or not all(np.isfinite(a.astype(float)).all() for a in _inputs(problem)):
        return []
    yardstick = _Yardstick(problem)
    return [
        _Bench(problem, name, right, yardstick, settings).judged(answer.gradients.get(name))
        for name, right in golden_gradients(problem, gold).items()
    ]


def _inputs(problem: Problem) -> tuple[Array, Array, Array]:
    return problem.query, problem.key, problem.value


class _Yardstick:
    """The gradients in legitimate orders, computed as they are needed."""

    def __init__(self, problem: Problem) -> None:
        self._prepared = Prepared(problem)
        self._given = cotangent(problem)
        self._found: list[dict[str, Array]] = []

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for index, order in enumerate(ORDERS):
            if index == len(self._found):
                self._found.append(pull_back(self._prepared, order, self._given))
            yield self._found[index]


class _Bench:
    """One gradient before the judge."""

    def __init__(
        self,
        problem: Problem,
        name: str,
        right: GoldGradient,
        yardstick: _Yardstick,
        settings: Settings,
    ) -> None:
        self.problem = problem
        self.name = name
        self.right = right
        self.yardstick = yardstick
        self.settings = settings
        self.scale = self._worst(right.value)
        # What is 0 in exact arithmetic (the key bias, by the shift invariance of softmax) is noise
        # in the gold, and no scale to compare with.
        noise = np.finfo(right.value.dtype).eps / machine(problem.dtype).sums
        self.zero = self.scale <= self._worst(right.limit) * float(noise)
        self.rounding = roundoff(problem.dtype) * self.scale + smallest(problem.dtype)

    def judged(self, found: Array | None) -> Judgement:
        """Judge structure, then NaN and infinity, then numbers."""
        flaw = structure(
            f"gradient of {self.name}", self.right.value.shape, self.problem.dtype, found
        )
        if flaw or found is None:
            return self._judgement(Severity.STRUCTURE, detail=flaw)
        wide = found.astype(self.right.value.dtype)
        if not np.isfinite(wide).all():
            return self._no_number(wide)
        return self._numbers(np.abs(wide - self.right.value).astype(np.float64))

    def _no_number(self, found: Array) -> Judgement:
        """Name a candidate whose masked rows poison all, as torch's do; fail others."""
        masked = np.asarray(self.problem.masked_rows()).any()
        if masked and bool(np.isnan(found).any()):
            sentence = "NaN from rows that see no key, as torch has it (pytorch#41508)."
            return self._judgement(Severity.MATCH, detail=sentence)
        index = np.unravel_index(int((~np.isfinite(found)).argmax()), found.shape)
        place = [int(i) for i in index]
        detail = (
            f"gradient of {self.name} is {float(found[index])} at {place}, but should be "
            f"{float(self.right.value[index]):.6g}."
        )
        return self._judgement(Severity.WRONG, error=float("inf"), detail=detail)

    def _numbers(self, difference: Array) -> Judgement:
        error = self._worst(difference)
        floor = ROUNDINGS * self.rounding
        allowed, yard = floor, np.zeros(error.shape)
        for order in self.yardstick:
            off = self._worst(
                np.abs(order[self.name].astype(self.right.value.dtype) - self.right.value)
            )
            yard = np.maximum(yard, np.where(np.isfinite(off), off, 0))
            allowed = self.settings.k * yard + floor
            if (error <= allowed).all():
                break
        severity = self._severity(difference, error, allowed)
        if not error.size:
            return self._judgement(severity)
        group = int((error / allowed).argmax())
        factor = error[group] / allowed[group]
        detail = "" if severity is Severity.MATCH else (
            f"gradient of {self.name}: {factor:.3g} times what is allowed as a match."
        )  # fmt: skip
        return self._judgement(
            severity, error=float(error[group]), allowed=float(allowed[group]), detail=detail
        )

    def _severity(self, difference: Array, error: Array, allowed: Array) -> Severity:
        void = bool(((error > VOID * self.scale) & ~self.zero).any())
        if (error <= allowed).all():
            return Severity.INCONCLUSIVE if void else Severity.MATCH
        if (difference > self.right.limit).any():
            return Severity.WRONG
        return Severity.INCONCLUSIVE if void else Severity.LESS_ACCURATE

    def _judgement(self, severity: Severity, **rest: object) -> Judgement:
        check = f"gradient of {self.name}"
        return Judgement(case=self.problem.case, check=check, severity=severity, **rest)  # type: ignore[arg-type]  # fields vary in type

    def _worst(self, array: Array) -> Array:
        """Return the largest magnitude in each group."""
        rows = groups(self.problem, self.name, np.abs(array))
        return np.asarray(rows.max(axis=1, initial=0), dtype=np.float64)


def groups(problem: Problem, name: str, array: Array) -> Array:
    """Return a gradient with one row for all that arithmetic mixes.

    Per head: the rows of in-projections, the columns of out_proj.weight, bias_k and bias_v; per
    sample and head what is not projected; per sample the inputs of a layer; else the whole.
    """
    heads, rows = problem.num_heads, len(array)
    layer = problem.case.form == "mha"
    if name == "out_proj.weight":
        array, rows = array.reshape(rows, heads, -1).swapaxes(0, 1), heads
    elif name.startswith(("in_proj", "q_proj", "k_proj", "v_proj")):
        rows = (3 if name.startswith("in_proj") else 1) * heads
    elif name.startswith("bias_"):
        rows = heads
    elif name in {"query", "key", "value"} and not layer:
        array = split(array, heads if name == "query" else problem.num_kv_heads)
        rows = array.shape[0] * array.shape[1]
    elif name == "out_proj.bias" or (name == "attn_mask" and array.ndim == 2):
        rows = 1
    return array.reshape(rows, -1)
