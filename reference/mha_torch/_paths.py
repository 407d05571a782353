"""The paths torch can take through one attention, and the one that is pinned as the oracle.

`torch.nn.MultiheadAttention` chooses between several computations by mode, arguments and object
identity, and their answers are not the same (see `mha_torch.trial`). A gold answer therefore has
to say which of them it comes from. This module is free of torch so that names stay cheap.
"""

from __future__ import annotations

from enum import StrEnum


class Path(StrEnum):
    """One way through `torch.nn.MultiheadAttention`; the value is its name on the command line."""

    WEIGHTS = "weights"
    """train(), dropout 0, need_weights=True: bmm, softmax, bmm. The pinned one."""
    NO_WEIGHTS = "no-weights"
    """train(), need_weights=False: `F.scaled_dot_product_attention`, backend chosen by torch."""
    FAST = "fast"
    """eval(), inference mode, need_weights=False, one tensor as q, k, v: the fused C++ operator."""
    EVAL = "eval"
    """eval(), no gradients, need_weights=True: the C++ operator where it applies."""
    SDPA_MATH = "sdpa-math"
    """As NO_WEIGHTS with the composite ("math") backend forced."""
    SDPA_FLASH = "sdpa-flash"
    """As NO_WEIGHTS with the blocked CPU flash kernel forced."""

    @property
    def training(self) -> bool:
        """Whether the module is in train() mode on this path (dropout is 0 either way)."""
        return self not in {Path.FAST, Path.EVAL}

    @property
    def needs_weights(self) -> bool:
        """Whether this path returns the attention weights."""
        return self in {Path.WEIGHTS, Path.EVAL}

    @property
    def sentence(self) -> str:
        """One sentence for reports."""
        return _SENTENCES[self]


PINNED = Path.WEIGHTS

_SENTENCES = {
    Path.WEIGHTS: "train() with dropout 0, need_weights=True, explicit masks",
    Path.NO_WEIGHTS: "train() with dropout 0, need_weights=False (SDPA, backend chosen by torch)",
    Path.FAST: "eval() in inference mode, need_weights=False (fused C++ fast path)",
    Path.EVAL: "eval() without gradients, need_weights=True (fused C++ operator where it applies)",
    Path.SDPA_MATH: "train() with dropout 0, need_weights=False, SDPA math backend",
    Path.SDPA_FLASH: "train() with dropout 0, need_weights=False, SDPA CPU flash backend",
}


class PathNotTakenError(ValueError):
    """The asked-for path cannot compute this problem; the message says why."""
