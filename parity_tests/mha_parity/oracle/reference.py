"""The reference answer to a problem: torch's pinned path in float64, from exactly upcast inputs.

A float64 problem asks for more digits than that: its reference is the second oracle in long double
(where the platform has a wider one), which torch's float64 answer has to meet. In both cases the
two oracles must agree on the problem before a candidate is judged by it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numpy as np

import mha_torch
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.compare import absolute_difference
from mha_parity.oracle.torch_answers import asks_torch, torch_result
from mha_torch import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_torch.agreement import AttentionOptions, SdpaOptions
    from mha_torch.plain import Float, Stages

EXTENDED: Float = (
    np.longdouble if np.finfo(np.longdouble).eps < np.finfo(np.float64).eps else np.float64
)
REFERENCE = "reference"  # the kind of result of a record
# Oracles closer than this many float64 roundings agree; others are held against the whole bound.
AGREEING_ROUNDINGS = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """The right answer and the stages on the way to it, in more digits than the problem's dtype.

    q (N, H, L, D), k (N, H, S', D), v (N, H, S', Dv): one key head for every query head, even where
    heads are grouped; logits and weights (N, H, L, S'); heads (N, H, L, Dv); output (N, L, H Dv).
    Rows that see no key are NaN.
    """

    q: Array
    k: Array
    v: Array
    logits: Array
    weights: Array
    heads: Array
    output: Array

    @cached_property
    def averaged(self) -> Array:
        """The weights averaged over heads, (N, L, S')."""
        return np.asarray(self.weights.mean(axis=1))


class _LazyReference(Reference):
    """A recorded answer: the stages on the way to it are computed when one is asked for."""

    @classmethod
    def of(cls, found: dict[str, Array], compute: Callable[[], Stages]) -> Self:
        """Return what is known, with the way to the rest."""
        self = object.__new__(cls)
        self.__dict__.update(found, _compute=compute)
        return self

    def __getattr__(self, name: str) -> Any:
        """Return a stage that is not known yet, and keep all."""
        if name not in _STAGES:
            raise AttributeError(name)
        with np.errstate(all="ignore"):
            stages = self.__dict__["_compute"]()
        for each in _STAGES:
            self.__dict__.setdefault(each, getattr(stages, each))
        return self.__dict__[name]


_STAGES = tuple(each.name for each in fields(Reference) if each.name != "output")
# For references in more digits, how to compute their stages in float64, and what came of it.
_IN_FLOAT64: WeakKeyDictionary[Reference, Callable[[], Stages]] = WeakKeyDictionary()
_KEPT: WeakKeyDictionary[Reference, Stages] = WeakKeyDictionary()


def stages_in_float64(reference: Reference) -> Stages | Reference:
    """Return the stages for what needs no more digits than float64.

    Where the output is in long double they are computed anew, which takes a tenth of the time;
    those in long double are returned where a stage passes the range of float64.
    """
    compute = _IN_FLOAT64.pop(reference, None)
    if compute is not None:
        with np.errstate(all="ignore"):
            stages = compute()
        if _in_range(stages):
            _KEPT[reference] = stages
    return _KEPT.get(reference, reference)


def _in_range(stages: Stages) -> bool:
    """Return whether all is a number but scores of -inf, and rows that have nothing else."""
    hidden = np.isneginf(stages.logits)
    numbers = np.isfinite(stages.heads).all(axis=-1) | hidden.all(axis=-1)
    return bool((np.isfinite(stages.logits) | hidden).all() and numbers.all())


def reference_answer(problem: Problem) -> Reference:
    """Return the reference answer.

    Raises
    ------
    mha_torch.OraclesDisagreeError
        The two oracles differ by more than rounding explains; the
        problem cannot judge a candidate.

    """
    dtype: Float = EXTENDED if problem.dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        return _layer(problem, dtype) if problem.case.form == "mha" else _core(problem, dtype)


def _layer(problem: Problem, dtype: Float) -> Reference:
    """Return the reference of a whole layer."""
    arrays = (problem.query, problem.key, problem.value, problem.state())
    options: AttentionOptions = {
        "num_heads": problem.num_heads,
        "add_zero_attn": problem.add_zero_attn,
        "key_padding_mask": problem.key_padding_mask,
        "attn_mask": problem.attn_mask,
        "is_causal": problem.is_causal,
    }

    def met_by_torch(stages: Stages) -> dict[str, Array]:
        output, weights = answer = mha_torch.multihead_attention(*arrays, **options)
        if weights is None or not (
            _agrees_in_float64(output, stages.output)
            and _agrees_in_float64(weights, stages.weights)
        ):
            mha_torch.agree(
                *arrays, extended=dtype, oracle=lambda *_, **__: answer, stages=stages, **options
            )
        if dtype is np.float64 and weights is not None:
            return _asked(problem, output, weights)
        return _asked(problem, stages.output, stages.weights)

    compute = partial(plain.stages, *arrays, **options)
    return _reference(problem, dtype, lambda digits: compute(dtype=digits), met_by_torch)


def _core(problem: Problem, dtype: Float) -> Reference:
    """Return the reference of attention on projected Q, K, V."""
    q, k, v = (
        split_heads(rows, heads)
        for rows, heads in (
            (problem.query, problem.num_heads),
            (problem.key, problem.num_kv_heads),
            (problem.value, problem.num_kv_heads),
        )
    )
    grouped = problem.num_kv_heads != problem.num_heads

    def options(digits: Float) -> SdpaOptions:
        mask = _sdpa_mask(problem, digits)
        return {"attn_mask": mask, "scale": problem.given_scale, "enable_gqa": grouped}

    def met_by_torch(stages: Stages) -> dict[str, Array]:
        given = _rounded(options(dtype))
        heads = mha_torch.scaled_dot_product_attention(q, k, v, **given)
        heads[problem.masked_rows()] = np.nan  # torch's math backend answers 0 there
        if not _agrees_in_float64(heads, stages.heads):
            mha_torch.agree_sdpa(q, k, v, extended=dtype, **given)
        heads = stages.heads if dtype is not np.float64 else heads
        return _asked(problem, merge_heads(heads), stages.weights)

    compute = partial(plain.sdpa_stages, q, k, v, fully_masked="nan")
    return _reference(
        problem, dtype, lambda digits: compute(dtype=digits, **options(digits)), met_by_torch
    )


def _reference(
    problem: Problem,
    dtype: Float,
    compute: Callable[[Float], Stages],
    met_by_torch: Callable[[Stages], dict[str, Array]],
) -> Reference:
    """Return what ``met_by_torch`` makes of the stages, or a record has of that."""
    stages = compute(dtype) if asks_torch() else None
    found = dict(
        torch_result(
            REFERENCE,
            problem,
            lambda: met_by_torch(compute(dtype) if stages is None else stages),
        )
    )
    if problem.case.form == "qkv":
        found["heads"] = split_heads(found["output"], problem.num_heads)
    reference: Reference = (
        _LazyReference.of(found, partial(compute, dtype))
        if stages is None
        else Reference(**{each: getattr(stages, each) for each in _STAGES} | found)
    )
    if dtype is not np.float64:
        _IN_FLOAT64[reference] = partial(compute, np.float64)
    return reference


def _asked(problem: Problem, output: Array, weights: Array) -> dict[str, Array]:
    """Return output and weights as a record has them: weights where the case asks for them."""
    return {"output": output} | ({} if problem.case.weights == "none" else {"weights": weights})


def _sdpa_mask(problem: Problem, dtype: Float) -> Array | None:
    """Return all masks as one to be added, (N, H, L, S), or None where there is none."""
    if problem.attn_mask is None and problem.key_padding_mask is None and not problem.is_causal:
        return None
    # Masks are summed in the oracle's dtype: in float64 their sum would be rounded.
    parts = (problem.replace(attn_mask=None), problem.replace(key_padding_mask=None))
    added = sum(part.additive().astype(dtype) for part in parts)
    return np.where(problem.hidden(), dtype(-np.inf), added)


def _rounded(options: SdpaOptions) -> SdpaOptions:
    """Return the options with the mask in float64, as torch takes it."""
    mask = options.get("attn_mask")
    return options if mask is None else {**options, "attn_mask": mask.astype(np.float64)}


def _agrees_in_float64(first: Array, second: Array) -> bool:
    """Return whether two answers are so close that no bound need be computed."""
    reach = np.abs(np.where(np.isfinite(second), second, 0)).max(axis=-2, keepdims=True, initial=0)
    allowed = AGREEING_ROUNDINGS * np.finfo(np.float64).eps * reach
    return bool((absolute_difference(first, second) <= allowed).all())
