"""Family 6: the causal rule; and windows of keys, which go wrong like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array

RIGHT = "query i sees the keys j <= i, counted from the top left"
REMEDY = "hide np.triu(ones((L, S)), k=1)"


class _Ruled(Attention):
    """Another causal rule; ``alone``: only where no other mask is given, and torch's elsewhere."""

    alone = False

    def rule(self) -> Array:
        """Return the rule as (L, S)."""
        raise NotImplementedError

    def causal_mask(self) -> Array | None:
        """Apply the rule where the causal one was asked for."""
        if not self.problem.is_causal:
            return None
        masked = self.problem.key_padding_mask is not None
        return self.future_mask(1) if self.alone and masked else self.rule()


def causal_rule(rule: Callable[[Attention], Array]) -> type[Attention]:
    """Return the attention with this causal rule, (L, S)."""
    return type("Ruled", (_Ruled,), {"rule": rule})


ALONE = ({"alone": True},)


register_bug(
    "causal-bottom-right",
    6,
    "the causal rule is aligned at the bottom right",
    wrong="query i sees keys j <= i + S - L",
    right=RIGHT,
    visible="L unlike S",
    remedy=REMEDY,
    sources="ml-explore/mlx#2835 pytorch/executorch#22426 Dao-AILab/flash-attention#1778 "
    "pytorch/pytorch#108108",
    needs="attn=causal inputs=cross/distinct",
    variants=ALONE,
)(causal_rule(lambda a: a.future_mask(1 + a.problem.key.shape[1] - a.case.queries)))


register_bug(
    "causal-dropped-with-weights",
    6,
    "the causal rule is dropped when weights are asked for",
    wrong="is_causal has no effect with need_weights=True",
    right=RIGHT,
    visible="weights asked for and no other mask",
    remedy="build the causal mask on every path",
    sources="pytorch/pytorch#99282 keras-team/keras#23038",
    needs="attn=causal weights=averaged/per_head",
)(after("causal_mask", lambda a, mask: mask if a.case.weights == "none" else None))


@register_bug(
    "causal-strict",
    6,
    "the causal rule hides the diagonal too",
    wrong="query i sees keys j < i",
    right=RIGHT,
    visible="every row; row 0 sees nothing",
    remedy=REMEDY,
    sources="pbloem/former#10",
    needs="attn=causal",
    variants=(*ALONE, {"fill": -1e9}, {"addend": -1e9}, {"addend": -1e4}),
)
class Strict(_Ruled):
    """One diagonal too many, hidden by -inf, or by a finite number: row 0 sees all keys then."""

    fill: float | None = None
    addend: float | None = None

    def rule(self) -> Array:
        return self.future_mask(0)

    def causal_mask(self) -> Array | None:
        finite = self.fill is not None or self.addend is not None
        return None if finite else super().causal_mask()

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores)
        if not self.problem.is_causal or self.fill is self.addend:
            return masked
        hidden = np.zeros(scores.shape[-2:], dtype=bool)
        own = slice(self.problem.key.shape[1])
        hidden[:, own] = np.isneginf(self.rule())
        if self.addend is not None:
            return masked + np.where(hidden, self.work_dtype.type(self.addend), 0)
        return np.where(hidden, self.work_dtype.type(self.fill), masked)


register_bug(
    "causal-loose",
    6,
    "the causal rule lets each query see one key of the future",
    wrong="query i sees keys j <= i + 1",
    right=RIGHT,
    visible="all rows but the last",
    remedy=REMEDY,
    sources="RVC-Boss/GPT-SoVITS#965",
    needs="attn=causal",
    variants=ALONE,
)(causal_rule(lambda a: a.future_mask(2)))


@register_bug(
    "causal-anti",
    6,
    "the causal rule hides the past and shows the future",
    wrong="query i sees keys j >= i",
    right=RIGHT,
    visible="L > 1 and S > 1",
    remedy=REMEDY,
    sources="tensorflow/text#894",
    needs="attn=causal",
    variants=({"diagonal": 0}, *ALONE),
)
class Anti(_Ruled):
    diagonal = -1

    def rule(self) -> Array:
        shape = (self.case.queries, self.problem.key.shape[1])
        return self.additive(np.tril(np.ones(shape, dtype=bool), k=self.diagonal))


@register_bug(
    "causal-forced",
    6,
    "the causal rule is applied where no mask was given",
    wrong="query i sees keys j <= i though no causal mask is asked for",
    right="without a mask every query sees every key",
    visible="no attn_mask given",
    remedy="apply the causal rule only where is_causal was asked for",
    sources="huggingface/transformers#48172",
    needs="attn=none",
    variants=({"always": True},),
)
class Forced(Attention):
    always = False

    def causal_mask(self) -> Array | None:
        unasked = self.always or self.problem.attn_mask is None
        return self.future_mask(1) if unasked else super().causal_mask()


register_bug(
    "causal-ignored",
    6,
    "the causal rule has no effect",
    wrong="is_causal is accepted and not used",
    right=RIGHT,
    visible="causal cases",
    remedy=REMEDY,
    sources="facebookresearch/xformers#103",
    needs="attn=causal",
    aliases="mask-ignored",
    variants=ALONE,
)(causal_rule(lambda a: a.future_mask(a.case.keys + a.case.queries)))


@register_bug(
    "causal-zero-scores",
    6,
    "future scores are set to 0 in place of -inf",
    wrong="np.tril(scores)",
    right="np.where(tril, scores, -inf)",
    visible="every row but the last",
    remedy="fill the future scores with -inf before the softmax",
    needs="attn=causal",
)
class ZeroScores(Attention):
    def mask_scores(self, scores: Array) -> Array:
        """Set the future to 0 before other masks."""
        past = np.tril(np.ones(scores.shape[-2:], dtype=bool))
        past |= np.arange(scores.shape[-1]) >= self.problem.key.shape[1]
        return super().mask_scores(np.where(past, scores, 0) if self.problem.is_causal else scores)

    def causal_mask(self) -> Array | None:
        return None


@register_bug(
    "last-key-unseen",
    6,
    "the last key is never read",
    wrong="for j in range(S - 1)",
    right="for j in range(S)",
    visible="always where S > 1",
    remedy="read all S keys",
    variants=({"unseen": slice(0, 1)},),
)
class LastKeyUnseen(Attention):
    """One key short, at the end or at the start."""

    unseen = slice(-1, None)

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores).copy()
        keys = self.problem.key.shape[1]
        if keys > 1:
            masked[..., :keys][..., self.unseen] = -np.inf
        return masked


@register_bug(
    "self-unseen",
    6,
    "no token attends to itself",
    wrong="the diagonal of the scores is hidden",
    right="every query sees every key that no mask hides",
    visible="self-attention",
    remedy="do not mask the diagonal",
)
class SelfUnseen(Attention):
    def mask_scores(self, scores: Array) -> Array:
        """Hide the diagonal where some other key is left."""
        masked = super().mask_scores(scores).copy()
        length = min(scores.shape[-2], self.problem.key.shape[1])
        if scores.shape[-1] > 1:
            masked[..., range(length), range(length)] = -np.inf
        return masked
