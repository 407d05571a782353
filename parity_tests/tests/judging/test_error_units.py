"""Errors in units of what is allowed, and the gradient of an array that went in under two names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.problem import Problem
from mha_parity.judging.error_map import error_units
from mha_parity.judging.gradients import expected_gradients
from mha_parity.judging.output import ROUNDINGS, JudgeSettings
from mha_parity.judging.output_groups import judged_array
from mha_parity.judging.tolerance import OrderSpread
from mha_parity.oracle.error_bound import error_model
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.reference_gradients import reference_gradients

HEADS = make_problem(parse("qkv-N2-L5-S7-H2-D4-cross-float64-s1"))
MIXED = make_problem(parse("mha-N2-L5-S7-H2-D4-cross-outproj-float64-s1"))


@pytest.mark.parametrize(("asked", "group"), [(HEADS, 1), (MIXED, 0)], ids=["heads", "mixed"])
def test_the_unit_is_what_the_judge_allows(asked: Problem, group: int) -> None:
    """An error of three times k order spreads and two roundings is 3 in its group, at its element.

    Kills `np.shape(...) <= shape`, `not np.shape(...) != shape` and the changes of what is allowed.
    """
    reference = reference_answer(asked)
    judged = judged_array("output", asked, reference)
    *_, spread = OrderSpread.of(asked, reference).errors(judged)
    settings = JudgeSettings(k=5.0)
    allowed = 5.0 * spread + ROUNDINGS * judged.rounding
    right = reference.output
    place = (1, 3, 6)
    output = right.copy()
    output[place] += 3 * allowed[1, group]
    units = error_units(asked, reference, Answer(output=output), settings)
    assert units is not None
    assert judged.shape == units.shape
    flat = units.reshape(right.shape)
    assert flat[place] == pytest.approx(3, rel=1e-3)
    flat[place] = 0
    assert not flat.any()
    output[place] = np.nan
    lost = error_units(asked, reference, Answer(output=output), settings)
    assert lost is not None
    assert 1 == np.isposinf(lost).sum()
    assert np.isposinf(lost.reshape(right.shape)[place])


@pytest.mark.parametrize("output", [np.zeros((2, 5, 7)), np.zeros((2, 5, 9)), np.zeros(8), None])
def test_what_cannot_be_compared_has_no_units(output: np.ndarray[tuple[int, ...]] | None) -> None:
    """A smaller or larger array, or none, and text of the right shape are no output."""
    answer = Answer(output=output)  # type: ignore[arg-type]  # what a target may return
    assert error_units(HEADS, reference_answer(HEADS), answer, JudgeSettings()) is None
    text = replace(answer, output=np.full((2, 5, 8), "0"))
    assert error_units(HEADS, reference_answer(HEADS), text, JudgeSettings()) is None


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("mha-N2-L5-S5-H2-D4-grad-float64-s3", ("query", "key", "value")),
        ("mha-N2-L5-S7-H2-D4-cross-grad-float64-s3", ("key", "value")),
    ],
)
def test_one_array_under_several_names_has_the_sum_of_their_gradients(
    words: str, names: tuple[str, ...]
) -> None:
    """The limit is that of the parts, and of their sum in the dtype; others stay as they are.

    Kills `np.abs(value) // limit` and the changes of the number of additions.
    """
    problem = make_problem(parse(words))
    reference = reference_answer(problem)
    separate = reference_gradients(problem, reference)
    total = sum(separate[name].value for name in names)
    came = {name: np.zeros(1) for name in separate if name not in names[1:]}
    answer = Answer(output=reference.output, gradients=came)
    found = expected_gradients(problem, reference, answer)
    assert set(came) == set(found)
    assert np.array_equal(total, found[names[0]].value)
    limits = sum(separate[name].limit for name in names)
    reach = sum(np.abs(separate[name].value).astype(float) + separate[name].limit for name in names)
    unit = error_model(problem.dtype).unit
    terms = len(names) * unit  # one addition fewer than parts, and the rounding to the dtype
    assert found[names[0]].limit == pytest.approx(limits + terms / (1 - terms) * reach, rel=1e-12)
    for name in found.keys() - set(names):
        assert np.array_equal(separate[name].value, found[name].value)
    each = replace(answer, gradients={name: np.zeros(1) for name in separate})
    assert set(separate) == set(expected_gradients(problem, reference, each))
