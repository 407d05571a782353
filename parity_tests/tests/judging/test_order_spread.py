"""What orders of evaluation allow, on answers of orders that are written by hand."""

from __future__ import annotations

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import Array
from mha_parity.core.case import parse
from mha_parity.judging.output_groups import JudgedArray, judged_array
from mha_parity.judging.tolerance import OrderSpread
from mha_parity.oracle.eval_orders import EVAL_ORDERS, NARROW, Prepared, attend_in_order
from mha_parity.oracle.reference import reference_answer

PROBLEM = make_problem(parse("qkv-N2-L3-S4-H2-D3-cross-float32-s71"))
REFERENCE = reference_answer(PROBLEM)
JUDGED = judged_array("output", PROBLEM, REFERENCE)
Changes = dict[tuple[int, int, int], float]


def spread(*orders: Changes) -> OrderSpread:
    """Return the spread of orders whose outputs differ from the reference by so much."""
    answers = []
    for changes in orders:
        output = REFERENCE.output.copy()
        for place, more in changes.items():
            output[place] += more
        answers.append((output, REFERENCE.weights))
    return OrderSpread(PROBLEM, EVAL_ORDERS[: len(orders)], answers)


def places(*marked: tuple[int, int, int]) -> Array:
    """Return where the output is marked."""
    found = np.zeros(PROBLEM.output_shape, dtype=bool)
    for place in marked:
        found[place] = True
    return found


def test_the_largest_finite_error_so_far_counts_in_each_head() -> None:
    """Column 3 is the first of the second head; infinity is no error that allows another."""
    made = spread({(0, 1, 2): 3.0}, {(0, 2, 0): -1.0, (1, 0, 3): -2.0}, {(1, 1, 1): np.inf})
    found = [each.tolist() for each in made.errors(JUDGED)]
    np.testing.assert_allclose(found[0], [[3, 0], [0, 0]])
    np.testing.assert_allclose(found[1], [[3, 0], [0, 2]])
    np.testing.assert_allclose(found[2], [[3, 0], [0, 2]])


def test_a_number_is_lost_where_no_order_has_one() -> None:
    """In all orders and at all places, and where the reference is a number alone.

    Kills one order or one place for all of them, and another operator between the conditions.
    """
    first, second = (0, 1, 2), (1, 2, 4)
    lost = spread({first: np.inf, second: np.nan}, {first: np.nan, second: -np.inf})
    assert lost.all_lost(JUDGED, places(first))
    assert lost.all_lost(JUDGED, places(first, second))
    assert not lost.all_lost(JUDGED, places(first, (0, 0, 0)))
    assert lost.all_lost(JUDGED, places())
    once = spread({first: np.inf}, {second: np.inf})
    assert not once.all_lost(JUDGED, places(first))
    output = REFERENCE.output.copy()
    output[first] = np.nan
    unknown = JudgedArray("output", output, JUDGED.shape, JUDGED.axes, mixed=False, unit=1, step=1)
    assert not lost.all_lost(unknown, places(first))
    assert lost.all_lost(unknown, places(second))


def test_sums_in_the_dtype_are_those_of_16_bits_alone() -> None:
    """Of one sample, as it is computed by itself; in wider dtypes such sums allow nothing."""
    assert not spread().narrow_of(JUDGED, 1).any()
    narrow = make_problem(parse("qkv-N2-L3-S70-H2-D3-cross-float16-s72"))
    reference = reference_answer(narrow)
    judged = judged_array("output", narrow, reference)
    output, _ = attend_in_order(Prepared(narrow), NARROW)
    off = np.abs(output[1] - reference.output[1]).reshape(3, 2, 3).max(axis=(0, 2))
    np.testing.assert_allclose(OrderSpread(narrow).narrow_of(judged, 1), off)
    assert (off > 0).all()


def test_products_of_8_bits_allow_more_than_those_of_the_dtype() -> None:
    """Some roundoffs of bfloat16; in 16 bits, of which that is one, there is no such limit."""
    coarse = OrderSpread(PROBLEM).coarse(JUDGED)
    *_, own = OrderSpread(PROBLEM).errors(JUDGED)
    assert (2.0**-11 < coarse).all()
    assert (coarse < 1).all()
    assert (coarse > 2**12 * own).all()
    narrow = make_problem(parse("qkv-N2-L3-S7-H2-D3-cross-float16-s72"))
    judged = judged_array("output", narrow, reference_answer(narrow))
    assert np.isposinf(OrderSpread(narrow).coarse(judged)).all()
