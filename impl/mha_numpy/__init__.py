"""Multi-head attention in NumPy, equal to torch's in names, shapes, masks and numbers.

    layer = MultiheadAttention(embed_dim=12, num_heads=3, batch_first=True)
    output, weights = layer(x, x, x)
    (output, weights), pull = layer.vjp(x, x, x)
    gradients = pull(cotangent)

Importing this loads NumPy and nothing else of weight.
"""

from __future__ import annotations

from mha_numpy._functional import multi_head_attention_forward
from mha_numpy._module import MultiheadAttention
from mha_numpy._sdpa import scaled_dot_product_attention
from mha_numpy._vjp_sdpa import scaled_dot_product_attention_vjp

__version__ = "0.1.0"
__all__ = [
    "MultiheadAttention",
    "__version__",
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_vjp",
]
