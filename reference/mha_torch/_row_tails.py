"""Whether a NaN reaches the row above it in torch's matrix product, on this processor and dtype.

oneDNN's bfloat16 kernel for AMX tiles pads the terms of a product to a multiple of 32 with zeros in
the second factor alone, and reads on past the end of each row of the first: 0 times the finite
numbers there is 0, 0 times NaN is NaN (uxlfoundation/oneDNN#5717; mended by oneDNN#5723, which
torch 2.13 does not have yet).
"""

from __future__ import annotations

from functools import cache

import torch

TILE = 32  # bfloat16 columns of an AMX tile
ROWS, TERMS = 128, TILE + 1  # several tiles of 16 rows for each thread; one term past a tile


@cache
def rows_share_nan(dtype: str) -> bool:
    """Return whether a product in this dtype lets a NaN into the row that is stored before it."""
    rows = torch.zeros(ROWS, TERMS, dtype=getattr(torch, dtype))
    rows[1::2] = torch.nan
    product = rows @ torch.ones(TERMS, TILE, dtype=rows.dtype)
    return bool(product[::2].isnan().any())
