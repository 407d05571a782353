"""Where a run took place, and which libraries that it may need are installed."""

from __future__ import annotations

import platform
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


TORCH = "torch"  # the library and the extra that brings it
# By these versions answers, and what is allowed, may differ: one verdict has one of each.
VERSIONS = ("mha_parity", TORCH, "numpy")


def installed(module: str) -> bool:
    """Return whether a module can be imported, without doing so."""
    return find_spec(module) is not None


def require_extra(module: str, extra: str) -> None:
    """Say in one sentence which extra a missing module belongs to.

    Raises
    ------
    UsageError
        The module is not installed.

    """
    if not installed(module):
        raise UsageError(
            f"{module} is not installed, but this needs it; pip install 'mha-parity[{extra}]'."
        )


def cpu() -> str:
    """Return the processor's name, as far as the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.machine()


def environment(oracle: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return versions, platform and the oracle's circumstances; loads torch unless they are given.

    ``oracle`` is what an earlier call returned, where the answers were recorded. Nothing is said of
    a torch that is not installed.
    """
    import numpy as np

    import mha_parity
    import mha_torch

    own = ("mha_parity", "numpy", "python", "platform")
    if oracle is None:
        oracle = mha_torch.describe() if installed(TORCH) else {}

    return {
        "mha_parity": mha_parity.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{k: str(v) for k, v in oracle.items() if k not in own},
    }
