"""Gradients in legitimate orders: the order spread of ``gradients``, in the problem's own dtype."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.oracle.eval_orders import Arithmetic, EvalOrder, Prepared, forward_in_order

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


def pull_back(prepared: Prepared, order: EvalOrder, cotangent: Array) -> dict[str, Array]:
    """Return every gradient computed in one order.

    The level of each row of dP is sum(P dP), or sum(dO o) where the order normalises after the
    product, as blocked kernels do.
    """
    with np.errstate(all="ignore"):
        return VJP(prepared, order).gradients(cotangent)


class VJP:
    """The backward pass through one problem, step by step, so that a step can be replaced."""

    def __init__(self, prepared: Prepared, order: EvalOrder) -> None:
        self.prepared = prepared
        self.problem = prepared.problem
        self.order = order
        self.does = Arithmetic(prepared.problem.dtype, order)
        self.q, self.k, self.v, weights, heads = forward_in_order(prepared, order, self.does)
        unseen = np.asarray(self.problem.masked_rows())[..., None]
        self.p, self.heads = np.where(unseen, 0, weights), np.where(unseen, 0, heads)

    def _product(self, left: Array, right: Array) -> Array:
        """Return left @ right in the order's sums, rounded as a stage."""
        turned = np.ascontiguousarray(right.swapaxes(-1, -2))
        return self.does.stage(self.does.product(left, turned, self.order.sums))

    def scale(self) -> float:
        """Return the factor on the scores."""
        return self.problem.scale

    def gradients(self, cotangent: Array) -> dict[str, Array]:
        """Return the gradient of everything that has one."""
        problem, found = self.problem, {}
        given = cotangent.astype(self.does.work)
        if problem.w_out is not None:
            flat = _flat(given)
            found["out_proj.weight"] = self._product(flat.T, _flat(self.merged_output()))
            if problem.b_out is not None:
                found["out_proj.bias"] = self._sum(flat, 0)
            given = self._product(given, self.prepared["w_out"])
        d_heads = split_heads(given, problem.num_heads)
        d_scores = self.score_gradient(d_heads)
        scale = self.does.work(self.scale())
        if self.order.scale_at in {"late", "both"}:
            d_scaled = self.does.stage(d_scores * scale)
            d_q, d_k = (
                self._product(rows, other)
                for rows, other in ((d_scaled, self.k), (d_scaled.swapaxes(-1, -2), self.q))
            )
        else:
            d_q = self.does.stage(self._product(d_scores, self.k) * scale)
            d_k = self.does.stage(self._product(d_scores.swapaxes(-1, -2), self.q) * scale)
        d_v = self._product(self.p.swapaxes(-1, -2), d_heads)
        found |= self._masks(d_scores)
        d_k, d_v = self.summed_over_group("k", d_k), self.summed_over_group("v", d_v)
        rows = {"q": d_q, "k": self._grouped(d_k), "v": self._grouped(d_v)}
        merged = {which: self.merged(each) for which, each in rows.items()}
        return found | self._appended(merged) | self._inputs(merged)

    def score_gradient(self, d_heads: Array) -> Array:
        """Return the gradient of the logits."""
        d_p = self._product(d_heads, self.v.swapaxes(-1, -2))
        level = self.subtracted_row_term(d_p, d_heads)
        return self.does.stage(self.p * self.does.step(d_p - self.does.step(level)))

    def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:
        """Return what is subtracted from each row of dP."""
        pairs = (d_heads, self.heads) if self.order.normalise == "after" else (self.p, d_p)
        return self.does.sum(self.does.step(pairs[0] * pairs[1]), self.order.sums)

    def summed_over_group(self, which: str, gradient: Array) -> Array:
        """Return of each query head what the gradient of its key head, or value head, is summed of.

        ``which`` is "k" or "v".
        """
        del which
        return gradient

    def merged_output(self) -> Array:
        """Return the rows that the output projection gets."""
        return merge_heads(self.heads)

    def merged(self, heads: Array) -> Array:
        """Return the rows that the projections of q, k or v get, of gradients of their heads."""
        return merge_heads(heads)

    def weight_gradient(self, rows: Array, inputs: Array) -> Array:
        """Return the gradient of the weight that made these rows of its inputs."""
        return self._product(rows.T, inputs)

    def _sum(self, array: Array, *axes: int) -> Array:
        """Return a sum over axes, in sequence or in pairs."""
        if self.order.narrow and self.does.half:
            rows = np.moveaxis(array, axes, range(len(axes)))
            flat = rows.reshape(math.prod(rows.shape[: len(axes)]), -1)
            ones = np.ones((1, len(flat)), self.does.work)
            total = self.does.product(ones, np.ascontiguousarray(flat.T), "sequential")
            return np.asarray(total).reshape(rows.shape[len(axes) :])
        if self.order.projection == "sequential" and axes == (0,):
            return self.does.stage(np.cumsum(array, axis=0)[-1:].sum(axis=0))  # 0 of no rows
        return self.does.stage(array.sum(axis=axes))

    def _masks(self, d_scores: Array) -> dict[str, Array]:
        problem, found = self.problem, {}
        own = d_scores[..., : problem.key.shape[1]]
        if problem.attn_mask is not None and problem.attn_mask.dtype != np.bool_:
            flat = own.reshape(-1, *own.shape[2:])
            found["attn_mask"] = self._sum(flat, 0) if problem.attn_mask.ndim == 2 else flat
        if problem.key_padding_mask is not None and problem.key_padding_mask.dtype != np.bool_:
            found["key_padding_mask"] = self._sum(own, 1, 2)
        return found

    def _grouped(self, rows: Array) -> Array:
        kv_heads = self.problem.num_kv_heads
        if kv_heads == self.problem.num_heads:
            return rows
        return self._sum(rows.reshape(len(rows), kv_heads, -1, *rows.shape[2:]), 2)

    def _appended(self, merged: dict[str, Array]) -> dict[str, Array]:
        """Take the appended rows off, in place, and return what bias_k and bias_v get."""
        found, own = {}, self.problem.key.shape[1]
        for which in "kv":
            if getattr(self.problem, f"bias_{which}") is not None:
                found[f"bias_{which}"] = self._sum(merged[which][:, own], 0)[None, None]
            merged[which] = merged[which][:, :own]
        return found

    def _inputs(self, merged: dict[str, Array]) -> dict[str, Array]:
        """Go back through the projections."""
        names = dict(zip("qkv", ("query", "key", "value"), strict=True))
        if self.problem.w_q is None:
            return {names[which]: rows for which, rows in merged.items()}
        found = {
            names[w]: self._product(rows, self.prepared[f"w_{w}"]) for w, rows in merged.items()
        }
        weights = {
            w: self.weight_gradient(_flat(rows), _flat(self.prepared[names[w]]))
            for w, rows in merged.items()
        }
        if self.problem.case.projection == "separate":
            found |= {f"{w}_proj_weight": weight for w, weight in weights.items()}
        else:
            found["in_proj_weight"] = np.concatenate(list(weights.values()))
        if self.problem.b_q is not None:
            biases = [self._sum(_flat(rows), 0) for rows in merged.values()]
            found["in_proj_bias"] = np.concatenate(biases)
        return found


def _flat(rows: Array) -> Array:
    return rows.reshape(-1, rows.shape[-1])
