"""Sentences of the report about the oracle."""

from __future__ import annotations

import numpy as np
import torch

from mha_torch._paths import PINNED, Path


def describe(path: Path = PINNED) -> dict[str, str]:
    """Return the oracle's circumstances: versions, threads, and the path in one sentence."""
    extended = np.finfo(np.longdouble)
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "path": str(path),
        "oracle_path": f"torch.nn.MultiheadAttention, {path.sentence}, float64",
        "second_oracle": f"plain NumPy, long double of {extended.nmant + 1} bits",
    }
