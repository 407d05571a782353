"""How many threads BLAS has: held where the pool has the cores, given back after."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from numpy.typing import NDArray

from mha_numpy import MultiheadAttention, attention, projections, scaled_dot_product_attention
from mha_numpy.engines import threads as pool
from mha_numpy.engines.threads import (
    BLAS_SPREADS_FROM,
    SHARED_FROM,
    holding_blas,
    limit_blas_threads,
    product,
    set_num_threads,
    single_threaded_blas,
)
from mha_numpy.grad import layer as layer_vjp
from mha_numpy.softmax import row_sums


def test_large_products_go_to_the_pool_where_blas_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere they are BLAS's, and those of a few million multiplications are done on one."""
    cut: list[int] = []

    def spread(left: NDArray[Any], *_: Any) -> NDArray[Any]:
        cut.append(len(left))
        return left

    monkeypatch.setattr(pool, "spread_product", spread)
    set_num_threads(2)
    weight = np.ones((260, 260), np.float32)
    rows = [np.ones((length, 260), np.float32) for length in (100, 300)]
    for x in rows:
        product(x, weight, None)
    with limit_blas_threads("plain"):
        product(rows[1], weight, None)
    with limit_blas_threads("flash"):
        for x in rows:
            product(x, weight, None)
        set_num_threads(1)
        product(rows[1], weight, None)
    assert [300] == cut


@pytest.mark.parametrize("engine", ["plain", "flash"])
def test_a_layer_holds_blas_where_the_pool_has_the_cores(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first product of a call by flash to the last; a call by the plain engine: never."""
    seen: list[bool] = []

    def noted(left: NDArray[Any], right: NDArray[Any], bias: Any) -> NDArray[Any]:
        seen.append(single_threaded_blas.held)
        return product(left, right, bias)

    for module in (projections, layer_vjp):
        monkeypatch.setattr(module, "product", noted)
    layer = MultiheadAttention(34, 2, batch_first=True, engine=engine)
    x = np.ones((2, 61, 34), np.float32)
    output, _ = layer(x, x, x)
    _, pull = layer.vjp(x, x, x)
    pull(output)
    assert [engine == "flash"] * 10 == seen
    assert not single_threaded_blas.held


@pytest.mark.parametrize(
    ("multiplications", "threads", "count"),
    [
        (BLAS_SPREADS_FROM, 2, 2),
        (BLAS_SPREADS_FROM + 1, 2, 1),
        (SHARED_FROM - 1, 2, 1),
        (SHARED_FROM, 2, 2),
        (SHARED_FROM, 1, 1),
    ],
)
def test_blas_is_held_where_a_second_thread_does_not_pay(
    multiplications: int, threads: int, count: int, blas_threads: Callable[[], list[int]]
) -> None:
    """Small products it does on one thread anyway, and asking it costs two microseconds."""
    set_num_threads(threads)
    with holding_blas(multiplications):
        assert {count} == set(blas_threads())
    assert {2} == set(blas_threads())


def test_attention_on_one_thread_holds_blas(
    monkeypatch: pytest.MonkeyPatch, blas_threads: Callable[[], list[int]]
) -> None:
    """Heads of some hundred thousand multiplications each are faster on one thread."""
    seen: list[set[int]] = []

    def noted(*arguments: Any, **options: Any) -> NDArray[Any]:
        seen.append(set(blas_threads()))
        return row_sums(*arguments, **options)

    monkeypatch.setattr(attention, "row_sums", noted)
    layer = MultiheadAttention(34, 2, batch_first=True, engine="plain")
    q = np.ones((61, 34), np.float32)
    for keys in (7, 311):
        k = np.ones((keys, 34), np.float32)
        scaled_dot_product_attention(q, k, k, engine="plain")
    layer(q, k, k)
    assert [{2}, {1}, {1}] == seen


def test_blas_has_one_thread_inside_and_its_own_after(
    blas_threads: Callable[[], list[int]],
) -> None:
    """The limit nests, and only the last to leave lifts it, also when an error passes."""
    with single_threaded_blas:
        with pytest.raises(KeyError), single_threaded_blas:
            raise KeyError
        assert {1} == set(blas_threads())
    assert {2} == set(blas_threads())


def test_a_limit_that_is_set_later_stays(blas_threads: Callable[[], list[int]]) -> None:
    """What a call lifted is not lifted once more in a child, over the user's own limit."""
    with single_threaded_blas:
        pass
    with threadpoolctl.threadpool_limits(1):
        single_threaded_blas.lift()
        assert {1} == set(blas_threads())


def test_the_limit_is_set_and_lifted_from_any_thread(blas_threads: Callable[[], list[int]]) -> None:
    """The first in sets the limit and the last out lifts it, each on a thread of its own."""
    entered, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with single_threaded_blas:
            entered.set()
            may_leave.wait()

    first = threading.Thread(target=other)
    first.start()
    entered.wait()
    seen = [set(blas_threads())]
    with single_threaded_blas:
        may_leave.set()
        first.join()
        seen.append(set(blas_threads()))
    assert [{1}, {1}, {2}] == [*seen, set(blas_threads())]


def test_threadpoolctl_has_the_name_that_sets_a_limit_on_any_thread() -> None:
    """From 3.8 on its public setter does nothing on some threads; the private one is there."""
    version = tuple(map(int, threadpoolctl.__version__.split(".")[:2]))
    controller = threadpoolctl.ThreadpoolController().select(internal_api="openblas")
    if version < (3, 8):
        return  # the public setter sets it on any thread
    for library in controller.lib_controllers:
        assert hasattr(library, "_real_set_num_threads"), (
            f"threadpoolctl {threadpoolctl.__version__} has no `_real_set_num_threads`, but a "
            "limit of one thread is lifted by it on another; see what its OpenBLASController has, "
            "name that in `mha_numpy.engines.threads._limit`, or bound the dependency below it."
        )
