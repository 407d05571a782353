"""Difference of two answers to one problem that legitimate evaluation orders explain."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from mha_parity.core.compare import max_difference
from mha_parity.oracle.eval_orders import EVAL_ORDERS, K, Prepared, attend_in_order

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem


def differ_by_order(problem: Problem, first: Array, second: Array) -> bool:
    """Return whether two answers differ by no more than K times what two orders do.

    Where scores are large, another order of their sums moves the output by far more than some
    roundings of its own: libraries sum otherwise over arrays that are not contiguous.
    """
    prepared = Prepared(problem)
    outputs = [attend_in_order(prepared, order)[0] for order in EVAL_ORDERS]
    spread = max(max_difference(*pair) for pair in combinations(outputs, 2))
    return first.shape == second.shape and max_difference(first, second) <= K * spread
