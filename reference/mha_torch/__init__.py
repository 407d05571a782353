"""The oracle: `torch.nn.MultiheadAttention` pinned to one path, and a second opinion without torch.

Names are loaded on first use, so that `import mha_torch.plain` brings in NumPy alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_torch._forward import multihead_attention
    from mha_torch._gradients import gradients, sdpa_gradients
    from mha_torch._paths import PINNED, Path, PathNotTakenError
    from mha_torch._report import describe
    from mha_torch._row_tails import rows_share_nan
    from mha_torch._sdpa import scaled_dot_product_attention
    from mha_torch.agreement import OraclesDisagreeError, agree, agree_sdpa

_HOME = {
    "PINNED": "_paths",
    "Path": "_paths",
    "OraclesDisagreeError": "agreement",
    "agree": "agreement",
    "agree_sdpa": "agreement",
    "describe": "_report",
    "rows_share_nan": "_row_tails",
    "gradients": "_gradients",
    "sdpa_gradients": "_gradients",
    "PathNotTakenError": "_paths",
    "multihead_attention": "_forward",
    "scaled_dot_product_attention": "_sdpa",
}

__version__ = "0.1.0"
__all__ = [
    "PINNED",
    "OraclesDisagreeError",
    "Path",
    "PathNotTakenError",
    "__version__",
    "agree",
    "agree_sdpa",
    "describe",
    "gradients",
    "multihead_attention",
    "rows_share_nan",
    "scaled_dot_product_attention",
    "sdpa_gradients",
]


def __getattr__(name: str) -> object:
    """Load the module a public name lives in when the name is first asked for."""
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found
