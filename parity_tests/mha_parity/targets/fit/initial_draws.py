"""Random initial weights of JAX's layers, drawn by NumPy: JAX compiles each draw for each shape.

A layer is built for each call, and its weights are replaced by those of the problem. That they are
drawn took a third of a run. They stay random numbers that the key decides, of the same kind.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where the functions are looked up: by targets, and by JAX's own initialisers.
MODULES = ("jax.random", "jax._src.random")


@contextmanager
def drawn_by_numpy() -> Iterator[None]:
    """Have NumPy draw what JAX is asked for outside of traced code."""
    held = [
        (module, name, getattr(module, name))
        for module in map(sys.modules.get, MODULES)
        for name in _DRAWS
        if hasattr(module, name)
    ]
    for module, name, original in held:
        setattr(module, name, _instead(original, _DRAWS[name]))
    try:
        yield
    finally:
        for module, name, original in held:
            setattr(module, name, original)


def _instead(original: Callable[..., Any], draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws by NumPy; as JAX does of what is traced or unusual."""

    def drawn(key: Any, *args: Any, **kwargs: Any) -> Any:
        jax: Any = sys.modules["jax"]
        try:
            given = jax.tree_util.tree_leaves((key, args, kwargs))
            if any(isinstance(each, jax.core.Tracer) for each in given):
                return original(key, *args, **kwargs)
            seed = np.asarray(jax.random.key_data(key)).ravel()
            found, dtype = draw(np.random.default_rng(seed), *args, **kwargs)
            kept = jax.dtypes.canonicalize_dtype(dtype)
            if jax.numpy.issubdtype(kept, jax.numpy.floating):
                return jax.numpy.asarray(found, kept)
        except (TypeError, ValueError, AttributeError):  # it refuses the arguments in its own words
            pass
        return original(key, *args, **kwargs)

    return drawn


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int) else tuple(shape)


def _normal(rng: np.random.Generator, shape: Any = (), dtype: Any = float) -> Any:
    return rng.normal(size=_shape(shape)), dtype


def _uniform(
    rng: np.random.Generator, shape: Any = (), dtype: Any = float, minval: Any = 0, maxval: Any = 1
) -> Any:
    return rng.uniform(np.asarray(minval), np.asarray(maxval), _shape(shape)), dtype


def _truncated_normal(
    rng: np.random.Generator, lower: Any, upper: Any, shape: Any = (), dtype: Any = float
) -> Any:
    return np.clip(rng.normal(size=_shape(shape)), lower, upper), dtype


_DRAWS: dict[str, Callable[..., Any]] = {
    "normal": _normal,
    "uniform": _uniform,
    "truncated_normal": _truncated_normal,
}
