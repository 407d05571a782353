"""Family 4, first part: the axis of the softmax, its sum and its exponential."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

RIGHT = "softmax over the last axis of (N, H, L, S)"
REMEDY = "softmax over axis=-1 of the (…, L, S) scores: each query's weights sum to 1"


class _OverAxis(Attention):
    """A softmax over some other axis."""

    axis: int | tuple[int, ...] = -1

    def softmax(self, scores: Array) -> Array:
        """Normalise over ``axis``."""
        top = np.max(scores, axis=self.axis, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - top)
        return np.asarray(powers / powers.sum(axis=self.axis, keepdims=True))


@register_bug(
    "softmax-query-axis",
    4,
    "softmax runs over the queries",
    wrong="softmax over the query axis L",
    right=RIGHT,
    visible="unless L = S = 1",
    remedy=REMEDY,
    sources="labmlai/annotated_deep_learning_paper_implementations#146 "
    "nerminnuraydogan/vision-transformer#1 mlpack/mlpack#3969",
)
class OverQueries(_OverAxis):
    axis = -2


@register_bug(
    "softmax-head-axis",
    4,
    "softmax runs over the heads",
    wrong="softmax over axis 1 of (N, H, L, S)",
    right=RIGHT,
    visible="S > 1",
    remedy=REMEDY,
    sources="FudanNLP/fastNLP#254",
)
class SoftmaxOverHeads(_OverAxis):
    """The heads of a cell sum to 1."""

    axis = 1


@register_bug(
    "softmax-batch-axis",
    4,
    "softmax runs over the batch",
    wrong="softmax over axis 0 of (N, H, L, S)",
    right=RIGHT,
    visible="always; with N = 1 all weights are 1",
    remedy=REMEDY,
    sources="PetrochukM/PyTorch-NLP#2",
)
class OverBatch(_OverAxis):
    """The samples of a cell sum to 1."""

    axis = 0


@register_bug(
    "softmax-joint-heads",
    4,
    "one softmax runs over heads and keys together",
    wrong="softmax over the flattened (H, S) block of each query",
    right=RIGHT,
    visible="more than one head: the weights of a head sum to less than 1",
    remedy=REMEDY,
    sources="facebookresearch/detr#247 nntrainer/nntrainer#1602",
    needs="heads=many",
)
class JointHeads(_OverAxis):
    """All heads of a query sum to 1."""

    axis = (1, -1)


@register_bug(
    "softmax-whole-matrix",
    4,
    "one softmax runs over queries and keys together",
    wrong="exp(z) / exp(z).sum() over the whole (L, S) matrix",
    right=RIGHT,
    visible="L > 1: all weights of a head sum to 1",
    remedy=REMEDY,
    variants=({"axis": (0, 1, 2, 3)}, {"axis": (0, 2, 3)}),
)
class WholeMatrix(_OverAxis):
    """The whole matrix sums to 1."""

    axis = (-2, -1)


@register_bug(
    "softmax-missing",
    4,
    "the softmax is left out",
    wrong="weights = scores",
    right="weights = softmax(scores)",
    visible="always",
    remedy="normalise the scores by a softmax over the keys before they meet the values",
    variants=({"over": True},),
)
class Missing(Attention):
    """Scores as weights; hidden keys weigh 0."""

    over = False

    def softmax(self, scores: Array) -> Array:
        weights = np.where(scores == -np.inf, self.work_dtype.type(0), scores)
        return weights / weights.sum(axis=-1, keepdims=True) if self.over else weights


@register_bug(
    "softmax-unnormalised",
    4,
    "the exponentials are not divided by their sum",
    wrong="weights = exp(z - max z)",
    right="weights = exp(z - max z) / sum exp(z - max z)",
    visible="always where S > 1",
    remedy="divide by the sum over the keys",
    variants=({"shifted": False},),
)
class Unnormalised(Attention):
    shifted = True

    def softmax(self, scores: Array) -> Array:
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf) if self.shifted else 0
        return self.exp(scores - top)


@register_bug(
    "softmax-twice",
    4,
    "the softmax is applied twice",
    wrong="softmax(softmax(z))",
    right="softmax(z)",
    visible="S > 1: weights are near uniform, hidden keys get some",
    remedy="apply the softmax once",
)
class Twice(Attention):
    """A softmax of a softmax."""

    def softmax(self, scores: Array) -> Array:
        return super().softmax(super().softmax(scores))


register_bug(
    "softmax-log",
    4,
    "log-softmax is used for the weights",
    wrong="weights = log softmax(z)",
    right="weights = softmax(z)",
    visible="always",
    remedy="use softmax, not log_softmax",
)(after("softmax", lambda _, p: np.log(p)))


@register_bug(
    "softmax-sigmoid",
    4,
    "each weight is a sigmoid of its score",
    wrong="1 / (1 + exp(-z))",
    right="softmax(z)",
    visible="always",
    remedy="use a softmax over the keys",
)
class Sigmoid(Attention):
    """No competition among the keys."""

    def softmax(self, scores: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-scores)))


@register_bug(
    "softmax-add-eps",
    4,
    "a small number is added to the sum of exponentials",
    wrong="exp(z - max z) / (sum + 1e-6)",
    right="exp(z - max z) / sum: the sum is at least 1",
    visible="everywhere, by a part in a million: rows sum to a little less than 1",
    remedy="leave the epsilon out; after subtracting the row maximum the sum is at least 1",
    variants=({"eps": 1e-3}, {"eps": 1e-9}, {"eps": 1e-8}, {"eps": 1e-5}, {"eps": 1e-10}),
)
class AddEps(Attention):
    eps = 1e-6

    def softmax(self, scores: Array) -> Array:
        """Guard against a division by zero that cannot happen."""
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = self.exp(scores - top)
        return np.asarray(
            powers / (powers.sum(axis=-1, keepdims=True) + self.work_dtype.type(self.eps))
        )


@register_bug(
    "softmax-plus-one",
    4,
    "the denominator has one term too many",
    wrong="exp(z) / (1 + sum exp(z))",
    right="exp(z) / sum exp(z)",
    visible="everywhere; it is what add_zero_attn=True computes",
    remedy="leave the 1 out of the denominator (or add_zero_attn out of the options)",
    sources="karpathy/llama2.c#59",
    aliases="zeroattn-always",
)
class PlusOne(Attention):
    def softmax(self, scores: Array) -> Array:
        """Add exp(0), shifted like the rest."""
        top = np.max(scores, axis=-1, keepdims=True, initial=0)
        powers = self.exp(scores - top)
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + self.exp(-top)))


@register_bug(
    "softmax-base2",
    4,
    "powers of 2 are taken in place of powers of e",
    wrong="2^(z - max z)",
    right="e^(z - max z), or 2^((z - max z) log2 e)",
    visible="S > 1: as if the scale were 0.693 of what it should be",
    remedy="multiply the scores by log2(e) before exp2, or use exp",
    aliases="scale-times-ln2",
)
class BaseTwo(Attention):
    def exp(self, x: Array) -> Array:
        """Return 2^x."""
        return np.asarray(np.exp2(x))


@register_bug(
    "exp-approximated",
    4,
    "the exponential is approximated too coarsely",
    wrong="e^x by a polynomial of low degree on the fraction of x log2 e",
    right="e^x to the last digits of the dtype",
    visible="everywhere, by a part in 1e4 or so",
    remedy="use the library's exp, or a polynomial that keeps the digits of the dtype",
    variants=({"degree": 2}, {"degree": 4}, {"degree": 5}, {"degree": 6}),
)
class Approximated(Attention):
    """Range reduction to a power of 2, then a short Taylor series."""

    degree = 3

    def exp(self, x: Array) -> Array:
        """Return 2^round(t) times the series of e^(fraction)."""
        t = np.where(np.isfinite(x), x, 0) * self.work_dtype.type(np.log2(np.e))
        whole = np.round(t)
        fraction = (t - whole) * self.work_dtype.type(np.log(2))
        series = np.ones_like(fraction)
        for power in range(self.degree, 0, -1):
            series = 1 + fraction * series / power
        rough = np.ldexp(series, whole.astype(np.int32))
        return np.where(np.isfinite(x), rough, np.exp(x)).astype(self.work_dtype)


@register_bug(
    "mean-pooling",
    4,
    "the answer is the plain mean of the values",
    wrong="output = mean of v over the visible keys",
    right="output = softmax(scale q k^T) v",
    visible="unless all scores are near 0, as with tiny inputs",
    remedy="use the scores: the weights must depend on q and k",
    variants=({"blind": True},),
)
class MeanPooling(Attention):
    blind = False

    def mask_scores(self, scores: Array) -> Array:
        return scores * 0 if self.blind else super().mask_scores(scores * 0)
