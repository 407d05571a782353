"""Where a run took place: what a reader needs to see the same again."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def environment(oracle: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return versions, platform and the oracle's circumstances; loads torch unless they are given.

    ``oracle`` is what an earlier call returned, where the answers were recorded.
    """
    import numpy as np

    import mha_parity
    import mha_torch

    own = ("mha_parity", "numpy", "python", "platform")
    described = mha_torch.describe() if oracle is None else oracle

    return {
        "mha_parity": mha_parity.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{k: str(v) for k, v in described.items() if k not in own},
    }
