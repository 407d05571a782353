"""What the tests of the NumPy attention share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info

from mha_numpy.engines import threads as pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Heads = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


@pytest.fixture(autouse=True)
def restored_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the process's number of threads as it was."""
    monkeypatch.setattr(pool, "_chosen", pool._chosen)


@pytest.fixture(scope="session")
def flash_problem() -> Callable[..., Heads]:
    """Return a function that draws q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv).

    ``sizes`` are N, Hkv, H / Hkv, L, S, D and Dv.
    """

    def drawn(
        seed: int, dtype: Any = np.float32, sizes: tuple[int, ...] = (3, 2, 2, 29, 37, 7, 5)
    ) -> Heads:
        n, kv_heads, group, queries, keys, width, value_width = sizes
        rng = np.random.default_rng(seed)
        shapes = [
            (n, kv_heads * group, queries, width),
            (n, kv_heads, keys, width),
            (n, kv_heads, keys, value_width),
        ]
        q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        return q, k, v

    return drawn


def _blas_threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@pytest.fixture
def blas_threads() -> Iterator[Callable[[], list[int]]]:
    """Give BLAS two threads, so that a limit to one shows; return what tells those of each BLAS."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    before = [(library, library.num_threads) for library in libraries]
    for library, _ in before:
        library.set_num_threads(2)
    yield _blas_threads
    for library, threads in before:
        library.set_num_threads(threads)
