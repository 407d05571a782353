"""Libraries that compute in float32 are judged in float32, and red only where float64 is asked."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.run.check import check
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS, check_subject

SUBJECT = f"{SUBJECTS}/float32_inside.py"
RIGHT = ("projected", "with_weights", "by_torch", "one_head")


def judged(name: str, *dtypes: str, cases: int = 60) -> Verdict:
    """Return the verdict on a subject, called in this process."""
    target = f"{SUBJECT}:{name}"
    options = Options(cases=cases, dtypes=dtypes, in_process=True, shrink=False)
    with opened(target, options) as candidate:
        return check(candidate, options, target=name)


def dtypes(verdict: Verdict) -> dict[str, str]:
    """Return the status of each dtype."""
    return {row.value: row.status for row in verdict.features if row.axis == "dtype"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_float32_library_passes_in_float32_and_says_so(name: str) -> None:
    """float64 is not offered, everything else is judged, and a note says in which dtype."""
    verdict = judged(name)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.outcome.exit_status)
    assert ("not offered", "pass") == (dtypes(verdict)["float64"], dtypes(verdict)["float32"])
    (note,) = [note for note in verdict.notes if "float32" in note]
    assert note.startswith("computes in float32: float64 inputs are answered in float32")
    assert "--dtypes float64" in note


@pytest.mark.parametrize("name", RIGHT)
def test_float64_on_demand_fails_by_the_dtype_first(name: str) -> None:
    """The first sentence and the only diagnosis name the dtype and the remedy, and no formula."""
    verdict = judged(name, "float64", cases=18)
    assert (Outcome.FAIL, 18) == (verdict.outcome, verdict.failed)
    says = f"{name} computes in float32 (judge it in that: --dtypes float32), answers float64"
    assert says in verdict.sentence
    (diagnosis,) = verdict.diagnosis
    assert ("silent-downcast", True) == (diagnosis.bug, diagnosis.confident)
    assert "--dtypes float32" in diagnosis.remedy
    assert {"float64"} == {failure.case.dtype for failure in verdict.failures}


def test_a_bug_in_float32_stays_red_and_is_named() -> None:
    """A wrong scale fails in float32, and behind the dtype where float64 is asked for."""
    verdict = judged("wrong_scale")
    assert Outcome.FAIL is verdict.outcome
    assert ("scale-dmodel", "") == (verdict.diagnosis[0].bug, verdict.dtype_finding)
    asked = judged("wrong_scale", "float64")
    assert ["silent-downcast", "scale-dmodel"] == [each.bug for each in asked.diagnosis[:2]]


@pytest.mark.parametrize("name", ["cast_back", "softmax_cast_back"])
def test_float32_behind_a_float64_answer_is_a_finding_with_a_name(name: str) -> None:
    """float64 in and out with float32 inside fails in float64 alone and is called that."""
    verdict = judged(name)
    assert Outcome.FAIL is verdict.outcome
    assert ("fail", "pass") == (dtypes(verdict)["float64"], dtypes(verdict)["float32"])
    assert ("f64-capped-at-f32", True) == (verdict.diagnosis[0].bug, verdict.diagnosis[0].confident)


def test_digits_that_a_formula_loses_are_not_those_of_float32() -> None:
    """Errors of some units of float64 are right by the bounds of float32 too; it is not named."""
    verdict = check_subject("float32_inside.py:by_distances", cases=60, diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert verdict.diagnosis
    assert "f64-capped-at-f32" not in {each.bug for each in verdict.diagnosis}


def test_a_half_accumulator_shows_where_float32_is_the_widest() -> None:
    """Its roundings are smaller than what no rounding of float32 imitates, and of their pattern."""
    verdict = check_subject("float32_inside.py:sums_in_half", cases=40, diagnose=True)
    said = [each.title for each in verdict.diagnosis]
    assert any("`accumulator of P V` is rounded to float16" in each for each in said), said


def test_a_softmax_in_float32_hides_no_other_bug() -> None:
    """Its failures do not end a run: what is wrong in float32 too is asked, shown and named first.

    Counted among the 40 that end it, they are all that is said of the kernel.
    """
    verdict = check_subject(
        "float32_inside.py:softmax_and_later_keys",
        cases=200,
        diagnose=True,
        shrink=True,
        max_failures=10,
    )
    said = [each.title for each in verdict.diagnosis]
    gross, rounding = (each.check_result for each in verdict.failures if each.shrunk_from)
    assert any("the last key" in each or "S > 32" in each for each in said), said
    assert "float64 inputs are computed in float32" == said[-1]
    assert 1000 * rounding.error < gross.error
    assert gross.case.keys > 32 >= rounding.case.keys


def test_a_gross_error_of_plain_problems_does_not_hide_float32() -> None:
    """The rounding is looked for where answers are right by float32: elsewhere they are not.

    Kills plain problems for it, which slices leave out, so that sums of rows were said to be off.
    """
    verdict = check_subject("float32_inside.py:softmax_and_whole_slices", cases=120, diagnose=True)
    said = [each.title for each in verdict.diagnosis]
    assert "have weights that are all 0" in said[0], said
    assert "float64 inputs are computed in float32" == said[-1]


def test_what_float32_alone_shows_is_measured_in_float32() -> None:
    """Kills experiments in float64, in which autocast changes nothing: "wrong with float32"."""
    verdict = check_subject("float32_inside.py:autocast_of_float32", cases=120, diagnose=True)
    (found, *_) = verdict.diagnosis
    assert "is rounded to bfloat16" in found.title, verdict.diagnosis


def test_failures_of_a_softmax_in_float32_end_no_run_but_the_first() -> None:
    """They are counted where the run is to end at its first failure, and nowhere else."""
    ends = {
        options: check_subject("float32_inside.py:softmax_cast_back", cases=60, **dict([options]))
        for options in (("max_failures", 3), ("fail_fast", True))
    }
    assert {False: 60, True: 1} == {
        verdict.stopped_early: verdict.failed if verdict.stopped_early else verdict.run
        for verdict in ends.values()
    }


@pytest.mark.parametrize(("name", "named"), [
    ("Float32Mask", True), ("DtypeOfQueries", False), ("Float32MaskOfFewRows", False),
    ("LongFloat64", False),
])  # fmt: skip
def test_a_float32_mask_beside_float64_queries_is_named(name: str, named: bool) -> None:
    """Kills the scale that its answers look like, and a name where shorter rows are wrong too."""
    verdict = check_subject(f"float32_masks.py:{name}", cases=60, diagnose=True)
    assert (name == "DtypeOfQueries") == (Outcome.PASS is verdict.outcome), verdict
    titles = [each.title for each in verdict.diagnosis]
    assert named == any(each.startswith("a float32 mask is passed to") for each in titles), titles
