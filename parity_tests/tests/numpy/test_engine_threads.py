"""Threads change the time of a result and nothing else; BLAS gets its own back afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy.engines import threads as pool
from mha_numpy.engines.blocks import scratch
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.threads import (
    cut_product,
    get_num_threads,
    on_all_threads,
    product,
    run_pieces,
    set_num_threads,
    spread_product,
    this_thread,
)
from mha_numpy.engines.tiles import Tiles
from mha_numpy.masks import Masking


def flash_heads(*arrays: Any, threads: int, **options: Any) -> NDArray[Any]:
    """Return the heads that flash computes on a number of threads."""
    set_num_threads(threads)
    return attend_flash(*arrays, **options)[0]


def heads(seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return q, k, v (2, 3, 41, 7)."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((2, 3, 41, 7)).astype(np.float32) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_attention_does_not_depend_on_threads(threads: int) -> None:
    """Any number of threads gives the same bits, with a row in it that needs the maximum too."""
    q, k, v = heads(3)
    q[1, 1, 17] *= 100
    masking = Masking(causal=True)
    expected = flash_heads(q, k, v, masking, threads=1, tiles=Tiles(7, 11))
    actual = flash_heads(q, k, v, masking, threads=threads, tiles=Tiles(7, 11))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("rows", [3, 8, 130, 1100])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_products_are_right_on_any_number_of_threads(rows: int, threads: int) -> None:
    """Each piece of a projection is that of the exact product, up to its own roundings."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 97)).astype(np.float32)
    weight = rng.standard_normal((389, 97)).astype(np.float32)
    bias = rng.standard_normal(389).astype(np.float32)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
    allowed = 99 * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(weight.T) + np.abs(bias))
    set_num_threads(threads)
    assert (np.abs(spread_product(x, weight, bias) - exact) <= allowed).all()
    assert (np.abs(product(x, weight, bias) - exact) <= allowed).all()


def test_a_helper_that_comes_late_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller does all pieces while the only helper of the pool is busy elsewhere."""
    working, may_end = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr(pool, "_helpers", lambda: busy)

        def hold() -> None:
            working.set()
            may_end.wait(60)

        busy.submit(hold)
        working.wait(60)
        done: list[int] = []
        try:
            run_pieces(done.append, 3, 2)
        finally:
            may_end.set()
    assert [0, 1, 2] == done


def test_a_piece_that_a_helper_has_is_waited_for() -> None:
    """A job ends with its last piece, whichever thread has it."""
    started, caller_is_done = threading.Barrier(2, timeout=60), threading.Event()
    done: list[bool] = []

    def work(_: int) -> None:
        started.wait()
        is_caller = threading.current_thread() is threading.main_thread()
        assert is_caller or caller_is_done.wait(60)
        done.append(is_caller)
        if is_caller:
            caller_is_done.set()

    run_pieces(work, 2, 2)
    assert [True, False] == done


def test_an_exception_waits_for_the_pieces_of_all_helpers() -> None:
    """One helper raises while another writes: the job ends when both are done, and raises."""
    started, raised = threading.Barrier(3, timeout=60), threading.Event()
    order, done = iter(range(2)), []

    def work(_: int) -> None:
        started.wait()
        if threading.current_thread() is threading.main_thread():
            return
        if next(order) == 0:
            raised.set()
            raise ArithmeticError
        assert raised.wait(60)
        time.sleep(0.05)
        done.append(True)

    with pytest.raises(ArithmeticError):
        run_pieces(work, 3, 3)
    assert [True] == done


@pytest.mark.parametrize("rows", [1, 7, 50, 51, 128, 129])
@pytest.mark.parametrize("biased", [True, False])
def test_few_rows_are_multiplied_from_the_other_side(rows: int, biased: bool) -> None:
    """The transpose of weight @ x.T is x @ weight.T + bias up to the order of sums."""
    rng = np.random.default_rng(rows)
    x, weight = rng.standard_normal((rows, 19)), rng.standard_normal((1035, 19))
    bias = rng.standard_normal(1035) if biased else None
    found = product(x, weight, bias)
    from_the_weight = 51 <= rows <= pool.FEW_ROWS  # 51 * 1035 * 19 are above a million
    assert from_the_weight == (found.flags.f_contiguous and rows > 1)
    sizes = np.abs(x) @ np.abs(weight.T) + (0 if bias is None else np.abs(bias))
    other = x @ weight.T + (0 if bias is None else bias)
    assert (np.abs(other - found) <= 2 * 20 * np.finfo(np.float64).eps * sizes).all()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only where affinities exist")
def test_a_job_leaves_the_affinity_alone() -> None:
    """Helpers may run wherever the caller may, and so may the caller afterwards."""
    before = os.sched_getaffinity(0)
    run_pieces(lambda _: time.sleep(0.001), 4, 2)
    helpers = [each for each in threading.enumerate() if each.name.startswith("mha_numpy")]
    assert helpers
    for helper in helpers:
        assert helper.native_id is not None
        assert before == os.sched_getaffinity(helper.native_id) == os.sched_getaffinity(0)


def test_numpys_buffer_and_error_state_are_the_callers_afterwards() -> None:
    """A job shortens the buffer and silences NumPy on its threads alone, also where it fails."""
    before, inside = (np.getbufsize(), np.geterr()), []

    def fail(_: int) -> None:
        inside.append(np.getbufsize())
        raise ValueError

    set_num_threads(2)
    with pytest.raises(ValueError):  # noqa: PT011 (raised above)
        on_all_threads(fail, 2)
    assert {pool.BUFFER} == set(inside)
    assert before == (np.getbufsize(), np.geterr())


def test_helpers_sleep_between_jobs() -> None:
    """After a job the helpers use no processor time."""
    run_pieces(lambda _: None, 4, 3)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05


@pytest.mark.parametrize("sizes", [(1, 1), (3, 389), (130, 1536), (1100, 512)])
@pytest.mark.parametrize("pieces", [1, 2, 3, 8])
def test_pieces_cover_a_product_once(sizes: tuple[int, int], pieces: int) -> None:
    """The cut of a product is a partition into no more pieces than were asked for."""
    times = np.zeros(sizes, int)
    found = cut_product(*sizes, pieces)
    for piece in found:
        times[piece] += 1
    assert (times == 1).all()
    assert len(found) <= pieces
    assert len(found) == pieces or sizes != (1100, 512)


def test_callers_on_two_threads_get_their_own_results(
    blas_threads: Callable[[], list[int]],
) -> None:
    """Two threads that call at once each get their own bits, and BLAS its threads back."""
    problems = [heads(seed) for seed in (5, 7)]
    cut = Tiles(5, 9)
    expected = [flash_heads(q, k, v, threads=1, tiles=cut) for q, k, v in problems]
    wrong: list[int] = []

    def call(which: int) -> None:
        for _ in range(20):
            q, k, v = problems[which]
            actual = flash_heads(q, k, v, threads=3, tiles=cut)
            if not np.array_equal(expected[which], actual):
                wrong.append(which)

    callers = [threading.Thread(target=call, args=(which,)) for which in (0, 1)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [] == wrong
    assert {2} == set(blas_threads())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_piece_is_done_once(threads: int) -> None:
    """No piece is left out or done twice, whatever the number of threads."""
    done: list[int] = []
    run_pieces(done.append, 100, threads)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_piece_reaches_the_caller(threads: int) -> None:
    """The first exception is raised where the job was given, and the pool goes on working."""

    def fail(piece: int) -> None:
        if piece == 7:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_pieces(fail, 20, threads)
    test_every_piece_is_done_once(threads)


def test_setting_the_number_of_threads() -> None:
    """The number set is the number returned; less than one and half of one are refused."""
    set_num_threads(5)
    assert 5 == get_num_threads()
    with pytest.raises(ValueError, match=r"`threads` is 0, but should be at least 1"):
        set_num_threads(0)
    with pytest.raises(TypeError, match=r"`threads` is 2\.5, but should be an integer"):
        set_num_threads(2.5)  # type: ignore[arg-type]
    assert 5 == get_num_threads()


@pytest.mark.parametrize(
    ("value", "answer"), [("3", "3"), ("none", "ValueError"), ("0", "ValueError")]
)
def test_environment_names_the_number_of_threads(value: str, answer: str) -> None:
    """MHA_NUMPY_THREADS sets the default; what is no number from 1 up is refused by name."""
    code = "from mha_numpy.engines.threads import get_num_threads; print(get_num_threads())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MHA_NUMPY_THREADS": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer in done.stdout + done.stderr


@pytest.mark.parametrize("pool_exists", [True, False])
def test_a_call_at_the_end_of_the_interpreter_is_computed(pool_exists: bool) -> None:
    """An `atexit` function may call, when no thread can be started any more."""
    code = f"""
import atexit
import numpy as np
from mha_numpy import scaled_dot_product_attention, set_num_threads
set_num_threads(2)
q = np.random.default_rng(0).standard_normal((1, 8, 600, 8), dtype=np.float32)
atexit.register(lambda: print(scaled_dot_product_attention(q, q, q, engine="flash").shape))
if {pool_exists}:
    scaled_dot_product_attention(q, q, q, engine="flash")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("(1, 8, 600, 8)\n", "") == (done.stdout, done.stderr)


def test_no_job_is_left_behind() -> None:
    """Kills a count that a job leaves: every later call would run on one thread."""

    def fails(_: int) -> None:
        raise KeyError("a piece")

    run_pieces(lambda _: None, 2, 2)
    with pytest.raises(KeyError):
        run_pieces(fails, 2, 1)
    assert 0 == this_thread.jobs


def test_a_piece_that_is_queued_without_a_thread_is_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the system starts no thread, and the interpreter does not end, that is raised."""

    class Refusing:
        def submit(self, _: object) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pool, "_helpers", Refusing)
    with pytest.raises(RuntimeError, match="start new thread"):
        run_pieces(lambda _: None, 2, 2)


def test_a_call_within_a_piece_has_memory_of_its_own() -> None:
    """A signal's handler may call in the middle of a piece, whose scratch memory it leaves."""
    kept = []

    def piece(_: int) -> None:
        numbers = scratch((4,), np.float32, "a piece's")
        numbers[...] = 1
        run_pieces(lambda _: scratch((4,), np.float32, "a piece's").fill(2), 1, 1)
        kept.append(numbers.copy())

    run_pieces(piece, 1, 1)
    np.testing.assert_array_equal(kept, np.ones((1, 4)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    """A child forked after the pool had threads starts its own, and computes the same bits."""
    q, k, v = heads(11)
    expected = flash_heads(q, k, v, threads=3, tiles=Tiles(7, 11))
    child = os.fork()
    if not child:
        actual = flash_heads(q, k, v, threads=3, tiles=Tiles(7, 11))
        os._exit(0 if np.array_equal(actual, expected) else 1)
    assert 0 == os.waitpid(child, 0)[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_within_a_call_has_the_threads_of_blas_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parent's call ends in the parent alone: its limit would stay in the child for good."""
    library = LibraryOfThreads()
    monkeypatch.setattr(pool, "_blas_libraries", lambda: [(library, 2)])
    with pool.single_threaded_blas:
        assert 1 == library.num_threads
        child = os.fork()
        if not child:
            with pool.single_threaded_blas:
                held = library.num_threads
            os._exit(0 if (held, library.num_threads) == (1, 2) else 1)
    assert 0 == os.waitpid(child, 0)[1]
    assert 2 == library.num_threads


class LibraryOfThreads:
    """A BLAS of two threads, as threadpoolctl hands it out."""

    num_threads = 2

    def set_num_threads(self, threads: int) -> None:
        """Keep the number."""
        self.num_threads = threads
