"""One plain attention whose every step can be replaced: the right one, of which bugs are changes.

    q, k, v = project;  append;  split;  z = scale q k^T;  mask;  P = softmax(z);  P v;  merge;  out

A wrong attention is a subclass with one step changed. Where two change different steps, a class
with both as bases has both bugs: that is how combinations are tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import Answer, CandidateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

Triple = tuple["Array", "Array", "Array"]


class Attention:
    """The right attention on one problem; N, L, S, H, D, E as in the problem's docstring.

    Computes in the problem's own dtype; half precision in float32, rounded at the end.
    """

    def __init__(self, problem: Problem) -> None:
        """Take the problem; nothing is computed before ``answer``."""
        self.problem = problem
        self.case = problem.case
        self.work_dtype: np.dtype[np.floating] = np.dtype(
            np.float64 if problem.dtype == np.float64 else np.float32
        )
        self.stages: dict[str, Array] = {}

    # The line of the data: each step is named after what it returns.

    def answer(self) -> Answer:
        """Return output and weights as the case asks for them."""
        with np.errstate(all="ignore"):
            q, k, v = self.project()
            k, v = self.append(k, v)
            q = self.split(q, self.problem.num_heads)
            k, v = (self.repeat_heads(self.split(x, self.problem.num_kv_heads)) for x in (k, v))
            scores = self.scores(q, k)
            masked = self.mask_scores(scores)
            weights = self.softmax(masked)
            outputs = self.apply_weights(weights, v)
            output = self.project_output(self.merge(outputs))
            self.stages = {
                "query heads": q,
                "key heads": k,
                "value heads": v,
                "scores": scores,
                "masked scores": masked,
                "weights": weights,
                "head outputs": outputs,
                "output": output,
            }
            return Answer(output=self.rounded(output), weights=self._asked(weights))

    def inputs(self) -> Triple:
        """Return query (N, L, E), key (N, S, kdim) and value (N, S, vdim)."""
        p = self.problem
        return self.precise(p.query), self.precise(p.key), self.precise(p.value)

    def parameter(self, name: str) -> Array | None:
        """Return the weight, bias or appended row of this name, None where there is none."""
        array: Array | None = getattr(self.problem, name)
        return None if array is None else self.precise(array)

    def project(self) -> Triple:
        """Return q (N, L, E), k (N, S, E), v (N, S, E), each x W^T + b."""
        query, key, value = self.inputs()
        return (self.linear(query, "q"), self.linear(key, "k"), self.linear(value, "v"))

    def linear(self, x: Array, name: str) -> Array:
        """Return x W^T + b of the projection ``name``; x itself where it has no weights."""
        weight, bias = self.parameter(f"w_{name}"), self.parameter(f"b_{name}")
        projected: Array = x if weight is None else x @ weight.T
        return projected if bias is None else projected + bias

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Return k and v with the rows of bias_kv, then the zero row, behind their own."""
        bias_k, bias_v = self.parameter("bias_k"), self.parameter("bias_v")
        if bias_k is not None and bias_v is not None:
            k, v = append_row(k, bias_k), append_row(v, bias_v)
        if self.problem.add_zero_attn:
            k, v = (append_row(x, np.zeros(x.shape[2], dtype=self.work_dtype)) for x in (k, v))
        return k, v

    def split(self, x: Array, heads: int) -> Array:
        """Return (N, T, heads d) as (N, heads, T, d)."""
        n, t, width = x.shape
        return x.reshape(n, t, heads, width // heads).swapaxes(1, 2)

    def repeat_heads(self, x: Array) -> Array:
        """Return key or value heads repeated so that each query head has its own."""
        times = self.problem.num_heads // self.problem.num_kv_heads
        return x if times == 1 else np.repeat(x, times, axis=1)

    def scale(self) -> float:
        """Return the factor on q k^T."""
        return self.problem.scale

    def scores(self, q: Array, k: Array) -> Array:
        """Return scale q k^T, (N, H, L, S')."""
        return np.asarray((q * self.work_dtype.type(self.scale())) @ k.swapaxes(-1, -2))

    # Masks are added to the scores: 0 or a finite bias where a key is seen, -inf where hidden.

    def mask_scores(self, scores: Array) -> Array:
        """Return the scores with all masks applied."""
        parts = [
            m for m in (self.padding_mask(), self.attn_mask(), self.causal_mask()) if m is not None
        ]
        return (
            self.apply_mask(scores, self.broadcast_mask(self.sum_masks(parts))) if parts else scores
        )

    def padding_mask(self) -> Array | None:
        """Return the key_padding_mask as (N, 1, 1, S)."""
        mask = self.problem.key_padding_mask
        return None if mask is None else self.additive(mask)[:, None, None, :]

    def attn_mask(self) -> Array | None:
        """Return the attn_mask as (1, 1, L, S) or (N, H, L, S)."""
        mask = self.problem.attn_mask
        if mask is None:
            return None
        added = self.additive(mask)
        return added if mask.ndim == 2 else added.reshape(self._by_head(mask))

    def causal_mask(self) -> Array | None:
        """Return the causal mask as (L, S), top-left."""
        return self.future_mask(1) if self.problem.is_causal else None

    def future_mask(self, diagonal: int) -> Array:
        """Return -inf on and above the diagonal of (L, S), 0 below."""
        shape = (self.case.queries, self.problem.key.shape[1])
        return self.additive(np.triu(np.ones(shape, dtype=bool), k=diagonal))

    def additive(self, mask: Array) -> Array:
        """Return a mask as a float to add: -inf where a boolean one is True."""
        if mask.dtype == np.bool_:
            return np.where(mask, self.work_dtype.type(-np.inf), self.work_dtype.type(0))
        return self.precise(mask)

    def sum_masks(self, parts: list[Array]) -> Array:
        """Return the sum of the masks."""
        return sum(parts[1:], parts[0])

    def broadcast_mask(self, mask: Array) -> Array:
        """Return the mask over all N, H, L, S', with 0 for the appended keys."""
        n, h, length, total = self.problem.weights_shape
        appended = self.problem.appended
        own = np.broadcast_to(mask, (n, h, length, total - appended))
        return np.pad(own, ((0, 0), (0, 0), (0, 0), (0, appended))) if appended else np.array(own)

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Return scores + mask."""
        return scores + mask

    def softmax(self, scores: Array) -> Array:
        """Return exp(z - max z) / sum exp(z - max z) over the keys; NaN where none is seen."""
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = self.exp(scores - top)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    def exp(self, x: Array) -> Array:
        """Return e^x."""
        return np.asarray(np.exp(x))

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P v, (N, H, L, Dv)."""
        return np.asarray(weights @ v)

    def merge(self, x: Array) -> Array:
        """Return (N, H, L, Dv) as (N, L, H Dv)."""
        n, h, length, width = x.shape
        return x.swapaxes(1, 2).reshape(n, length, h * width)

    def project_output(self, x: Array) -> Array:
        """Return the output projection."""
        return self.linear(x, "out")

    def returned_weights(self, weights: Array) -> Array:
        """Return the weights of every head, (N, H, L, S'), as the caller gets them."""
        return weights

    def averaged_weights(self, weights: Array) -> Array:
        """Return the mean of the weights over the heads, (N, L, S')."""
        return np.asarray(weights.mean(axis=1))

    # Small tools.

    def precise(self, array: Array) -> Array:
        """Return a float array in the working dtype."""
        return np.asarray(array, dtype=self.work_dtype)

    def rounded(self, array: Array) -> Array:
        """Return the result in the problem's dtype."""
        return array.astype(self.problem.dtype, copy=False)

    def _by_head(self, mask: Array) -> tuple[int, ...]:
        return (self.case.batch, self.problem.num_heads, *mask.shape[1:])

    def _asked(self, weights: Array) -> Array | None:
        if self.case.weights == "none":
            return None
        every = self.returned_weights(weights)
        return self.rounded(
            self.averaged_weights(every) if self.case.weights == "averaged" else every
        )


def before(step: str, change: Callable[..., tuple[Any, ...]]) -> type[Attention]:
    """Return the attention whose ``step`` is given what ``change`` makes of its arguments."""

    def changed(self: Attention, *given: Any) -> Any:
        return getattr(super(kind, self), step)(*change(*given))

    kind = type(f"Before_{step}", (Attention,), {step: changed})
    return kind


def after(step: str, change: Callable[[Any, Any], Any]) -> type[Attention]:
    """Return the attention whose ``step`` gives ``change(attention, what it gave)``; None stays."""

    def changed(self: Attention, *given: Any) -> Any:
        own = getattr(super(kind, self), step)(*given)
        return None if own is None else change(self, own)

    kind = type(f"After_{step}", (Attention,), {step: changed})
    return kind


def append_row(x: Array, row: Array) -> Array:
    """Return x (N, T, E) with one row (E,) behind the last of every sample."""
    return np.concatenate((x, np.broadcast_to(row, (x.shape[0], 1, x.shape[2]))), axis=1)


def answer_of(kind: type[Attention], problem: Problem) -> Answer:
    """Return the answer of one attention; what breaks on the way is a crash of the candidate.

    Raises
    ------
    CandidateError
        The attention cannot treat shapes like these.

    """
    try:
        return kind(problem).answer()
    except (ValueError, IndexError, TypeError, ZeroDivisionError) as error:
        raise CandidateError("crash", f"{type(error).__name__}: {error}") from error
