"""Where a run took place: what a reader needs to see the same again."""

from __future__ import annotations

import platform


def environment() -> dict[str, str]:
    """Return versions, platform and the oracle's circumstances; loads torch."""
    import numpy as np

    import mha_parity
    import mha_torch

    return {
        "mha_parity": mha_parity.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{k: str(v) for k, v in mha_torch.describe().items()},
    }
