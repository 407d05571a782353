"""The probabilistic bound holds for right outputs, and stays near them where layers are wide."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.arrays import Array
from mha_parity.core.case import parse
from mha_parity.core.problem import Problem
from mha_parity.judging.accuracy import torch_output
from mha_parity.judging.nonfinite import masked_row_elements
from mha_parity.judging.output_groups import judged_array
from mha_parity.judging.tolerance import OrderSpread
from mha_parity.oracle.error_bound import bound
from mha_parity.oracle.probable_error import probable_error
from mha_parity.oracle.reference import Reference, reference_answer

MASK_FIRST = "mha-N5-L29-S29-H1-D64-bias-floatpadding-weights-float64-s6000137"


def share(problem: Problem, reference: Reference, output: Array) -> float:
    """Return the error of the worst row of an output in units of its bound."""
    judged = judged_array("output", problem, reference)
    numbers = np.isfinite(output) & judged.finite & ~masked_row_elements(problem, judged)
    error = np.where(numbers, np.abs(judged.difference(output)), 0)
    units = error / judged.broadcast_groups(judged.rounding)
    sample, row, _ = np.unravel_index(int(units.argmax()), units.shape)
    limit = probable_error(problem, reference, int(sample), int(row))
    return float((error[sample, row] / limit).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_right_outputs_are_within(dtype: str, seed: int) -> None:
    """Torch and all orders stay within one half of it, on cases of all kinds."""
    judged = 0
    for case in draw_cases(whole_offer() | {"dtype": (dtype,)}, 60, seed):
        problem = make_problem(case)
        reference = reference_answer(problem)
        if not reference.output.size:
            continue
        outputs = [output for output, _ in OrderSpread.of(problem, reference).answers()]
        for output in (torch_output(problem), *outputs):
            judged += 1
            assert share(problem, reference, output) < 1 / 2, case.id
    assert judged > 400


def test_a_mask_may_be_the_first_term_of_a_score() -> None:
    """Torch adds products to a mask of -10000 one by one, each sum rounded at that size."""
    problem = make_problem(parse(MASK_FIRST))
    reference = reference_answer(problem)
    found = share(problem, reference, torch_output(problem))
    alone = problem.replace(key_padding_mask=None)

    assert 0.01 < found < 1 / 2
    sample = int(problem.key_padding_mask.min(axis=1).argmin())  # type: ignore[union-attr]  # it has one
    assert (
        probable_error(problem, reference, sample, 0) > probable_error(alone, reference, sample, 0)
    ).all()


@pytest.mark.parametrize(("width", "heads"), [(16, 2), (128, 4), (512, 8)])
def test_it_does_not_grow_away_from_what_orders_reach(width: int, heads: int) -> None:
    """It is at most 200 times the worst order at any width; the other is 1e4 times at 512."""
    case = f"mha-N1-L9-S9-H{heads}-D{width // heads}-bias-outproj-float32-s50"
    problem = make_problem(parse(case))
    reference = reference_answer(problem)
    judged = judged_array("output", problem, reference)
    reached = max(error.max() for error in OrderSpread.of(problem, reference).errors(judged))
    limit = max(probable_error(problem, reference, 0, row).max() for row in range(9))

    assert 1 < limit / reached < 200
    if width == 512:
        assert bound(problem, reference).output.max() / reached > 1e4


def test_it_grows_with_the_values() -> None:
    """Values 1024 times as large make errors 1024 times as large: variances grow by the square."""
    problem = make_problem(parse("mha-N1-L5-S7-H2-D3-bias-float32-s51"))
    assert problem.w_v is not None
    assert problem.b_v is not None
    larger = problem.replace(w_v=problem.w_v * 1024, b_v=problem.b_v * 1024)
    once, more = (probable_error(p, reference_answer(p), 0, 2) for p in (problem, larger))
    np.testing.assert_allclose(more, 1024 * once, rtol=1e-9)
