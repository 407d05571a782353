"""How a new layer's parameters are drawn: torch's own distributions, from a NumPy generator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def initial_parameter(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator
) -> NDArray[Any]:
    """Draw one parameter as torch does: zero biases, normal bias_k and bias_v, uniform weights.

    Weights of the input projections are U(-a, a) with a = sqrt(6 / (rows + columns)), taken over
    the packed matrix where it is packed (Xavier, so that its bound is smaller than that of three
    separate ones); the output projection has a = 1 / sqrt(E), as every nn.Linear; bias_k and
    bias_v are N(0, 1 / E).
    """
    if name in {"in_proj_bias", "out_proj.bias"}:
        return np.zeros(shape, dtype)
    if name in {"bias_k", "bias_v"}:
        drawn = rng.normal(0, 1 / math.sqrt(shape[-1]), shape)
    elif name == "out_proj.weight":
        drawn = _uniform(rng, 1 / math.sqrt(shape[-1]), shape)
    else:
        drawn = _uniform(rng, math.sqrt(6 / sum(shape)), shape)
    return drawn.astype(dtype)


def _uniform(rng: np.random.Generator, bound: float, shape: tuple[int, ...]) -> NDArray[Any]:
    return rng.uniform(-bound, bound, shape)
