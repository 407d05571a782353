"""Random initial weights of JAX's layers, drawn by NumPy: JAX compiles each draw for each shape.

A layer is built for each call, and its weights are replaced by those of the problem. That they are
drawn took a third of a run. They stay random numbers of the same distribution, which the key
decides.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where the functions are looked up: by targets, and by JAX's own initialisers.
MODULES = ("jax.random", "jax._src.random")
DTYPES = (np.float32, np.float64)  # others JAX draws: few layers are built in them
ROUNDS = 100  # of draws for what lies beyond limits: of -2 and 2, ten are enough
_LOCK = threading.RLock()  # one thread at a time changes the modules, and puts them back
_building = threading.local()


@contextmanager
def drawn_by_numpy() -> Iterator[None]:
    """Have NumPy draw what JAX is asked for in this thread, outside of traced code."""
    modules = [module for module in map(sys.modules.get, MODULES) if module is not None]
    held = [(each, name, getattr(each, name)) for each in modules for name in _DRAWS]
    with _LOCK:
        for module, name, original in held:
            setattr(module, name, _instead(original, _DRAWS[name]))
        _building.depth = getattr(_building, "depth", 0) + 1
        try:
            yield
        finally:
            _building.depth -= 1
            for module, name, original in held:
                setattr(module, name, original)


def _instead(original: Callable[..., Any], draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws by NumPy; as JAX does of what is traced or unusual.

    What keeps it beyond the context, an import within a constructor, has JAX's draws there.
    """

    @wraps(original)
    def drawn(key: Any, *args: Any, **kwargs: Any) -> Any:
        found = None
        if getattr(_building, "depth", 0):
            try:
                found = _drawn(draw, key, args, kwargs)
            except (TypeError, ValueError, AttributeError):  # JAX refuses them in its own words
                found = None
        return original(key, *args, **kwargs) if found is None else found

    return drawn


def _drawn(draw: Callable[..., Any], key: Any, args: Any, kwargs: Any) -> Any:
    """Return what NumPy draws of one key; None where JAX has to."""
    jax: Any = sys.modules["jax"]
    given = jax.tree_util.tree_leaves((key, args, kwargs))
    if any(isinstance(each, jax.core.Tracer) for each in given):
        return None
    numbers = np.asarray(jax.random.key_data(key))
    if numbers.ndim != 1:  # several keys, which are no key
        return None
    found, dtype = draw(np.random.default_rng(numbers), *args, **kwargs)
    kept = jax.dtypes.canonicalize_dtype(dtype)
    return jax.numpy.asarray(found, kept) if kept in DTYPES else None


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int) else tuple(shape)


def _normal(rng: np.random.Generator, shape: Any = (), dtype: Any = float) -> Any:
    return rng.normal(size=_shape(shape)), dtype


def _uniform(
    rng: np.random.Generator, shape: Any = (), dtype: Any = float, minval: Any = 0, maxval: Any = 1
) -> Any:
    # The upper limit is left out in float32 too: its neighbour stands for what rounds to it.
    low, high = (np.asarray(each, np.float32) for each in (minval, maxval))
    return np.minimum(rng.uniform(low, high, _shape(shape)), np.nextafter(high, low)), dtype


def _truncated_normal(
    rng: np.random.Generator, lower: Any, upper: Any, shape: Any = (), dtype: Any = float
) -> Any:
    if not lower < upper:
        raise ValueError("there is nothing between the limits")
    found = rng.normal(size=_shape(shape))
    for _ in range(ROUNDS):
        beyond = (found < lower) | (found > upper)
        if not beyond.any():
            return found, dtype
        found = np.where(beyond, rng.normal(size=found.shape), found)
    raise ValueError("little lies between the limits")


_DRAWS: dict[str, Callable[..., Any]] = {
    "normal": _normal,
    "uniform": _uniform,
    "truncated_normal": _truncated_normal,
}
