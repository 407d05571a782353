"""Which engine computes the heads, and what is spread over threads: a small model by size.

A few costs decide, as measured on two AVX-512 cores with NumPy's OpenBLAS; the switches lie where
they balance, and moving one by a factor of two costs some per cent near it and nothing elsewhere.

- Waking a thread and passing the interpreter's lock to and fro costs some 50 µs, as much as four
  million multiplications. Work of less than twice that stays on the caller's thread
  (`_products.SPREAD_FROM`, `_tiles.LEAST_CELLS`).
- OpenBLAS takes a second thread from 262 144 multiplications on, too early; holding it to one
  costs 3 µs (`_products.BLAS_SPREADS_FROM`).
- Where little is computed on few numbers, accuracy is worth more than time: float64 takes 1.3 to
  1.8 times the time of float32, 8 to 220 µs more in a call (`WIDE_UP_TO`, `WIDE_NUMBERS`). Wider
  than float64 BLAS knows nothing: pairs of float64 take five to eight times its time, 0.1 to 6 ms.
  With more numbers than rows to use them in, making float64 of them is most of the time: one row
  of width 1024 would take nine times as long.
- The streaming engine passes over the logits twice less than the one that holds the weights and
  shares them out among threads; waking those and 25 µs more of Python are even with that at some
  260 000 logits, a megabyte of float32 (`STREAM_FROM`). So are the dozen calls a head of the one
  that returns the weights by rows (`WEIGHTED_FROM`).
- Samples are shared out whole where there are several, and heads where rows are few: the threads
  then meet once in a call, and not after each product (`_shares`).

Every choice can be overruled: `engine=` in the public calls, `set_num_threads` or MHA_NUMPY_THREADS
in the environment for threads, `tiles=` and `threads=` in `attend_streaming` for the cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mha_numpy._dtypes import FLOAT32, FLOAT64
from mha_numpy._streaming import attend_streaming
from mha_numpy._threads import get_num_threads, set_num_threads
from mha_numpy._tiles import Tiles
from mha_numpy._weighted import attend_weighted

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Size",
    "Tiles",
    "attend_streaming",
    "attend_weighted",
    "choose_engine",
    "choose_wide",
    "get_num_threads",
    "set_num_threads",
]

WIDE_UP_TO = 8_000_000
WIDE_NUMBERS = 65_536
"""So many float64 are half a megabyte, which stays in the cache."""
STREAM_FROM = 262_144
WEIGHTED_FROM = 262_144


class Size(NamedTuple):
    """How large a problem is."""

    multiplications: int
    """Of all its products."""
    numbers: int
    """Inputs and weights."""


def choose_wide(engine: str, size: Size, dtype: np.dtype[Any], *, drops: bool) -> bool:
    """Whether to compute in more digits: where asked to, or by itself where the problem is small.

    16 bits are computed in float32 in any case, which is wide enough for them.
    """
    small = size.multiplications <= WIDE_UP_TO and size.numbers <= WIDE_NUMBERS
    wanted = engine == "wide" or (engine == "auto" and small)
    return wanted and not drops and dtype in {FLOAT32, FLOAT64}


def choose_engine(logits: int, *, need_weights: bool) -> str:
    """Return the engine for so many logits (N * H * L * S), where nothing is dropped."""
    if need_weights:
        return "weighted" if logits >= WEIGHTED_FROM else "materialised"
    return "streaming" if logits >= STREAM_FROM else "materialised"
