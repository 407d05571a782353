r"""Gradients in the reference's digits, each with a bound on its rounding error.

For the cotangent G of the output, with P the weights, o the heads and s the scale:

    dO = G W_out,  dV = P^T dO,  dP = dO V^T,  dS = P * (dP - rowsum(P * dP)),
    dq = s dS K,  dk = s dS^T q,  dW = dq^T x,  dx = dq W,  d(mask) = dS summed as it was broadcast.

rowsum(P * dP) may as well be computed as rowsum(dO * o): the bound is the larger of both. A row
that sees no key has no gradient: it adds 0 to all others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.oracle.error_arithmetic import Bounded
from mha_parity.oracle.error_bound import SCALING, ErrorModel, bound_with_model

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

Gradients = dict[str, Bounded]


def backward(
    problem: Problem, reference: Reference, cotangent: Array, arithmetic: ErrorModel
) -> Gradients:
    """Return every gradient with its bound, under state-dict names, "query", "key", "value"."""
    with np.errstate(all="ignore"):
        return _Backward(problem, reference, cotangent, arithmetic).gradients()


class _Backward:
    def __init__(
        self, problem: Problem, reference: Reference, cotangent: Array, arithmetic: ErrorModel
    ) -> None:
        self.problem = problem
        limits = bound_with_model(arithmetic, problem, reference)
        unseen = np.asarray(problem.masked_rows())[..., None]

        def number(value: Array, error: Array) -> Bounded:
            return Bounded(value, error, arithmetic)

        def seen(value: Array, error: Array) -> Bounded:
            return number(np.where(unseen, 0, value), np.where(unseen, 0, error))

        dq, dk, dv, dheads = limits.stages
        self.q, self.k, self.v = (
            number(reference.q, dq),
            number(reference.k, dk),
            number(reference.v, dv),
        )
        self.p = seen(reference.weights, np.maximum(limits.weights, limits.recomputed))
        self.heads = seen(reference.heads, dheads)
        self.cotangent = self.q.exact(cotangent)
        self.own = problem.key.shape[1]

    def gradients(self) -> Gradients:
        found: Gradients = {}
        d_heads = self._out(found).shaped(partial(split_heads, heads=self.problem.num_heads))
        d_scores, d_v = self._mixed(d_heads)
        d_q = (d_scores @ self.k).scaled(self.problem.scale, SCALING)
        d_k = (_turned(d_scores) @ self.q).scaled(self.problem.scale, SCALING)
        self._masks(found, d_scores)
        rows = dict(zip("qkv", (d_q, self._grouped(d_k), self._grouped(d_v)), strict=True))
        self._inputs(found, {which: self._appended(found, which, r) for which, r in rows.items()})
        return found

    def _out(self, found: Gradients) -> Bounded:
        """Return the gradient of the merged heads."""
        problem = self.problem
        if problem.w_out is None:
            return self.cotangent
        flat = self.cotangent.shaped(_flat)
        found["out_proj.weight"] = _turned(flat) @ self.heads.shaped(merge_heads).shaped(_flat)
        if problem.b_out is not None:
            found["out_proj.bias"] = flat.total(0)
        return self.cotangent @ self.q.exact(problem.w_out)

    def _mixed(self, d_heads: Bounded) -> tuple[Bounded, Bounded]:
        """Return the gradients of the logits and of the values."""
        d_p = d_heads @ _turned(self.v)
        level = (self.p * d_p).total(-1).with_larger_error((d_heads * self.heads).total(-1))
        d_scores = self.p * (d_p - level.shaped(lambda a: a[..., None]))
        return d_scores, _turned(self.p) @ d_heads

    def _masks(self, found: Gradients, d_scores: Bounded) -> None:
        """Sum over what a float mask was broadcast to."""
        problem = self.problem
        own = d_scores.shaped(lambda a: a[..., : self.own])
        if problem.attn_mask is not None and problem.attn_mask.dtype != np.bool_:
            flat = own.shaped(lambda a: a.reshape(-1, *a.shape[2:]))
            found["attn_mask"] = flat.total(0) if problem.attn_mask.ndim == 2 else flat
        if problem.key_padding_mask is not None and problem.key_padding_mask.dtype != np.bool_:
            found["key_padding_mask"] = own.total(1, 2)

    def _grouped(self, rows: Bounded) -> Bounded:
        """Sum the gradients of the query heads that share a key head."""
        kv_heads = self.problem.num_kv_heads
        if kv_heads == self.problem.num_heads:
            return rows
        return rows.shaped(lambda a: a.reshape(len(a), kv_heads, -1, *a.shape[2:])).total(2)

    def _appended(self, found: Gradients, which: str, rows: Bounded) -> Bounded:
        """Return the merged gradient of the projected rows; keep that of bias_k and bias_v."""
        merged = rows.shaped(merge_heads)
        if which == "q":
            return merged
        if getattr(self.problem, f"bias_{which}") is not None:
            extra = merged.shaped(lambda a: a[:, self.own]).total(0)
            found[f"bias_{which}"] = extra.shaped(lambda a: a[None, None])
        return merged.shaped(lambda a: a[:, : self.own])

    def _inputs(self, found: Gradients, rows: Gradients) -> None:
        """Go back through the projections."""
        problem = self.problem
        weights, biases = [], []
        for which, name in zip("qkv", ("query", "key", "value"), strict=True):
            weight = getattr(problem, f"w_{which}")
            if weight is None:
                found[name] = rows[which]
                continue
            found[name] = rows[which] @ self.q.exact(weight)
            flat = rows[which].shaped(_flat)
            weights.append(_turned(flat) @ self.q.exact(_flat(getattr(problem, name))))
            biases.append(flat.total(0))
        if not weights:
            return
        if problem.case.projection == "separate":
            found |= {f"{w}_proj_weight": g for w, g in zip("qkv", weights, strict=True)}
        else:
            found["in_proj_weight"] = _stacked(weights)
        if problem.b_q is not None:
            found["in_proj_bias"] = _stacked(biases)


def _stacked(parts: list[Bounded]) -> Bounded:
    return Bounded(
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.error for part in parts]),
        parts[0].machine,
    )


def _turned(array: Bounded) -> Bounded:
    return array.shaped(lambda a: a.swapaxes(-1, -2))


def _flat(rows: Array) -> Array:
    return rows.reshape(-1, rows.shape[-1])
