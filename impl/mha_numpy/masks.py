"""Keys that a query may see: every kind of mask in one form, for all engines.

Axes everywhere: N batch, H heads, L queries, S keys (the appended ones included).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.dtypes import BOOL, Array

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


@dataclass(frozen=True, slots=True)
class Masking:
    """Masks of one problem, each kept as small as it was given.

    A logit at (n, h, i, j) becomes `logit + sum(bias)`, and -inf is added where any `hidden`
    array is True or where the causal rule forbids j. Adding (not overwriting) is torch's way:
    NaN at a hidden key stays NaN.
    """

    hidden: tuple[NDArray[np.bool_], ...] = ()
    """Boolean arrays that broadcast to (N, H, L, S); True = hidden."""
    bias: tuple[Array, ...] = ()
    """Float arrays that broadcast to (N, H, L, S), added to the scaled logits."""
    causal: bool = False
    """Query i sees key j only if j <= i, counted from the top left, as torch counts."""
    appended: int = 0
    """The number of last keys that lie outside the causal rule (bias_kv, zero_attn)."""

    @classmethod
    def of(cls, masks: list[Array], *, causal: bool, appended: int) -> Masking:
        """Return the masking of 4-D masks, boolean (True = hidden) or float, without appended keys.

        Those are always visible, so each mask grows by as many columns of False or 0.
        """
        if appended:
            masks = [np.pad(mask, ((0, 0), (0, 0), (0, 0), (0, appended))) for mask in masks]
        hidden = tuple(mask for mask in masks if mask.dtype == BOOL)
        bias = tuple(mask for mask in masks if mask.dtype != BOOL)
        return cls(hidden, bias, causal, appended)

    @property
    def is_empty(self) -> bool:
        """Whether every query sees every key and nothing is added."""
        return not (self.hidden or self.bias or self.causal)

    def of_samples(self, samples: slice) -> Masking:
        """Return the masks of some samples: views."""
        hidden, bias = (
            tuple(mask[samples] if len(mask) > 1 else mask for mask in masks)
            for masks in (self.hidden, self.bias)
        )
        return replace(self, hidden=hidden, bias=bias)

    def additive(self, queries: int, keys: int, dtype: DTypeLike, unit: float = 1.0) -> Array:
        """Return all masks, one at least, as one array to add to the scores, times `unit`.

        Its shape is the smallest that holds them all and broadcasts to (N, H, L, S). A bias of
        another dtype is cast to `dtype` before anything is added.
        """
        parts = [bias.astype(dtype, copy=False) for bias in self.bias]
        hidden = list(self.hidden)
        if self.causal:
            hidden.append(causal_hidden(queries, keys, self.appended)[None, None])
        if hidden:
            union = reduce(np.logical_or, hidden)
            parts.append(np.where(union, np.asarray(-np.inf, dtype), np.asarray(0, dtype)))
        total: Array = reduce(np.add, parts)
        return total if unit == 1 or not self.bias else total * np.asarray(unit, dtype)

    def exceeds(self, limit: float, dtype: DTypeLike) -> bool:
        """Whether a float mask, cast to `dtype`, has a finite number beyond -limit or limit."""
        for bias in self.bias:
            numbers = bias.astype(dtype, copy=False)
            beyond = np.count_nonzero(numbers < -limit) + np.count_nonzero(numbers > limit)
            if beyond and beyond != np.count_nonzero(np.isinf(numbers)):
                return True
        return False

    def unseen(self, queries: int, keys: int, dtype: DTypeLike) -> NDArray[np.bool_]:
        """Return booleans that broadcast to (N, H, L), True for a row that sees no key.

        Without any key (keys = 0) it is False: torch gives such rows 0 and not NaN.
        """
        if self.is_empty or not keys:
            return np.zeros((1, 1, 1), np.bool_)
        hidden = np.isneginf(self.additive(queries, keys, dtype))
        rows: NDArray[np.bool_] = np.logical_and.reduce(hidden, axis=-1)
        return rows


NO_MASK = Masking()


def causal_hidden(queries: int, keys: int, appended: int = 0, first: int = 0) -> NDArray[np.bool_]:
    """Return (L, S) booleans, True where key first + j > query i and j is none of the appended."""
    hidden = np.arange(first, first + keys) > np.arange(queries)[:, None]
    hidden[:, keys - appended :] = False
    return hidden
