"""Bugs of layers that only dropout or rejected inputs show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_layer import DropoutAttention, DropoutVJP, Layer, register_layer

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem


def _layer(attention: type[DropoutAttention]) -> type[Layer]:
    """Return the layer with another attention."""
    return type(attention.__name__, (Layer,), {"attention": attention})


class CleanReturned(DropoutAttention):
    """Clean weights to the caller, dropped ones to the values."""

    def softmax(self, scores: Array) -> Array:
        """Drop nothing yet."""
        return super(DropoutAttention, self).softmax(scores)

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Drop here, where the weights are already on their way out."""
        return super().apply_weights(weights * self.multiplier, v)


register_layer(
    _layer(CleanReturned), "weights-before-dropout", 8,
    "the weights returned are those before dropout",
    wrong="return P, and dropout(P) V",
    right="return dropout(P), whose rows need not sum to 1, and dropout(P) V",
    visible_when="dropout above 0 in training mode, weights wanted",
    remedy="return what V was multiplied with, or say that you do not",
    sources="pytorch/pytorch#42929 pytorch/pytorch#33360 facebookresearch/fairseq#351",
    needs="form=mha weights=averaged/per_head",
)  # fmt: skip


class Unscaled(DropoutAttention):
    """Dropout without scaling: the weights that it keeps stay as large as they were."""

    def factor(self) -> float:
        """Return 1."""
        return 1.0


register_layer(
    _layer(Unscaled), "dropout-no-rescale", 8,
    "the weights that dropout keeps are not larger by 1/(1 - p)",
    wrong="P * (random >= p)",
    right="P * (random >= p) / (1 - p)",
    visible_when="dropout between 0 and 1 in training mode",
    remedy="divide what is kept by 1 - p, so that its mean is what it is without dropout",
)  # fmt: skip


class ByLogits(DropoutAttention):
    """Drops the logits."""

    def softmax(self, scores: Array) -> Array:
        """Set logits to 0, whence the softmax makes weights of them again."""
        found = np.where(self.multiplier > 0, scores * self.multiplier, 0)
        return super(DropoutAttention, self).softmax(found.astype(self.work_dtype))


register_layer(
    _layer(ByLogits), "dropout-before-softmax", 8,
    "dropout is applied before the softmax, or the weights it leaves are made to sum to 1 again",
    wrong="softmax(dropout(Q K^T)) V",
    right="dropout(softmax(Q K^T)) V",
    visible_when="dropout between 0 and 1 in training mode",
    remedy="apply dropout to the weights, behind the softmax, and divide them by 1 - p alone",
)  # fmt: skip


class OnOutput(DropoutAttention):
    """Drops elements of the heads' output."""

    def __init__(self, problem: Problem, rate: float, rng: np.random.Generator) -> None:
        """Draw for the output, too."""
        super().__init__(problem, rate, rng)
        self.of_output = np.ones((), dtype=self.work_dtype)
        if rate:
            self.of_output = self.draw(rng.random(problem.output_shape)).astype(self.work_dtype)

    def softmax(self, scores: Array) -> Array:
        """Drop nothing yet."""
        return super(DropoutAttention, self).softmax(scores)

    def merge(self, x: Array) -> Array:
        """Drop behind the values."""
        return super().merge(x) * self.of_output


register_layer(
    _layer(OnOutput), "dropout-on-output", 8,
    "dropout is applied to the output and not to the weights",
    wrong="dropout(P V)",
    right="dropout(P) V",
    visible_when="dropout between 0 and 1 in training mode",
    remedy="apply dropout to the weights, before they meet the values",
)  # fmt: skip


class KeepsShare(DropoutAttention):
    """Takes p for the share to keep."""

    def kept(self, uniform: Array) -> Array:
        """Keep the share p."""
        return np.asarray(uniform < self.rate)


register_layer(
    _layer(KeepsShare), "dropout-keeps-p", 8,
    "dropout p keeps the share p, and drops the rest",
    wrong="P * (random < p) / (1 - p)",
    right="P * (random >= p) / (1 - p)",
    visible_when="dropout other than 0.5 in training mode",
    remedy="drop where the random number is below p; some libraries take the share to keep",
)  # fmt: skip


class ZeroByZero(DropoutAttention):
    """Divides by 1 - p whatever p is."""

    def draw(self, uniform: Array) -> Array:
        """Divide 0 by 0 where p is 1."""
        with np.errstate(all="ignore"):
            return self.kept(uniform) / np.float64(1 - self.rate)


register_layer(
    _layer(ZeroByZero), "dropout-one-nan", 8,
    "dropout 1 gives NaN",
    wrong="0 / (1 - p) at p = 1",
    right="0, and the output is its bias alone",
    visible_when="dropout 1 in training mode",
    remedy="return zeros where p is 1, before 1 - p divides anything",
)  # fmt: skip


class Sticky(Layer):
    """Forgets its dropout in evaluation."""

    def eval(self) -> None:
        """Set dropout to 0 for good."""
        super().eval()
        self.dropout = 0.0


register_layer(
    Sticky, "sticky-eval", 13,
    "dropout stays off after one evaluation",
    wrong="if not self.training: self.dropout_p = 0",
    right="dropout_p = self.dropout_p if self.training else 0",
    visible_when="training, evaluation, and training again",
    remedy="leave the layer's own dropout as it is; choose 0 for the one call",
    sources="NVIDIA/Megatron-LM#411",
)  # fmt: skip


class ScaledByP(DropoutVJP):
    """The backward pass multiplies kept weights by p."""

    def factor(self) -> Array:
        """Return 0 or p."""
        rate = 1 - 1 / self.multiplier.max(initial=1)
        return np.where(self.multiplier > 0, rate if rate > 0 else 1, 0).astype(
            self.multiplier.dtype
        )


class WrongWayBack(Layer):
    """Right forth, and wrong back."""

    backward = ScaledByP


register_layer(
    WrongWayBack, "grad-dropout-scale", 12,
    "the backward pass of dropout multiplies by p, not by 1/(1 - p)",
    wrong="dP = m p (dO V^T), m = 1 where kept",
    right="dP = m/(1 - p) (dO V^T)",
    visible_when="gradients with dropout in training mode; the output is right",
    remedy="keep what the weights were multiplied with, and multiply their gradient with the same",
    sources="NVIDIA/apex#816",
    needs="form=mha gradients=yes",
)  # fmt: skip


class IntegersStay(Layer):
    """Makes its output of the queries' kind."""

    def output(self, query: Array, output: Array) -> Array:
        """Fill an array like the query."""
        buffer = np.zeros_like(query, shape=output.shape)
        buffer[...] = output
        return buffer


register_layer(
    IntegersStay, "int-truncation", 9,
    "the output is cut down to integers where the inputs are integers",
    wrong="out = np.zeros_like(Q); out[...] = P V",
    right="integers become floats at the border, or are refused",
    visible_when="integer queries, keys or values",
    remedy="convert integers to a floating dtype, or refuse them",
    beyond="torch refuses integers, so that a cut-down output is a remark and no failure",
)  # fmt: skip


class Shorter(Layer):
    """Goes as far as the shorter of keys and values."""

    def inputs(self, *given: Array) -> tuple[Array, ...]:
        """Cut keys and values to one length."""
        length = min(given[1].shape[1], given[2].shape[1])
        return super().inputs(given[0], given[1][:, :length], given[2][:, :length])


register_layer(
    Shorter, "kv-length-mismatch", 14,
    "keys and values of different length are taken for one sequence",
    wrong="S taken from the keys alone, or from the shorter",
    right="refuse keys and values of different length",
    visible_when="fewer keys than values, or more",
    remedy="raise an error that names both lengths",
    sources="pytorch/pytorch#193728",
)  # fmt: skip
