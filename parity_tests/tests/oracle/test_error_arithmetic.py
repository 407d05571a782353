"""The error of each operation is that of its inputs carried on, and that of its own roundings."""

from __future__ import annotations

import numpy as np

from mha_parity.core.arrays import Array
from mha_parity.oracle.error_arithmetic import Bounded
from mha_parity.oracle.error_bound import ErrorModel

MODEL = ErrorModel(unit=2.0**-10, sums=2.0**-24, step=2.0**-30)
RNG = np.random.Generator(np.random.Philox(5))
LEFT, ALIKE, RIGHT = (
    Bounded(RNG.standard_normal(shape), RNG.random(shape) / 64, MODEL)
    for shape in ((3, 4), (3, 4), (4, 2))
)


def most(each: Bounded) -> Array:
    """Return the largest magnitudes that the values can have."""
    return np.asarray(np.abs(each.value) + each.error)


def assert_made(
    found: Bounded, value: Array, carried: Array, reach: Array, terms: int, roundings: int
) -> None:
    """Compare with the definition: what is carried on, and what is made of the reach."""
    assert np.array_equal(value, found.value)
    expected = carried + MODEL.error_factor(terms, roundings) * reach + MODEL.step
    assert np.allclose(expected, found.error, rtol=1e-12, atol=0)


def test_a_product_of_elements_is_rounded_once() -> None:
    """Kills another number of terms or roundings, and any part left out."""
    carried = LEFT.error * most(ALIKE) + np.abs(LEFT.value) * ALIKE.error
    reach = most(LEFT) * most(ALIKE)
    assert_made(LEFT * ALIKE, LEFT.value * ALIKE.value, carried, reach, 0, 1)


def test_a_difference_is_rounded_once() -> None:
    """Its errors add, and its reach is the sum of both."""
    reach = most(LEFT) + most(ALIKE)
    assert_made(LEFT - ALIKE, LEFT.value - ALIKE.value, LEFT.error + ALIKE.error, reach, 0, 1)


def test_a_matrix_product_has_a_term_for_each_of_its_sum() -> None:
    """Four terms, and two roundings to the dtype."""
    carried = LEFT.error @ most(RIGHT) + np.abs(LEFT.value) @ RIGHT.error
    reach = most(LEFT) @ most(RIGHT)
    assert_made(LEFT @ RIGHT, LEFT.value @ RIGHT.value, carried, reach, 4, 2)


def test_a_sum_has_a_rounding_less_than_terms_and_one_to_the_dtype() -> None:
    """Over one axis and over two: kills another number of terms, and the sum of the errors lost."""
    for axes, terms in (((0,), 3), ((1,), 4), ((0, 1), 12)):
        value, reach = LEFT.value.sum(axis=axes), most(LEFT).sum(axis=axes)
        assert_made(LEFT.total(*axes), value, LEFT.error.sum(axis=axes), reach, terms - 1, 1)


def test_a_product_with_a_number_has_the_roundings_of_that_number() -> None:
    """A negative factor carries errors on by its magnitude."""
    carried, reach = 2.5 * LEFT.error, 2.5 * most(LEFT)
    assert_made(LEFT.scaled(-2.5, 7), -2.5 * LEFT.value, carried, reach, 0, 7)


def test_an_input_is_exact_from_the_smallest_number_on() -> None:
    """Below it a product may read 0: the whole number is its error. Kills `<=` for `<`."""
    inputs = np.array([MODEL.step / 2, -MODEL.step / 2, MODEL.step, -1.0])
    found = LEFT.exact(inputs)
    assert np.array_equal(inputs, found.value)
    assert [MODEL.step / 2, MODEL.step / 2, 0, 0] == found.error.tolist()


def test_of_two_ways_the_larger_error_counts_element_by_element() -> None:
    """And the value stays the first one's."""
    found = LEFT.with_larger_error(ALIKE)
    assert np.array_equal(LEFT.value, found.value)
    pairs = zip(LEFT.error.flat, ALIKE.error.flat, strict=True)
    assert [max(pair) for pair in pairs] == found.error.ravel().tolist()
