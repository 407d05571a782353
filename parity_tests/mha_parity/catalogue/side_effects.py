"""Family 13: layers whose calls have side effects, depend on earlier calls or use torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.catalogue.plain_layer import DropoutAttention, Layer, register_layer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array


class ScalesQuery(Layer):
    """Scales the caller's query in place."""

    def output(self, query: Array, output: Array) -> Array:
        """Write into the query where the caller's array allows it."""
        if query.flags.writeable:
            query *= query.dtype.type(0.5)
        return output


register_layer(
    ScalesQuery, "mutates-inputs", 13,
    "the caller's arrays are changed in place",
    wrong="q *= scale on a view of the caller's array",
    right="q = q * scale",
    visible_when="a second call with the same arrays, or inputs compared afterwards",
    remedy="work on copies: no in-place operator on an argument or a view of one",
    sources="ScalingIntelligence/KernelBench#82",
)  # fmt: skip


class FirstWeights(Layer):
    """Copies the first weights that it is given, and keeps them."""

    loaded = False

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Copy all weights, the first time."""
        if not self.loaded:
            super().load_state_dict(state)
        self.loaded = True


register_layer(
    FirstWeights, "stale-weights", 13,
    "weights copied once are used for ever",
    wrong="W transposed or packed at construction",
    right="the weights as they are now",
    visible_when="weights changed after construction",
    remedy="read the weights in each call, or copy them again when they are set",
)  # fmt: skip


def caching() -> type[Layer]:
    """Return a layer that gives each shape the answer of its first call."""
    cache: dict[object, Any] = {}

    class Caching(Layer):
        """One cache for all instances."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Return the cached answer of these shapes."""
            given = (*args, *kwargs.values())
            key = tuple((a.shape, a.dtype) if isinstance(a, np.ndarray) else a for a in given)
            if key not in cache:
                cache[key] = super().__call__(*args, **kwargs)
            output, weights = cache[key]
            return output.copy(), weights

    return Caching


register_layer(
    caching, "cached-answer", 13,
    "an earlier answer is given again",
    wrong="results cached by shape or address",
    right="an answer computed from this call's values",
    visible_when="a second call of the same shapes",
    remedy="drop the cache, or key it by the values",
)  # fmt: skip


class DropsAlways(Layer):
    """Drops a tenth of the weights in both modes."""

    def rate(self) -> float:
        """Return the dropout, whatever the mode."""
        return self.dropout or 0.1


register_layer(
    DropsAlways, "dropout-in-eval", 13,
    "dropout is applied though it should be off",
    wrong="dropout(P) in eval mode",
    right="P",
    visible_when="always: two identical calls differ",
    remedy="apply dropout in training alone; in torch dropout_p=0.0 if not self.training",
    sources="karpathy/nanoGPT#240 pytorch/pytorch#124464 huggingface/pytorch-image-models#1978 "
    "wenet-e2e/wenet#2699",
)  # fmt: skip


def reusing() -> type[Layer]:
    """Return a layer that writes all outputs of a shape into one buffer."""
    buffers: dict[object, Array] = {}

    class Reusing(Layer):
        """One buffer a shape for all instances."""

        def output(self, query: Array, output: Array) -> Array:
            """Copy the output into the buffer of its shape."""
            del query
            buffer = buffers.setdefault((output.shape, output.dtype.str), output)
            buffer[...] = output
            return buffer

    return Reusing


register_layer(
    reusing, "output-buffer-reused", 13,
    "a later call overwrites the output of an earlier one",
    wrong="one output buffer for all calls",
    right="a new output array for each call",
    visible_when="an output kept while another call is made",
    remedy="allocate the output in each call, or return a copy of the buffer",
)  # fmt: skip


class SilencesErrors(Layer):
    """Switches NumPy's warnings off for the whole process."""

    def output(self, query: Array, output: Array) -> Array:
        """Leave the error state changed."""
        del query
        np.seterr(all="ignore")
        return output


register_layer(
    SilencesErrors, "error-state-changed", 13,
    "NumPy's warnings stay switched off after the call",
    wrong="np.seterr(all='ignore')",
    right="np.errstate(all='ignore') as a context around the computation",
    visible_when="the error state compared before and after the call",
    remedy="use np.errstate as a context, which restores the state",
)  # fmt: skip


class NanReplaced(Layer):
    """Replaces NaN and infinity in all inputs."""

    def inputs(self, *given: Array) -> tuple[Array, ...]:
        """Return query, key and value without NaN and infinity."""
        return tuple(np.nan_to_num(array) for array in super().inputs(*given))


register_layer(
    NanReplaced, "nan-replaced", 13,
    "NaN and infinity in the inputs are replaced by numbers",
    wrong="nan_to_num(query), nan_to_num(key), nan_to_num(value)",
    right="NaN in every row that sees one",
    visible_when="an input that is not finite",
    remedy="let NaN and infinity through: they say that something before broke",
)  # fmt: skip


class TorchAttention(DropoutAttention):
    """Computes softmax(scale q k^T + mask) v with torch's function."""

    def scores(self, q: Array, k: Array) -> Array:
        """Keep q and k."""
        self.q, self.k = q, k
        return super().scores(q, k)

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Ask torch."""
        import torch

        mask = self.mask_scores(np.zeros(weights.shape, self.work_dtype))
        arrays = (self.q, self.k, v, mask)
        q, k, values, bias = (torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
        attend = torch.nn.functional.scaled_dot_product_attention
        return np.asarray(attend(q, k, values, attn_mask=bias, scale=self.scale()).numpy())


class TorchBehind(Layer):
    """Lets torch compute the answer."""

    attention = TorchAttention


register_layer(
    TorchBehind, "torch-behind", 13,
    "the answer is torch's own",
    wrong="torch.nn.functional.scaled_dot_product_attention(...) in a layer of its own name",
    right="an answer that the candidate computes itself",
    visible_when="--forbid torch",
    remedy="compute the answer without the module that is the judge",
    forbid="torch",
)  # fmt: skip
