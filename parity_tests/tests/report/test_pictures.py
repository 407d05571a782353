"""What the page draws: weights as the target has them, read out where it returns none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mha_parity.core.candidate import Answer, CandidateError, FunctionCandidate, ask
from mha_parity.core.case import Case, parse
from mha_parity.core.features import AXES, Offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import Failure
from mha_parity.diagnose.read_weights import SOLVED, read_sample_weights
from mha_parity.judging.output import JudgeSettings
from mha_parity.oracle.reference import reference_answer
from mha_parity.report import html_page
from mha_parity.run.case_run import run_case
from mha_parity.run.check import check
from mha_parity.run.weights_pictures import (
    HEADS,
    POSITIONS,
    at_picture_sizes,
    at_sizes_before_shrinking,
    pictures,
    worst_passing,
)
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS

WHOLE: Offer = {axis: tuple(values) for axis, values in AXES.items()}
SILENT = WHOLE | {"weights": ("none",)}
READ = (
    "qkv-N2-L5-S7-H3-D4-cross-float64-s1",
    "qkv-N2-L5-S7-H4-D3-G2-V2-cross-boolmask-float64-s2",
    "mha-N2-L5-S7-H3-D4-cross-bias-outproj-padding-float64-s3",
    "mha-N2-L5-S7-H3-D4-cross-biaskv-causal-float64-s4",
    "mha-N2-L5-S7-H3-D4-cross-zeroattn-floatmask3d-float32-s5",
)


def right(problem: Problem) -> Answer:
    """Answer as torch does."""
    reference = reference_answer(problem)
    wanted = problem.case.weights
    weights = {"none": None, "averaged": reference.averaged, "per_head": reference.weights}[wanted]
    return Answer(
        output=np.asarray(reference.output).astype(problem.dtype),
        weights=None if weights is None else np.asarray(weights).astype(problem.dtype),
    )


def candidate(offer: Offer = WHOLE) -> FunctionCandidate:
    """Return the right attention, which offers what is said."""
    return FunctionCandidate("x:f", right, offer)


@pytest.mark.parametrize("case", READ)
def test_weights_are_read_out_of_the_output(case: str) -> None:
    """With rows of the identity as values the output shows the weights, appended key and all."""
    problem = right_problem(case)
    read = read_sample_weights(partial(ask, candidate(SILENT)), problem, 1)
    assert read is not None
    assert reference_answer(problem).weights[1] == pytest.approx(read, abs=SOLVED)


def right_problem(case: str) -> Problem:
    """Return the problem that a case describes."""
    problem = run_case(candidate(), parse(case), JudgeSettings()).problem
    assert problem is not None
    return problem


def test_two_appended_keys_are_unknown() -> None:
    """Of a bias key and a zero key only the sum is known: both are NaN, the others are read."""
    problem = right_problem("mha-N2-L5-S7-H3-D4-cross-biaskv-zeroattn-float64-s4")
    read = read_sample_weights(partial(ask, candidate(SILENT)), problem, 0)
    assert read is not None
    assert np.isnan(read[..., -2:]).all()
    assert reference_answer(problem).weights[0, ..., :-2] == pytest.approx(
        read[..., :-2], abs=SOLVED
    )


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (
            "mha-N2-L5-S7-H1-D2-cross-float64-s1",
            "seven keys cannot be distinguished in two columns",
        ),
        ("qkv-N1-L3-S70-H1-D4-cross-float64-s1", "70 keys at 4 a call are too many calls"),
    ],
)
def test_what_cannot_be_read_is_none(case: str, why: str) -> None:
    """Where the values cannot show the weights, nothing is read."""
    assert read_sample_weights(partial(ask, candidate(SILENT)), right_problem(case), 0) is None, why


def test_a_target_that_gives_up_is_not_read() -> None:
    """A target that raises on the identity has no weights to show."""

    def raises(_: Problem) -> Answer:
        raise CandidateError("crash", "no")

    problem = right_problem(READ[0])
    broken = FunctionCandidate("x:f", raises, SILENT)
    assert read_sample_weights(partial(ask, broken), problem, 0) is None


def test_the_wrong_scale_is_seen_in_the_weights() -> None:
    """The picture of a wrong scale shows the weights that this scale makes, beside torch's."""
    bound = bind(load.load(f"{SUBJECTS}/wrong_scale.py:f"))
    (picture,) = check(bound, Options(cases=30, diagnose=False, draw=True)).pictures
    problem = right_problem(picture.case.id)
    heads = problem.num_heads
    assert heads > 1
    q, k = (
        array[picture.sample].reshape(-1, heads, problem.head_dim).swapaxes(0, 1)
        for array in (problem.query, problem.key)
    )
    odds = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(problem.case.embed_dim))
    expected = odds / odds.sum(axis=-1, keepdims=True)
    assert expected == pytest.approx(picture.candidate_weights, abs=1e-12)
    assert reference_answer(problem).weights[picture.sample] == pytest.approx(
        picture.reference_weights, abs=1e-12
    )
    assert (heads, problem.case.queries) == picture.error_units.shape
    assert picture.error_units.max() > 1


def failing(case: str, check_name: str = "output") -> tuple[FunctionCandidate, Failure]:
    """Return a target whose last head is wrong, and its failure on a case."""

    def attend(problem: Problem) -> Answer:
        answer = right(problem)
        output = answer.output.copy()
        output[..., -1] += 1
        weights = None if answer.weights is None else answer.weights * problem.dtype.type(1.5)
        return replace(answer, output=output, weights=weights)

    wrong = FunctionCandidate("x:f", attend, WHOLE)
    found = run_case(wrong, parse(case), JudgeSettings()).check_results
    (check_result,) = [each for each in found if each.check == check_name]
    first = parse("mha-N5-L13-S17-H7-D11-cross-float64-s9")
    return wrong, Failure(check_result=check_result, case=parse(case), replay="", shrunk_from=first)


def test_a_picture_is_drawn_at_sizes_that_show_something() -> None:
    """A case of two keys is drawn larger, but no larger than one can read, and fails there."""
    wrong, failure = failing("mha-N1-L2-S2-H1-D1-cross-float64-s0")
    (picture,) = pictures(wrong, [failure], JudgeSettings())
    assert (POSITIONS, POSITIONS) == (picture.case.queries, picture.case.keys)
    assert "as the target returns them" == picture.source
    case_result = run_case(wrong, picture.case, JudgeSettings())
    assert case_result.fails


def test_a_case_with_numbers_is_drawn_in_place_of_one_without() -> None:
    """Of a failure by NaN another case is drawn that fails by numbers; where none does, itself."""

    def attend(problem: Problem) -> Answer:
        answer = right(problem)
        wrong = answer.output + (np.nan if problem.case.keys == 1 else 1)
        return replace(answer, output=np.asarray(wrong, dtype=problem.dtype))

    wrong = FunctionCandidate("x:f", attend, WHOLE)
    one, several = (
        run_case(wrong, parse(case), JudgeSettings()).check_results[0]
        for case in (
            "qkv-N1-L1-S1-H1-D1-float64-s0",
            "qkv-N2-L33-S40-H9-D8-cross-boolmask-float64-s7",
        )
    )
    failure = Failure(check_result=one, case=one.case, replay="", shrunk_from=one.case)
    (drawn,) = pictures(wrong, [failure], JudgeSettings(), [one, several])
    assert (POSITIONS, POSITIONS) == (drawn.case.queries, drawn.case.keys)
    assert "boolmask" in drawn.case.id
    assert np.isfinite(drawn.error_units).all()
    (alone,) = pictures(wrong, [failure], JudgeSettings(), [one])
    assert alone.case == one.case


def test_the_worst_head_is_where_the_error_is() -> None:
    """The error in units of the allowed one is beyond 1 in the wrong head alone."""
    wrong, failure = failing("qkv-N2-L3-S4-H3-D2-cross-float64-s0")
    (picture,) = pictures(wrong, [failure], JudgeSettings())
    beyond = np.asarray((picture.error_units > 1).any(axis=1))
    assert [False] * (len(beyond) - 1) + [True] == list(beyond)


def test_averaged_weights_are_drawn_as_such() -> None:
    """A target that returns only the average is drawn beside torch's average."""
    offer = WHOLE | {"weights": ("none", "averaged")}
    wrong, failure = failing("mha-N2-L3-S4-H3-D2-cross-avgweights-float64-s0", "weights")
    narrow = FunctionCandidate("x:f", wrong.function, offer)
    (picture,) = pictures(narrow, [failure], JudgeSettings())
    assert picture.averaged
    assert 1 == len(picture.reference_weights)
    assert picture.candidate_weights is not None
    assert 1.5 * picture.reference_weights == pytest.approx(picture.candidate_weights)


def test_what_no_picture_can_show_has_none() -> None:
    """A failure of the whole run, or of a check without a picture, is not drawn."""
    wrong, failure = failing("mha-N1-L2-S2-H1-D1-cross-float64-s0")
    crashed = replace(failure, check_result=replace(failure.check_result, check="call completes"))
    run_check_results = replace(failure, shrunk_from=None)
    assert () == pictures(wrong, [crashed, run_check_results], JudgeSettings())


def test_a_run_that_holds_is_drawn_once() -> None:
    """Where nothing fails, the case of the worst error is drawn, at sizes that can be read."""
    bound = bind(load.load("mha_numpy:MultiheadAttention"))
    verdict = check(bound, Options(cases=20, draw=True))
    (picture,) = verdict.pictures
    assert verdict.worst is not None
    assert at_picture_sizes(verdict.worst.case) == picture.case
    assert max(picture.case.queries, picture.case.keys) <= POSITIONS
    assert picture.candidate_weights is not None
    assert (picture.error_units <= 1).all()
    whole = html_page.document([verdict])
    assert 3 * min(picture.case.heads_count, html_page.HEADS) == whole.count("<figure>")


def test_what_fails_at_smaller_sizes_is_not_drawn_as_holding() -> None:
    """No picture says that a run holds which would show a failure, and none without a worst."""
    wrong, failure = failing("mha-N1-L2-S2-H1-D1-cross-float64-s0")
    assert () == worst_passing(wrong, failure.check_result, JudgeSettings())
    assert () == worst_passing(candidate(), None, JudgeSettings())
    assert 1 == len(worst_passing(candidate(), failure.check_result, JudgeSettings()))


def test_a_run_that_holds_shows_weights_that_nobody_returns() -> None:
    """One narrow head with 9 keys, projected: the width is raised to 9, where P V shows P."""
    worst = parse("mha-N2-L71-S71-H1-D5-outproj-padding-maskedrows-float64-peaky-s11")
    (first, *_) = run_case(candidate(SILENT), worst, JudgeSettings()).check_results
    (picture,) = worst_passing(candidate(SILENT), first, JudgeSettings())
    assert (9, 9) == (picture.case.keys, picture.case.head_dim)
    seen = np.isfinite(picture.reference_weights)
    assert picture.candidate_weights is not None
    assert picture.reference_weights[seen] == pytest.approx(
        picture.candidate_weights[seen], abs=SOLVED
    )


def test_fitting_keeps_groups() -> None:
    """Sizes are cut to what can be drawn, but for the heads of grouped queries."""
    case = parse("qkv-N2-L50-S70-H8-D30-G2-V9-cross-float64-s2")
    fitted = at_picture_sizes(case)
    assert (POSITIONS, POSITIONS, 8, 2) == (
        fitted.queries, fitted.keys, fitted.heads_count, fitted.kv_heads_count
    )  # fmt: skip
    assert HEADS == at_picture_sizes(parse("mha-N2-L5-S5-H8-D3-float64-s2")).heads_count


@pytest.mark.parametrize("first", ["mha-N5-L13-S17-H7-D11-cross-float64-s9", READ[1]])
def test_readable_sizes(first: str) -> None:
    """Sizes lie between those of the small case and those first seen; features stay."""
    small: Case = parse("mha-N1-L2-S3-H2-D1-cross-causal-float64-s0")
    large = at_sizes_before_shrinking(small, parse(first))
    assert small.queries <= large.queries <= POSITIONS
    assert small.keys <= large.keys <= POSITIONS
    assert 2 <= large.heads_count <= HEADS
    sizes = ("queries", "keys", "heads_count", "head_dim")
    assert small == large.replace(**{name: getattr(small, name) for name in sizes})


def test_nothing_is_drawn_where_no_page_is_asked_for() -> None:
    """Pictures take calls and time, and only the page shows them."""
    bound = bind(load.load("mha_numpy:MultiheadAttention"))
    assert () == check(bound, Options(cases=12)).pictures


@pytest.mark.parametrize(
    ("heads", "kv_heads", "shown"), [(2, 0, 3), (1, 0, 1), (2, 1, 2)], ids=["more", "one", "groups"]
)
def test_a_picture_has_the_heads_at_which_a_failure_was_first_seen(
    heads: int, kv_heads: int, shown: int
) -> None:
    """Several heads become as many as then, up to a limit; one stays one, and groups stay.

    Kills the condition turned around.
    """
    case = Case(
        seed=1, form="qkv", batch=1, queries=2, keys=2, heads_count=heads, head_dim=2,
        kv_heads_count=kv_heads,
    )  # fmt: skip
    assert shown == at_sizes_before_shrinking(case, case.replace(heads_count=4)).heads_count
