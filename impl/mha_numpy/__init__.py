"""Multi-head attention in NumPy, equal to torch's in names, shapes, masks and numbers.

    layer = MultiheadAttention(embed_dim=12, num_heads=3, batch_first=True)
    output, weights = layer(x, x, x)
    (output, weights), pull = layer.vjp(x, x, x)
    gradients = pull(cotangent)

`textbook`, `costs` and `plot` are loaded when they are first asked for: importing this
loads NumPy and nothing else of weight.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mha_numpy.engines.threads import get_num_threads, set_num_threads
from mha_numpy.functional import multi_head_attention_forward
from mha_numpy.grad.sdpa import scaled_dot_product_attention_vjp
from mha_numpy.module import MultiheadAttention
from mha_numpy.sdpa import scaled_dot_product_attention

if TYPE_CHECKING:
    from types import ModuleType

    from mha_numpy import costs, plot, textbook

__version__ = "0.1.0"
__all__ = [
    "MultiheadAttention",
    "__version__",
    "costs",
    "get_num_threads",
    "multi_head_attention_forward",
    "plot",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_vjp",
    "set_num_threads",
    "textbook",
]


def __getattr__(name: str) -> ModuleType:
    """Load one of the modules that `__all__` names."""
    if name in __all__:
        return import_module(f"mha_numpy.{name}")
    raise AttributeError(f"module `mha_numpy` has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return list(__all__)
