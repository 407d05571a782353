"""Comparing says nothing on stderr, whatever a target's memory holds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mha_parity import catalogue
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.compare import (
    absolute_difference,
    as_float64,
    describe_difference,
    equal_up_to_rounding,
    in_unlike_digits,
    max_difference,
    reordering_tolerance,
)
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.run.check import check

SIGNALLING = np.array([0x7F800001], dtype=np.uint32).view(np.float32)
WIDE = np.array([np.finfo(np.float64).max], dtype=np.longdouble) * 2


@pytest.mark.parametrize("array", [SIGNALLING, WIDE], ids=["signalling-nan", "longdouble"])
def test_a_cast_does_not_warn(array: np.ndarray) -> None:
    """A plain cast of either warns, which is an error here; the comparisons see NaN or infinity."""
    assert not np.isfinite(as_float64(array)).any()
    assert max_difference(np.zeros(1), array) == np.inf
    assert reordering_tolerance(array[:0]) == 0 == reordering_tolerance(array)


def test_a_run_does_not_warn_of_memory_that_was_never_written() -> None:
    """The last row is a signalling NaN: the run fails, and is diagnosed, without a warning."""

    def unwritten(problem: Problem) -> Answer:
        answer = catalogue.answer_of(catalogue.Attention, problem)
        output = answer.output.copy()
        output[:, -1:] = SIGNALLING if problem.case.dtype == "float32" else np.nan
        return Answer(output=output, weights=answer.weights)

    offered = make_offer(
        form="qkv", projection="none", inputs=("self", "cross"), dtype=("float32",),
        size=("small", "equal"),
    )  # fmt: skip
    verdict = check(FunctionCandidate("unwritten", unwritten, offered), Options(cases=20))
    assert verdict.failed > 10
    assert verdict.diagnosis


@pytest.mark.parametrize(
    ("dtype", "eps", "roundings"),
    [("float64", 2.0**-52, 256), ("float32", 2.0**-23, 256), ("float16", 2.0**-10, 8),
     ("bfloat16", 2.0**-7, 8), ("int64", 0, 256), ("bool", 0, 256),
     ("longdouble", np.finfo(np.longdouble).eps, 256)],
)  # fmt: skip
def test_another_order_of_sums_moves_an_element_by_so_much(
    dtype: str, eps: float, roundings: int
) -> None:
    """Kills `>` for `==` with a kind of dtype, which allows no rounding at all, and other factors.

    Equal is what differs by that much; 0, infinity and NaN among the elements allow no more.
    """
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.array([1, 0, -3]).astype(dtype)
    largest = 1 if dtype == "bool" else 3
    assert roundings * float(eps) * largest == reordering_tolerance(array)
    if array.dtype.kind == "f":
        special = np.array([np.inf, np.nan, 1, -3], dtype)
        assert reordering_tolerance(special) == reordering_tolerance(array)


def test_two_arrays_are_equal_up_to_that_much_and_no_more() -> None:
    """Kills `<` for `<=`, and comparing arrays of two dtypes or shapes by their numbers."""
    one = np.array([1.0, 0.5, np.nan, np.inf])
    step = np.array([0, 256 * 2.0**-52, 0, 0])
    assert equal_up_to_rounding(one, one + step)
    assert not equal_up_to_rounding(one, one + 1.01 * step)
    assert not equal_up_to_rounding(one, one.astype(np.float32))
    half = one.astype(np.float16)
    assert not equal_up_to_rounding(half, half * np.float16(1.01))
    assert not equal_up_to_rounding(one, one[None])
    assert not equal_up_to_rounding(one, one * [1, 1, 1, -1])
    assert not equal_up_to_rounding(one, np.nan_to_num(one, nan=0.0, posinf=np.inf))
    assert "(4,) float64 became (2,) float64" == describe_difference(one, one[:2])
    assert "(4,) float64 became (4,) float32" == describe_difference(one, one.astype(np.float32))
    assert "elements differ by up to 4" == describe_difference(one, one + 2**46 * step)


def test_equal_infinities_differ_by_nothing() -> None:
    """0 for two NaN and two of one infinity, infinite for another kind. Kills -1 for 0."""
    inf, nan = np.inf, np.nan
    expected = np.array([inf, -inf, nan, 1, inf, nan, 1])
    actual = np.array([inf, -inf, nan, 1.5, -inf, 1, inf])
    assert [0, 0, 0, 0.5, inf, inf, inf] == absolute_difference(expected, actual).tolist()


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        (0.5, 0.25, ("0.5", "0.25")),
        (1 / 3, 1 / 3, ("0.333333333", "0.333333333")),
        (1 / 3, 1 / 3 + 1e-12, ("0.333333333333", "0.333333333334")),
        (1.0, 1.0 + 2.0**-52, ("1", "1.0000000000000002")),
        (math.nan, 1.0, ("nan", "1")),
    ],
)
def test_two_numbers_are_in_unlike_digits(
    first: float, second: float, shown: tuple[str, str]
) -> None:
    """Nine digits, or as many as differ. Kills the nine digits of numbers that agree in them."""
    assert shown == in_unlike_digits(first, second)
