"""Self-attention whose masks are documented in two shapes, of which one layer serves both."""

import torch
from torch import nn


class BothShapes(nn.Module):
    """Multi-head self-attention of (batch, length, width)."""

    axes_of_heads = {2: (slice(None), None, None), 3: (slice(None), None)}

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, attention_mask=None):
        """Return (batch, length, width).

        Args:
            x: (batch, length, width)
            attention_mask: (batch, length) or (batch, length, length), 0 hides

        """
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            mask = attention_mask[self.axes_of_heads.get(attention_mask.ndim, ())]
            scores = scores.masked_fill(mask == 0, -torch.inf)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OneOfBoth(BothShapes):
    """Wrong on purpose: a mask of each query gets no axis of heads, and raises or is another's."""

    axes_of_heads = {2: (slice(None), None, None)}
