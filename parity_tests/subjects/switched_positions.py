"""Layers with rotary positions that a switch of the constructor turns off."""

from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["OfConfiguration", "Rotates", "RotatesAndScalesByRows"]


def _rotated(rows):
    """Return rows (N, H, L, D) turned by their places, in pairs of channels."""
    half = rows.shape[-1] // 2
    places = torch.arange(rows.shape[-2], dtype=rows.dtype)[:, None]
    angle = places / 100.0 ** torch.linspace(0, 1, half, dtype=rows.dtype)
    first, second, rest = rows[..., :half], rows[..., half : 2 * half], rows[..., 2 * half :]
    turned = (
        first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos(), rest
    )  # fmt: skip
    return torch.cat(turned, dim=-1)


class Rotates(nn.Module):
    """Right without its positions, which it has by default."""

    def __init__(self, embed_dim, num_heads, use_rope=True):
        super().__init__()
        self.num_heads, self.use_rope = num_heads, use_rope
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def scale(self, embed_dim):
        """Return what the scores are multiplied by."""
        return (embed_dim // self.num_heads) ** -0.5

    def forward(self, x):
        """Return (N, L, E)."""
        split = (each.unflatten(-1, (self.num_heads, -1)) for each in self.qkv(x).chunk(3, -1))
        q, k, v = (each.transpose(1, 2) for each in split)
        if self.use_rope:
            q, k = _rotated(q), _rotated(k)
        rows = (q @ k.mT * self.scale(x.shape[-1])).softmax(-1) @ v
        return self.out(rows.transpose(1, 2).flatten(2))


class RotatesAndScalesByRows(Rotates):
    """Wrong without its positions too: the scale is that of the whole width."""

    def scale(self, embed_dim):
        """Return the scale of one head."""
        return embed_dim**-0.5


@dataclass
class Settings:
    """What a layer is built for."""

    hidden_size: int = 64
    num_heads: int = 4
    positions: str = "none"


class OfConfiguration(Rotates):
    """Right with the positions that it has by default, which are none."""

    def __init__(self, config: Settings):
        rotary = config.positions == "rotary"
        super().__init__(config.hidden_size, config.num_heads, use_rope=rotary)
