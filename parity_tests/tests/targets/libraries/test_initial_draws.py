"""Initial weights of JAX's layers are drawn by NumPy, without a program for each shape.

The library is installed by ``make test-frameworks`` alone; elsewhere these tests are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from mha_parity.targets.layers.initial_draws import drawn_by_numpy

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        find_spec("jax") is None, reason="jax is not installed; make test-frameworks does"
    ),
]

DRAWS: dict[str, tuple[Any, ...]] = {
    "normal": ((7, 5), "float32"),
    "uniform": ((7, 5), "float32", -3.0, -2.0),
    "truncated_normal": (-0.5, 0.5, (7, 5), "float32"),
}


def drawn(name: str, seed: int) -> Any:
    """Return what a function draws within the context."""
    import jax

    key = jax.random.PRNGKey(seed)
    with drawn_by_numpy():
        return getattr(jax.random, name)(key, *DRAWS[name])


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_the_key(name: str) -> None:
    """Arrays of JAX's of the shape and dtype, the same of the same key, others of another.

    Kills the draw by JAX itself, which no seed of NumPy's gives.
    """
    import jax

    first, again, other = (drawn(name, seed) for seed in (3, 3, 4))
    assert isinstance(first, jax.Array)
    assert ((7, 5), np.float32) == (first.shape, first.dtype)
    np.testing.assert_array_equal(first, again)
    assert (first != other).all() or name == "truncated_normal"
    own = getattr(jax.random, name)(jax.random.PRNGKey(3), *DRAWS[name])
    assert not np.array_equal(first, own)


def test_limits_are_kept() -> None:
    """A uniform draw lies in its range, and none of a truncated one on its limits.

    Kills the default range, and limits that what lies beyond is set to.
    """
    assert ((-3 <= drawn("uniform", 1)) & (drawn("uniform", 1) < -2)).all()
    assert 0.5 > np.abs(drawn("truncated_normal", 1)).max()


def test_several_keys_are_refused_by_jax() -> None:
    """They are no key. Kills a seed of all their numbers."""
    import jax

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    with drawn_by_numpy(), pytest.raises(ValueError, match="single key"):
        jax.random.normal(keys, (2, 3))


def test_what_is_kept_beyond_the_context_draws_as_jax() -> None:
    """A constructor may import a function by its name. Kills the stand-in that stays one."""
    import jax

    with drawn_by_numpy():
        kept = jax.random.normal
    key = jax.random.PRNGKey(0)
    np.testing.assert_array_equal(jax.random.normal(key, (3,)), kept(key, (3,)))


def test_what_is_traced_is_drawn_by_jax_and_all_is_put_back() -> None:
    """A program has its own draws; behind the context every draw is JAX's. Kills what stays."""
    import jax

    def layer(key: Any) -> Any:
        return jax.random.normal(key, (3,))

    key = jax.random.PRNGKey(0)
    expected = layer(key)
    with drawn_by_numpy():
        np.testing.assert_array_equal(expected, jax.jit(layer)(key))
    np.testing.assert_array_equal(expected, layer(key))


def test_unusual_arguments_are_left_to_jax() -> None:
    """What it refuses is refused in its words."""
    import jax

    with drawn_by_numpy(), pytest.raises(ValueError, match=r"dtype|float|shape"):
        jax.random.normal(jax.random.PRNGKey(0), (2, 3), "int32")
