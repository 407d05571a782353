"""What the page draws of a failing gradient: the numbers judged, and where they belong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.case import parse
from mha_parity.core.features import AXES, Offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.report_arrays import GradientPicture, MatrixAxis
from mha_parity.core.verdict import Failure
from mha_parity.judging.gradients import CHECK, gradient_units
from mha_parity.judging.output import JudgeSettings
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.reference_gradients import reference_gradients
from mha_parity.run.case_run import run_case
from mha_parity.run.check import check
from mha_parity.run.gradient_pictures import HEAD_DIM, gradient_pictures
from mha_parity.run.weights_pictures import HEADS
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS

WHOLE: Offer = {axis: tuple(values) for axis, values in AXES.items()}
LAYER = "mha-N2-L4-S5-H3-D2-cross-bias-biaskv-outproj-floatpadding-floatmask-grad-float64-s3"
SEPARATE = "mha-N2-L4-S5-H3-D2-Ek7-Ev9-distinct-separate-grad-float64-s3"
GROUPED = "qkv-N2-L4-S5-H4-D3-G2-V2-cross-floatmask3d-grad-float64-s3"
QKV = ("q", "k", "v")

Spoil = Callable[[str, Array], Array | None]


def spoiled(spoil: Spoil) -> FunctionCandidate:
    """Return an attention whose output is right and whose gradients are spoiled by their names."""

    def attend(problem: Problem) -> Answer:
        reference = reference_answer(problem)
        found = {
            name: spoil(name, np.asarray(each.value, dtype=np.float64))
            for name, each in reference_gradients(problem, reference).items()
        }
        output = np.asarray(reference.output).astype(problem.dtype)
        kept = {name: array for name, array in found.items() if array is not None}
        return Answer(output=output, gradients=kept)

    return FunctionCandidate("x:f", attend, WHOLE)


def last_off(_: str, right: Array) -> Array:
    """Add one to the last element."""
    found = right.copy()
    found[(-1,) * found.ndim] += 1
    return found


def drawn(case: str, name: str, spoil: Spoil = last_off) -> GradientPicture | None:
    """Return the picture of one failing gradient, of a case that is as small as it gets."""
    candidate, at = spoiled(spoil), parse(case)
    found = run_case(candidate, at, JudgeSettings()).check_results
    (check_result,) = [each for each in found if each.check == CHECK + name]
    assert check_result.severity.fails
    failure = Failure(check_result=check_result, case=at, replay="", shrunk_from=at)
    pictures = gradient_pictures(candidate, [failure], JudgeSettings())
    return pictures[0] if pictures else None


LAYOUTS = {
    "query": (LAYER, 1, (4, 6), MatrixAxis("query"), MatrixAxis("column"), (2, 1)),
    "key": (SEPARATE, 1, (5, 7), MatrixAxis("key"), MatrixAxis("column"), (2, 1)),
    "in_proj_weight": (LAYER, 1, (18, 6), MatrixAxis("row", QKV, 3), MatrixAxis("column"), (3, 3)),
    "in_proj_bias": (LAYER, 1, (3, 6), MatrixAxis("", QKV), MatrixAxis("column", heads=3), (3, 3)),
    "v_proj_weight": (
        SEPARATE,
        1,
        (6, 9),
        MatrixAxis("row", heads=3),
        MatrixAxis("column"),
        (1, 3),
    ),
    "out_proj.weight": (LAYER, 1, (6, 6), MatrixAxis("row"), MatrixAxis("column", heads=3), (1, 3)),
    "out_proj.bias": (LAYER, 1, (1, 6), MatrixAxis(""), MatrixAxis("column"), (1, 1)),
    "bias_k": (LAYER, 1, (1, 6), MatrixAxis(""), MatrixAxis("column", heads=3), (1, 3)),
    "attn_mask": (LAYER, 1, (4, 5), MatrixAxis("query"), MatrixAxis("key"), (1, 1)),
    "key_padding_mask": (LAYER, 1, (2, 5), MatrixAxis("sample"), MatrixAxis("key"), (2, 1)),
    "query of heads": (GROUPED, 4, (4, 3), MatrixAxis("query"), MatrixAxis("column"), (2, 4)),
    "value of heads": (GROUPED, 2, (5, 2), MatrixAxis("key"), MatrixAxis("column"), (2, 2)),
    "attn_mask of heads": (GROUPED, 4, (4, 5), MatrixAxis("query"), MatrixAxis("key"), (2, 4)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_gradient_has_its_own_layout(name: str) -> None:
    """Matrices, sides and the table of errors are those of what is judged separately."""
    case, gradient_matrices, shape, rows, columns, units = LAYOUTS[name]
    picture = drawn(case, name.removesuffix(" of heads"))
    assert picture is not None
    assert (gradient_matrices, rows, columns) == (
        len(picture.gradient_matrices),
        picture.rows,
        picture.columns,
    )
    assert {shape} == {plate.reference.shape for plate in picture.gradient_matrices}
    assert units == picture.error_units.shape
    assert units == (len(picture.unit_rows), len(picture.unit_columns))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_worst_stands_first_and_the_rest_is_right(name: str) -> None:
    """One element is off by one, and is in the first plate; the errors elsewhere are allowed."""
    picture = drawn(LAYOUTS[name][0], name.removesuffix(" of heads"))
    assert picture is not None
    first, *others = (
        np.abs(plate.candidate - plate.reference) for plate in picture.gradient_matrices
    )
    assert pytest.approx(1) == first.max()
    assert 1 == np.count_nonzero(first > 0.5)
    assert LAYOUTS[name][1] == 1 + len(others)
    assert all((other == 0).all() for other in others)
    beyond = np.argwhere(picture.error_units > 1).tolist()
    assert [[size - 1 for size in picture.error_units.shape]] == beyond
    if picture.sample >= 0:
        assert 1 == picture.sample


@pytest.mark.parametrize("case", [LAYER, GROUPED])
def test_the_numbers_are_the_gradients(case: str) -> None:
    """Plates put together again are the gradient of the sample, by head and column."""
    problem = make_problem(parse(case))
    reference = reference_gradients(problem, reference_answer(problem))["query"].value
    picture = drawn(case, "query")
    assert picture is not None
    inorder = sorted(picture.gradient_matrices, key=lambda plate: plate.first)
    assert [plate.name for plate in inorder] == sorted(plate.name for plate in inorder)
    width = inorder[0].reference.shape[1]
    assert [width * i for i in range(len(inorder))] == [plate.first for plate in inorder]
    joined = np.concatenate([plate.reference for plate in inorder], axis=1)
    assert np.array_equal(np.asarray(reference[1], dtype=np.float64), joined)


def test_a_small_case_is_drawn_with_more_heads() -> None:
    """What fails with one head is drawn with several, as far as they were there at first."""
    candidate, small = spoiled(last_off), parse("mha-N1-L2-S2-H1-D1-grad-float64-s0")
    found = run_case(candidate, small, JudgeSettings()).check_results
    (check_result,) = [each for each in found if each.check == CHECK + "in_proj_weight"]
    first = parse("mha-N3-L9-S9-H5-D7-grad-float64-s8")
    failure = Failure(check_result=check_result, case=small, replay="", shrunk_from=first)
    (picture,) = gradient_pictures(candidate, [failure], JudgeSettings())
    assert (HEADS, HEAD_DIM) == (picture.case.heads_count, picture.case.head_dim)
    width = HEADS * HEAD_DIM
    assert (3 * width, width) == picture.gradient_matrices[0].reference.shape


def test_what_fails_with_one_head_alone_is_drawn_with_one() -> None:
    """Where several heads are right the picture keeps to the case that fails."""

    def spoil(name: str, right: Array) -> Array:
        return last_off(name, right) if right.shape[-1] == 2 else right

    candidate, small = spoiled(spoil), parse("mha-N1-L2-S2-H1-D2-grad-float64-s0")
    (check_result,) = [
        each
        for each in run_case(candidate, small, JudgeSettings()).check_results
        if each.check == CHECK + "query"
    ]
    first = parse("mha-N3-L9-S9-H5-D7-grad-float64-s8")
    failure = Failure(check_result=check_result, case=small, replay="", shrunk_from=first)
    (picture,) = gradient_pictures(candidate, [failure], JudgeSettings())
    assert (1, 2) == (picture.case.heads_count, picture.case.head_dim)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _, right: right[..., :-1],
        lambda _, right: right.astype(complex),
        lambda _, right: None if right.ndim == 3 else right,
    ],
    ids=["shape", "complex", "missing"],
)
def test_what_has_no_difference_is_not_drawn(spoil: Spoil) -> None:
    """A gradient of another shape, of complex numbers, or none at all has no picture."""
    assert drawn(LAYER, "query", spoil) is None


def test_nan_is_drawn_and_infinitely_off() -> None:
    """NaN stands in the target's matrix, and its group's error is infinite, others' are not."""

    def spoil(_: str, right: Array) -> Array:
        found = right.copy()
        found[(0,) * found.ndim] = np.nan
        return found

    picture = drawn(LAYER, "in_proj_weight", spoil)
    assert picture is not None
    assert np.isnan(picture.gradient_matrices[0].candidate[0, 0])
    assert [[0, 0]] == np.argwhere(np.isinf(picture.error_units)).tolist()
    assert (np.delete(picture.error_units.ravel(), 0) <= 1).all()


def test_units_are_those_of_the_judgement() -> None:
    """The largest number of the table is the check result's error over what it allows."""
    candidate, case = spoiled(last_off), parse(LAYER)
    case_result = run_case(candidate, case, JudgeSettings())
    assert case_result.problem
    assert case_result.reference
    assert case_result.answer
    for check_result in case_result.check_results:
        if check_result.check.startswith(CHECK):
            name = check_result.check.removeprefix(CHECK)
            units = gradient_units(
                case_result.problem,
                case_result.reference,
                case_result.answer,
                name,
                JudgeSettings(),
            )
            assert pytest.approx(check_result.error / check_result.allowed) == units.max()


def test_a_run_draws_its_failing_gradients_and_no_others() -> None:
    """A wrong backward has a picture for each shrunk gradient; without --grad there is none."""
    bound = bind(load.load(f"{SUBJECTS}/numpy_vjp.py:ForgetsFirstHead"))
    found = check(bound, Options(cases=20, grad=True, diagnose=False, draw=True))
    shown = [each.check for each in found.gradient_pictures]
    shrunk = [each.check_result.check for each in found.failures if each.shrunk_from is not None]
    assert shrunk == shown
    assert () == found.pictures
    assert () == check(bound, Options(cases=12, diagnose=False, draw=True)).gradient_pictures
