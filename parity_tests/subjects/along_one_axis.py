"""Layers of (N, L, columns, E), as of frames of joints, that attend along L for each column."""

from __future__ import annotations

from torch import nn

from styles import attend


class AlongFrames(nn.Module):
    """Attends along the frames of (N, frames, joints, E)."""

    frames_last = (0, 2, 3, 1, 4)  # (N, frames, joints, H, D) to (N, joints, H, frames, D)

    def __init__(self, dim, num_heads=8):
        super().__init__()
        self.heads = num_heads
        self.wq, self.wk, self.wv, self.proj = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, rows):
        """Return (N, joints, H, frames, D)."""
        return rows.unflatten(-1, (self.heads, -1)).permute(self.frames_last)

    def forward(self, x):
        """Return (N, frames, joints, E)."""
        q, k, v = (self.split(linear(x)) for linear in (self.wq, self.wk, self.wv))
        return self.proj(attend(q, k, v).permute(0, 3, 1, 2, 4).flatten(3))


class FramesToFrames(AlongFrames):
    """Takes keys of other frames."""

    def forward(self, q, kv):
        """Return (N, frames, joints, E)."""
        rows = self.split(self.wq(q)), self.split(self.wk(kv)), self.split(self.wv(kv))
        return self.proj(attend(*rows).permute(0, 3, 1, 2, 4).flatten(3))


class ScaledByWidth(AlongFrames):
    """Wrong on purpose: divides by the root of the whole width, not of a head's."""

    def split(self, rows):
        """Return (N, joints, H, frames, D), all of them too small."""
        return super().split(rows) * self.heads**-0.25


class MixedJoints(AlongFrames):
    """Wrong on purpose: joins the samples to the joints without moving the axis of these."""

    def split(self, rows):
        """Return (N, joints, H, frames, D), where frames are of several joints."""
        n, frames, joints, width = rows.shape
        moved = rows.reshape(n, joints, frames, self.heads, width // self.heads)
        return moved.transpose(2, 3)
