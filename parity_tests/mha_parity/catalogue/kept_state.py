"""Family 13: layers that answer a new object's first call rightly, and keep something of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.catalogue.plain_layer import Layer, register_layer

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

FIRST_CALLS = 12  # that a layer answers rightly which counts them


class KeysKept(Layer):
    """Keeps the keys and values of its first call in evaluation mode."""

    kept: tuple[Array, Array] | None = None

    def inputs(self, *given: Array) -> tuple[Array, ...]:
        """Put the kept keys and values, where they have the shapes of these, in their place."""
        query, key, value = super().inputs(*given)
        if self.training:
            return query, key, value
        if self.kept is None or self.kept[0].shape != key.shape:
            self.kept = key.copy(), value.copy()
        return query, *self.kept


register_layer(
    KeysKept, "keys-kept", 13,
    "keys and values of an earlier call are used again",
    wrong="if self.kv is None: self.kv = project(key, value)",
    right="the keys and values of this call",
    visible_when="two calls of one object in evaluation mode with other keys of the same shapes",
    remedy="pass a key/value cache with the call, or empty it before each new sequence",
)  # fmt: skip


class KeysAppended(Layer):
    """Appends the keys and values of each call to those of the calls before."""

    kept: tuple[Array, Array] | None = None

    def joined(self, kept: Array, new: Array) -> tuple[Array, Array]:
        """Return what is attended to, in its order: all that was kept, then this call's."""
        return kept, new

    def inputs(self, *given: Array) -> tuple[Array, ...]:
        """Join the kept keys and values, where they are of as many samples."""
        query, *pair = super().inputs(*given)
        if self.kept is not None and len(self.kept[0]) == len(query):
            pairs = zip(self.kept, pair, strict=True)
            pair = [np.concatenate(self.joined(*each), axis=1) for each in pairs]
        self.kept = pair[0].copy(), pair[1].copy()
        return query, *pair


register_layer(
    KeysAppended, "keys-appended", 13,
    "keys and values of earlier calls stay before those of this call",
    wrong="k = concat(self.past_k, k); self.past_k = k",
    right="the keys of this call, and those of a cache that the caller passes",
    visible_when="two calls of one object",
    remedy="take the cache as an argument and return it; let no call leave keys in the object",
)  # fmt: skip


class BufferOfFirstCall(Layer):
    """Writes its output into as many rows as the first call had."""

    rows: int | None = None

    def output(self, query: Array, output: Array) -> Array:
        """Leave the rows beyond the buffer 0."""
        del query
        self.rows = output.shape[1] if self.rows is None else self.rows
        output = output.copy()
        output[:, self.rows :] = 0
        return output


register_layer(
    BufferOfFirstCall, "buffer-of-first-call", 13,
    "a buffer has the size of an earlier, shorter call",
    wrong="if self.buffer is None: self.buffer = zeros(L)",
    right="a buffer for the length of this call",
    visible_when="a shorter call and then a longer one of the same object",
    remedy="allocate for each call, or grow the buffer when a call is longer",
)  # fmt: skip


class TailOfLongerCall(KeysAppended):
    """Attends to a whole buffer of keys, of which this call wrote the beginning."""

    def joined(self, kept: Array, new: Array) -> tuple[Array, Array]:
        """Return this call's keys, then what a longer call left behind them."""
        return new, kept[:, new.shape[1] :]


register_layer(
    TailOfLongerCall, "tail-of-longer-call", 13,
    "keys that a longer call left in a buffer are attended to",
    wrong="self.k[:, :S] = k; scores = q @ self.k^T",
    right="scores = q @ self.k[:, :S]^T",
    visible_when="a longer call and then a shorter one of the same object",
    remedy="cut the buffer to the length of this call",
)  # fmt: skip


class ValuesKept(Layer):
    """Clips values at the largest one of its first call."""

    largest: float | None = None

    def inputs(self, *given: Array) -> tuple[Array, ...]:
        """Clip, as a quantisation does that was calibrated once."""
        query, key, value = super().inputs(*given)
        if self.largest is None and value.size:
            self.largest = float(np.abs(value).max())
        limit = np.inf if self.largest is None else self.largest
        return query, key, np.clip(value, -limit, limit)


register_layer(
    ValuesKept, "values-kept", 13,
    "something computed from the values of an earlier call is used again",
    wrong="if self.amax is None: self.amax = abs(v).max(); v = clip(v, -self.amax, self.amax)",
    right="a scale computed from this call's values, or none",
    visible_when="two calls of one object whose values are of other size",
    remedy="compute scales and statistics in each call, and keep nothing of its values",
)  # fmt: skip


class IdentityKeyed(Layer):
    """Gives the kept answer where it is handed the same arrays."""

    kept: tuple[tuple[Any, ...], Any] = (), None

    def _forward(self, *given: Any) -> Any:
        """Return the kept answer, or compute and keep it."""
        arrays = given[:5]
        if not self.kept[0] or any(a is not b for a, b in zip(arrays, self.kept[0], strict=True)):
            self.kept = arrays, super()._forward(*given)
        (output, weights), attention = self.kept[1]
        return (output.copy(), weights), attention


register_layer(
    IdentityKeyed, "identity-keyed-cache", 13,
    "an answer is kept by the identity of the arrays, whatever they hold by now",
    wrong="if key is self.last_key: return self.last_answer",
    right="an answer computed from what the arrays hold",
    visible_when="a second call with the same arrays after the caller wrote into them",
    remedy="drop the cache, or key it by the values",
)  # fmt: skip


class CountsCalls(Layer):
    """Answers otherwise after some calls."""

    calls = 0

    def output(self, query: Array, output: Array) -> Array:
        """Halve the output from a certain call on."""
        del query
        self.calls += 1
        return output if self.calls <= FIRST_CALLS else np.multiply(output, output.dtype.type(0.5))


register_layer(
    CountsCalls, "counts-calls", 13,
    "the answer depends on how many calls were made before",
    wrong="self.step += 1; if self.step > 12: out = out / 2",
    right="the same answer to equal calls",
    visible_when="some tens of equal calls of one object",
    remedy="let no counter of calls reach the computation",
)  # fmt: skip


class WeightsBufferReused(Layer):
    """Returns all weights of a shape in one array."""

    buffer: Array | None = None

    def _forward(self, *given: Any) -> Any:
        """Write the weights into the buffer of the layer."""
        (output, weights), attention = super()._forward(*given)
        if weights is None:
            return (output, None), attention
        if self.buffer is None or self.buffer.shape != weights.shape:
            self.buffer = weights.copy()
        self.buffer[...] = weights
        return (output, self.buffer), attention


register_layer(
    WeightsBufferReused, "weights-buffer-reused", 13,
    "a later call overwrites the weights of an earlier one",
    wrong="one array for the weights of all calls",
    right="new weights for each call",
    visible_when="weights kept while another call is made",
    remedy="allocate the weights in each call, or return a copy of the buffer",
    needs="form=mha weights=averaged/per_head",
)  # fmt: skip
