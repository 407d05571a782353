"""Threads of a call: BLAS's own, or one pool of ours with BLAS held to one.

Where attention is a small part, products are left to BLAS's threads, as everywhere in NumPy; what
lies between OpenBLAS's own limit and a job worth a second thread is done on one. Tiles of long
sequences go to the pool: NumPy releases the interpreter lock inside products and elementwise
functions, so plain threads run them side by side. BLAS must not start threads of its own then: they
would fight for the cores, and OpenBLAS's go on spinning for some 26 ms after a product.
"""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.engines.tiles import even_length, slices

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor
    from contextlib import AbstractContextManager

    from threadpoolctl import LibController

    from mha_numpy.dtypes import Array


class _SingleThreadedBlas:
    """Context in which BLAS uses one thread: counted, so that calls may nest and overlap.

    The limit is the process's: the first in sets it, the last out puts back what it was. Other
    threads' products run on one thread meanwhile.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start as if no thread was inside."""
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[tuple[LibController, int]] = []

    def lift(self) -> None:
        """Put back what BLAS had, once: what is set after that is the caller's."""
        before, self._before = self._before, []
        for library, threads in before:
            _limit(library, threads)

    @property
    def held(self) -> bool:
        """Whether a thread is inside: what is large then goes to the pool."""
        return self._inside > 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                found = [(library, library.num_threads) for library, _ in _blas_libraries()]
                self._before = [(library, threads) for library, threads in found if threads > 1]
                for library, _ in self._before:
                    _limit(library, 1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self.lift()


BLAS_SPREADS_FROM = 262_144
"""OpenBLAS takes a second thread for a product of more multiplications than this."""
SHARED_FROM = 16_000_000
"""Multiplications from which a second thread saves more than waking it costs, some 50 µs."""

LEAST_SIDE = 128
"""A piece of a product has that many rows and columns at least."""
BUFFER = 256
"""Numbers that NumPy buffers. From 2.3 on it copies rows that are shorter than its buffer into it
where an operand is broadcast: a tile times a column then takes 1.5 to 2 times as long."""
FEW_ROWS, MANY_MULTIPLICATIONS = 128, 1_000_000
"""Up to which rows, and from which size, a product is computed from the weight's side."""
LARGE_RESULT, QUICK_KERNEL = 1200, 1_000_000
"""OpenBLAS's quick kernels do up to QUICK_KERNEL multiplications, on one thread. For results of
more numbers than LARGE_RESULT they need the left operand by columns: 0.5 to 0.8 of the time,
copied."""


class _ThisThread(threading.local):
    """How many jobs a thread works on pieces of, one inside another, and its scratch memory."""

    def __init__(self) -> None:
        self.jobs = 0
        self.scratch: dict[Any, Array] = {}


_FREE: AbstractContextManager[None] = nullcontext()
single_threaded_blas = _SingleThreadedBlas()
this_thread = _ThisThread()
_chosen: int | None = None


def run_pieces(work: Callable[[int], object], pieces: int, threads: int) -> None:
    """Call `work` with 0 ... pieces - 1, each once, in any order, on at most `threads` threads.

    The caller's thread is one of them; helpers that come late are sent away. An exception ends the
    part of the thread it comes from, and is raised here.
    """
    left: SimpleQueue[int | None] = SimpleQueue()
    for piece in (*range(pieces), *[None] * threads):  # None ends the part of a thread
        left.put(piece)

    def take_part() -> None:
        this_thread.jobs += 1
        try:
            for piece in iter(left.get, None):
                work(piece)
        finally:
            this_thread.jobs -= 1

    helpers: list[Future[None]] = []
    try:
        try:
            helpers.extend(_helpers().submit(take_part) for _ in range(min(threads, pieces) - 1))
        except RuntimeError:  # no thread starts once the interpreter ends
            if threading.main_thread().is_alive():
                raise
        take_part()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        for helper in begun:
            helper.exception()  # waits: nothing goes on writing once this has ended
    for helper in begun:
        helper.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return the process's pool: threads that are started as they are needed, and sleep."""
    from concurrent.futures import ThreadPoolExecutor  # loads logging: nothing at import

    return ThreadPoolExecutor(max(os.cpu_count() or 1, get_num_threads()), "mha_numpy")


def on_all_threads(work: Callable[[int], None], pieces: int) -> None:
    """Call `work` with 0 ... pieces - 1 on the pool, BLAS held to one thread, NumPy silent."""

    def quietly(index: int) -> None:
        with np.errstate(all="ignore"):  # the caller's state does not reach other threads
            np.setbufsize(BUFFER)  # until the end of this block, for this thread
            work(index)

    with single_threaded_blas:
        run_pieces(quietly, pieces, threads_for_a_job())


def product(left: Array, right: Array, bias: Array | None) -> Array:
    """Return left @ right.T + bias, a bias that broadcasts to the product: a new array.

    Large ones are done on BLAS's threads, or on the pool's where BLAS is held to one. Few rows of a
    wide layer are computed as (right @ left.T).T: OpenBLAS's AVX-512 kernels take 0.66 (32 rows) to
    0.9 (128 rows) of the time for it, its others the same. The result is then laid out column by
    column, which costs products of fewer multiplications as much again in what follows.
    """
    rows, columns = len(left), len(right)
    multiplications = rows * right.size
    if multiplications >= MANY_MULTIPLICATIONS and rows <= min(FEW_ROWS, columns // 4):
        return product(right, left, None if bias is None else bias[:, None]).T
    if multiplications >= SHARED_FROM and single_threaded_blas.held and threads_for_a_job() > 1:
        return spread_product(left, right, bias)
    few = rows < columns and rows * columns > LARGE_RESULT and multiplications <= QUICK_KERNEL
    quick = few and has_quick_kernels()
    if quick:
        left = np.asfortranarray(left)
    if quick or multiplications <= BLAS_SPREADS_FROM:
        out: Array = left.dot(right.T)
    else:
        with holding_blas(multiplications):
            out = left.dot(right.T)
    if bias is not None:
        out += bias
    return out


def spread_product(left: Array, right: Array, bias: Array | None) -> Array:
    """Return what `product` does, computed in pieces on the pool."""
    out = np.empty((len(left), len(right)), left.dtype)
    pieces = cut_product(len(left), len(right), threads_for_a_job())
    addend = None if bias is None else np.broadcast_to(bias, out.shape)

    def compute(index: int) -> None:
        rows, columns = pieces[index]
        piece = out[rows, columns]
        np.matmul(left[rows], right[columns].T, out=piece)
        if addend is not None:
            np.add(piece, addend[rows, columns], out=piece)

    on_all_threads(compute, len(pieces))
    return out


def cut_product(rows: int, columns: int, pieces: int) -> list[tuple[slice, slice]]:
    """Return about that number of pieces of a (rows, columns) product: by rows, then by columns.

    BLAS packs an operand anew for each: more pieces than threads cost up to 15 %.
    """
    by_rows = min(pieces, max(rows // LEAST_SIDE, 1))
    by_columns = min(-(-pieces // by_rows), max(columns // LEAST_SIDE, 1))
    of_rows = slices(0, rows, even_length(rows, -(-rows // by_rows)))
    of_columns = slices(0, columns, even_length(columns, -(-columns // by_columns)))
    return [(some, others) for some in of_rows for others in of_columns]


def holding_blas(multiplications: int) -> AbstractContextManager[None]:
    """Return a context for a product of that size: BLAS on as many threads as pay."""
    if multiplications <= BLAS_SPREADS_FROM:
        return _FREE
    pays = multiplications >= SHARED_FROM and threads_for_a_job() > 1
    return _FREE if pays else single_threaded_blas


def limit_blas_threads(engine: str) -> AbstractContextManager[None]:
    """Return the context of a call by that engine: flash shares the cores out by itself."""
    return single_threaded_blas if engine == "flash" else _FREE


def threads_for_a_job() -> int:
    """Return how many threads a job may take: one where it is part of another job's piece."""
    return 1 if this_thread.jobs else get_num_threads()


def get_num_threads() -> int:
    """Return how many threads large problems are spread over.

    That is what `set_num_threads` last said; else the environment's MHA_NUMPY_THREADS, read once;
    else as many as NumPy's BLAS was given (OMP_NUM_THREADS and the process's CPUs decide that).
    """
    return _default_threads() if _chosen is None else _chosen


def set_num_threads(threads: int) -> None:
    """Set how many threads large problems are spread over; results differ by roundings at most.

    Raises TypeError for what is no integer, and ValueError below 1.
    """
    global _chosen  # noqa: PLW0603 (a setting of the process, as torch.set_num_threads is)
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"`threads` is {threads!r}, but should be an integer; pass an int.")
    if threads < 1:
        raise ValueError(f"`threads` is {threads}, but should be at least 1; pass 1 for no pool.")
    _chosen = int(threads)


@cache
def _default_threads() -> int:
    named = os.environ.get("MHA_NUMPY_THREADS", "")
    if named:
        if not named.isdecimal() or int(named) < 1:
            raise ValueError(
                f"MHA_NUMPY_THREADS is {named!r}, but should be a number from 1 up; correct or "
                "unset it."
            )
        return int(named)
    return max((threads for _, threads in _blas_libraries()), default=os.cpu_count() or 1)


@cache  # looking for them takes milliseconds
def _blas_libraries() -> list[tuple[LibController, int]]:
    """Return threadpoolctl's handles of the loaded BLAS, and the threads each had at first."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().lib_controllers
    return [(one, int(one.num_threads)) for one in found if one.user_api == "blas"]


@cache
def has_quick_kernels() -> bool:
    """Whether BLAS is OpenBLAS on AVX-512, which has kernels for small products as they are."""
    kinds = {getattr(library, "architecture", None) for library, _ in _blas_libraries()}
    return bool(kinds) and kinds <= {"SkylakeX", "Cooperlake", "SapphireRapids"}


def _limit(library: LibController, threads: int) -> None:
    """Set the threads of a BLAS, from whatever thread this is called.

    From threadpoolctl 3.8 on `set_num_threads` does nothing on any thread but the first that called
    it, while that one lives: a limit set on one thread would not be lifted on another.
    """
    getattr(library, "_real_set_num_threads", library.set_num_threads)(threads)


def _forget_the_parent() -> None:
    """Start anew in a forked child, which has none of the threads and perhaps held locks."""
    _helpers.cache_clear()
    single_threaded_blas.lift()
    single_threaded_blas.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parent)
