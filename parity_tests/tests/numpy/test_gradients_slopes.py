"""Gradients are slopes: the remainder of the first Taylor polynomial is of order 2."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mha_numpy import MultiheadAttention

N, L, S, E, H = 2, 5, 7, 6, 3
INPUTS = ("query", "key", "value", "attn_mask", "key_padding_mask")
PARAMETERS = (
    "q_proj_weight",
    "k_proj_weight",
    "v_proj_weight",
    "in_proj_bias",
    "bias_k",
    "bias_v",
    "out_proj.weight",
    "out_proj.bias",
)
NAMES = INPUTS + PARAMETERS
# |f| is of order 10, so that a rounding of it is 1e-15: far below step^2 = 1e-6.
STEPS = [2.0**-power for power in (9, 10)]
WAYS = [("flash", False), ("flash", True), ("plain", False), ("plain", True)]


class Function:
    """f(all arrays) = sum(G * output) + sum(W * weights) of a layer with everything switched on."""

    def __init__(self, engine: str, need_weights: bool) -> None:
        rng = np.random.default_rng(29)
        self.need_weights = need_weights
        self.layer = MultiheadAttention(
            E,
            H,
            add_bias_kv=True,
            add_zero_attn=True,
            kdim=4,
            vdim=5,
            batch_first=True,
            dtype=np.float64,
            engine=engine,
        )
        shapes = (N, L, E), (N, S, 4), (N, S, 5), (L, S), (N, S)
        drawn = {
            name: rng.standard_normal(shape) for name, shape in zip(INPUTS, shapes, strict=True)
        }
        state = {n: rng.standard_normal(a.shape) for n, a in self.layer.state_dict().items()}
        self.at = drawn | state
        self.of_output = rng.standard_normal((N, L, E))
        self.of_weights = rng.standard_normal((N, L, S + 2)) if need_weights else None
        parts = {name: rng.standard_normal(array.shape) for name, array in self.at.items()}
        self.directions = {name: part / np.linalg.norm(part) for name, part in parts.items()}

    def vjp(self, at: dict[str, Any]) -> tuple[tuple[Any, Any], Any]:
        """Call the layer with these arrays and parameters."""
        self.layer.load_state_dict({name: at[name] for name in PARAMETERS})
        given: Any = {name: at[name] for name in INPUTS}
        return self.layer.vjp(**given, need_weights=self.need_weights)

    def along(self, name: str, step: float) -> float:
        """Return f at `step` times the direction of one array."""
        (output, weights), _ = self.vjp(
            self.at | {name: self.at[name] + step * self.directions[name]}
        )
        total = math.fsum((output * self.of_output).ravel())
        if weights is not None:
            total += math.fsum((weights * self.of_weights).ravel())
        return total

    def gradients(self) -> dict[str, Any]:
        """Return the gradients to be tried."""
        _, pull = self.vjp(self.at)
        found: dict[str, Any] = pull(self.of_output, self.of_weights)
        return found

    def remainders(self, name: str, gradient: Any) -> list[float]:
        """Return |f(x + h d) - f(x) - h <gradient, d>| for both steps."""
        slope = math.fsum((gradient * self.directions[name]).ravel())
        start = self.along(name, 0)
        return [abs(self.along(name, step) - start - step * slope) for step in STEPS]


def order(remainders: list[float]) -> float:
    """Return p where the remainder goes as h^p."""
    first, second = remainders
    return math.log2(first / second)


def is_right(remainders: list[float]) -> bool:
    """Tell a remainder of order 2 from one of order 1.

    The remainder is c h^2 (1 + O(h)), of order 2 within some h; a gradient that is off along the
    direction by e adds e h, which takes over as soon as e > c h. The middle between 1 and 2 parts
    them. Where f is linear in the array, the remainder is rounding alone: some of |f| = 10.
    """
    return max(remainders) < 100 * 10 * 2.0**-52 or order(remainders) > 1.5


@pytest.mark.parametrize(("engine", "need_weights"), WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_remainder_is_of_second_order(name: str, engine: str, need_weights: bool) -> None:
    """For every array that has a gradient the first Taylor polynomial leaves O(h^2)."""
    function = Function(engine, need_weights)
    assert is_right(function.remainders(name, function.gradients()[name]))


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_gradient_leaves_first_order(name: str) -> None:
    """Two per cent more of the gradient and its first number twice: O(h), and the test fails."""
    function = Function("plain", need_weights=False)
    broken = function.gradients()[name] * 1.02
    broken.flat[0] *= 2
    assert not is_right(function.remainders(name, broken))


def test_central_difference() -> None:
    """Once for all: along each direction (f(x + h d) - f(x - h d)) / 2h is the slope.

    It errs by h^2 of the third derivative and by a rounding of |f| over h, both about 1e-9 at
    h = 2^-15; a gradient off by a thousandth is farther off.
    """
    function, step = Function("auto", need_weights=True), 2.0**-15
    for name, gradient in function.gradients().items():
        ahead, behind = (function.along(name, sign * step) for sign in (1, -1))
        slope = (gradient * function.directions[name]).sum()
        assert abs((ahead - behind) / (2 * step) - slope) < 1e-7
        assert abs((ahead - behind) / (2 * step) - 1.001 * slope) > 1e-7
