"""The bounds of gradients equal their formulas, written out for numbers in place of arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mha_parity.cases.generate import cotangent, make_problem
from mha_parity.core.case import parse
from mha_parity.oracle.backward import backward
from mha_parity.oracle.error_bound import ErrorModel, bound_with_model, error_model
from mha_parity.oracle.reference import reference_answer


@dataclass(frozen=True, slots=True)
class Number:
    """A number and the bound of its error in an arithmetic."""

    value: float
    error: float
    model: ErrorModel

    @property
    def most(self) -> float:
        """The largest magnitude it can have."""
        return abs(self.value) + self.error

    def made(self, value: float, carried: float, reach: float, terms: int, stored: int) -> Number:
        """Return a result with the errors that are carried on and made."""
        made = self.model.error_factor(terms, stored) * reach + self.model.step
        return Number(value, carried + made, self.model)

    def __mul__(self, other: Number) -> Number:
        """Return the product, rounded once."""
        carried = self.error * other.most + abs(self.value) * other.error
        return self.made(self.value * other.value, carried, self.most * other.most, 0, 1)

    def __sub__(self, other: Number) -> Number:
        """Return the difference, rounded once."""
        carried = self.error + other.error
        return self.made(self.value - other.value, carried, self.most + other.most, 0, 1)

    def scaled(self, factor: float) -> Number:
        """Return the product with the scale: forming it, applying it, the change of base: 7."""
        carried, reach = abs(factor) * self.error, abs(factor) * self.most
        return self.made(self.value * factor, carried, reach, 0, 7)


def dot(left: list[Number], right: list[Number]) -> Number:
    """Return an inner product in any order: a rounding a term, and two to the dtype."""
    pairs = list(zip(left, right, strict=True))
    carried = sum(a.error * b.most + abs(a.value) * b.error for a, b in pairs)
    reach = sum(a.most * b.most for a, b in pairs)
    value = sum(a.value * b.value for a, b in pairs)
    return left[0].made(value, carried, reach, len(pairs), 2)


def total(numbers: list[Number]) -> Number:
    """Return a sum: a rounding less than terms, and one to the dtype."""
    value, error, reach = (
        sum(getattr(each, name) for each in numbers) for name in ("value", "error", "most")
    )
    return numbers[0].made(value, error, reach, len(numbers) - 1, 1)


def larger(first: Number, second: Number) -> Number:
    """Return the first with the larger error of both."""
    return Number(first.value, max(first.error, second.error), first.model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bounds_of_gradients_are_their_formulas(dtype: str) -> None:
    """One head of width 1, two queries, three keys, a float mask of each kind.

    Kills another number of roundings of the scale, the smaller of both levels or of both bounds of
    the weights, and the error of a stage that is left out.
    """
    case = f"qkv-N1-L2-S3-H1-D1-cross-floatpadding-floatmask-scaled-grad-{dtype}-s0"
    problem = make_problem(parse(case)).replace(given_scale=-0.75)
    reference, given = reference_answer(problem), cotangent(problem)
    model = error_model(problem.dtype)
    limits = bound_with_model(model, problem, reference)

    def row(values: np.ndarray, errors: np.ndarray) -> list[Number]:
        pairs = zip(values.ravel().tolist(), errors.ravel().tolist(), strict=True)
        return [Number(value, error, model) for value, error in pairs]

    stages = (reference.q, reference.k, reference.v, reference.heads)
    q, k, v, heads = map(row, stages, limits.stages)
    flat = row(reference.weights, np.maximum(limits.weights, limits.recomputed))
    p = [flat[:3], flat[3:]]
    g = row(given.astype(np.float64), np.zeros(2))
    scores: list[list[Number]] = []
    for i in range(2):
        d_p = [dot([g[i]], [v[j]]) for j in range(3)]
        level = larger(total([p[i][j] * d_p[j] for j in range(3)]), total([g[i] * heads[i]]))
        scores.append([p[i][j] * (d_p[j] - level) for j in range(3)])
    columns = [[scores[0][j], scores[1][j]] for j in range(3)]
    expected = {
        "query": [dot(scores[i], k).scaled(-0.75) for i in range(2)],
        "key": [dot(column, q).scaled(-0.75) for column in columns],
        "value": [dot([p[0][j], p[1][j]], g) for j in range(3)],
        "attn_mask": [total([each]) for each in (*scores[0], *scores[1])],
        "key_padding_mask": [total(column) for column in columns],
    }
    found = backward(problem, reference, given, model)
    assert expected.keys() == found.keys()
    for name, numbers in expected.items():
        values, errors = ([getattr(n, kind) for n in numbers] for kind in ("value", "error"))
        np.testing.assert_allclose(found[name].value.ravel(), values, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found[name].error.ravel(), errors, rtol=1e-9, err_msg=name)
