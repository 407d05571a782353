"""A bug in what no case asks for: a width that torch refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.catalogue.plain_attention import Attention
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


@register_bug(
    "heads-not-dividing",
    14,
    "the last channels are dropped where the heads do not divide the width",
    wrong="D = E // H, the last E mod H channels unread",
    right="refuse an embed_dim that num_heads does not divide",
    visible="embed_dim not divisible by num_heads",
    remedy="raise an error that names both numbers",
    sources="Unity-Technologies/ml-agents#4840",
    beyond=(
        "no case has such a width, which torch refuses: the loops of textbooks cut it silently, so "
        "that an answer there tells no wrong attention from a right one"
    ),
)
class HeadsNotDividing(Attention):
    """Splits what can be split."""

    def split(self, x: Array, heads: int) -> Array:
        return super().split(x[..., : x.shape[-1] // heads * heads], heads)
