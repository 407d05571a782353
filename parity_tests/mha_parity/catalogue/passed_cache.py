"""Family 13: layers that decode with a key/value cache which the caller passes on, wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.catalogue.plain_layer import Layer, register_layer

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

Cache = tuple["Array", "Array"]  # keys and values, (N, T, E)


class CachedLayer(Layer):
    """Takes the keys and values of earlier calls as ``past``, and returns them with its own."""

    past: Cache | None = None
    present: Cache | None = None

    def __call__(
        self, query: Array, key: Array, value: Array, key_padding_mask: Array | None = None,
        need_weights: bool = True, attn_mask: Array | None = None,
        average_attn_weights: bool = True, past: Cache | None = None, use_cache: bool = False,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return output and weights, and the cache for the next call where it is asked for."""
        self.past = past
        found = super().__call__(
            query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights
        )
        return (*found, self.present) if use_cache else found

    def inputs(self, *given: Array) -> tuple[Array, ...]:
        """Put the rows of the cache before those of the call."""
        query, *new = super().inputs(*given)
        before = self.past
        parts = ((each,) for each in new) if before is None else self.parts(before, new)
        pair = [np.concatenate(each, axis=1) for each in parts]
        self.present = self.kept(pair, new)
        return query, *pair

    def parts(self, past: Cache, new: list[Array]) -> Any:
        """Return what is joined, of the keys and of the values."""
        return zip(past, new, strict=True)

    def kept(self, pair: list[Array], new: list[Array]) -> Cache:
        """Return what the next call is passed, of all rows and of the new ones."""
        del new
        return pair[0], pair[1]


class LastCallAlone(CachedLayer):
    """Returns the rows of this call alone."""

    def kept(self, pair: list[Array], new: list[Array]) -> Cache:
        """Forget what was passed."""
        del pair
        return new[0], new[1]


register_layer(
    LastCallAlone, "cache-forgets", 13,
    "a key/value cache keeps the rows of the last call alone",
    wrong="k_all = concat(past_k, k); return out, (k, v)",
    right="return out, (k_all, v_all)",
    visible_when="a third call on a sequence, with the cache that the second one returned",
    remedy="return the joined keys and values: those that were passed, and this call's",
)  # fmt: skip


class RowTwice(CachedLayer):
    """Joins the rows of a call after they were put into the cache."""

    def parts(self, past: Cache, new: list[Array]) -> Any:
        """Join the new rows twice."""
        return ((old, each, each) for old, each in zip(past, new, strict=True))

    def kept(self, pair: list[Array], new: list[Array]) -> Cache:
        """Return each row once."""
        if self.past is None:
            return pair[0], pair[1]
        length = new[0].shape[1]
        return pair[0][:, :-length], pair[1][:, :-length]


register_layer(
    RowTwice, "cache-row-twice", 13,
    "the keys and values of a call with a cache are attended to twice",
    wrong="cache.append(k, v); k = concat(cache.k, k)",
    right="cache.append(k, v); k = cache.k",
    visible_when="a call with the cache of an earlier one",
    remedy="join the new rows with the cache once: before they are kept, or by keeping them",
)  # fmt: skip


class CacheOfAll(CachedLayer):
    """Keeps the rows in itself, and takes those for the sequence's that it kept last."""

    last: Cache | None = None

    def parts(self, past: Cache, new: list[Array]) -> Any:
        """Take what the last call of any sequence left."""
        return zip(self.last or past, new, strict=True)

    def kept(self, pair: list[Array], new: list[Array]) -> Cache:
        """Leave the rows for the next call, whatever sequence that is of."""
        del new
        self.last = pair[0], pair[1]
        return self.last


register_layer(
    CacheOfAll, "cache-shared", 13,
    "two sequences share one key/value cache",
    wrong="if past is not None: k = concat(self.k, k); self.k = k",
    right="if past is not None: k = concat(past_k, k)",
    visible_when="two sequences that one object decodes alternately",
    remedy="read the cache that is passed, and keep none in the layer",
)  # fmt: skip


class SamplesReversed(CachedLayer):
    """Takes the samples of the cache in another order."""

    def parts(self, past: Cache, new: list[Array]) -> Any:
        """Reverse the samples of what was passed."""
        return ((old[::-1], each) for old, each in zip(past, new, strict=True))


register_layer(
    SamplesReversed, "cache-samples-mixed", 13,
    "a sample gets the key/value cache of another one",
    wrong="k = concat(past_k[order], k), the order being that of another step",
    right="k = concat(past_k, k), sample by sample",
    visible_when="two samples or more, decoded with a cache",
    remedy="keep the samples of the cache in the order of the inputs; reorder both together",
)  # fmt: skip
