"""What a run counts over its cases, on results written by hand: each rule on both its sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mha_parity.core.candidate import NOT_ASKED, NOT_CALLED, TargetError
from mha_parity.core.case import Case
from mha_parity.core.check_result import MASKED_ROWS, CheckResult, Place, Severity
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.options import Options
from mha_parity.core.parameters import Parameter, Role, Status
from mha_parity.core.verdict import TOO_COARSE, CheckRow, FeatureRow, Outcome
from mha_parity.judging.nonfinite import SEVERAL
from mha_parity.run import summary, verdict_limits
from mha_parity.run.case_run import ANSWERED, CaseResult
from mha_parity.run.demanded_rows import by_demand, fails_by_rows_alone

CASE = Case(seed=0, batch=2, queries=5, keys=7, heads_count=2, head_dim=3, inputs="cross")
MATCH, WRONG, OPEN, LESS = (
    Severity.MATCH, Severity.WRONG, Severity.INCONCLUSIVE, Severity.LESS_ACCURATE,
)  # fmt: skip
MASK = Parameter(name="mask", of="call", role=Role.MASK, meaning="True hides")


def check(severity: Severity, name: str = "output", **more: Any) -> CheckResult:
    """Return the result of one check."""
    return CheckResult(case=CASE, check=name, severity=severity, **more)


def result(*checks: CheckResult, case: Case = CASE, **more: Any) -> CaseResult:
    """Return the results of one case, which could have shown a bug."""
    return CaseResult(case=case, check_results=checks, **({"exposes": frozenset({"zeros"})} | more))


RIGHT, FAILING = result(check(MATCH)), result(check(WRONG))
LATE = result(check(Severity.TIMEOUT, ANSWERED))
UNASKED = result(check(OPEN, detail=f"{NOT_ASKED}: late"))
PASSED = (FeatureRow("bias", "yes", "pass", 3),)
UNTOLD = (*PASSED, FeatureRow("attn", "causal", "inconclusive", 3))


@pytest.mark.parametrize(
    ("results", "more", "outcome"),
    [
        ([RIGHT], {}, Outcome.PASS),
        ([RIGHT], {"run_check_failed": True}, Outcome.FAIL),
        ([RIGHT, RIGHT, FAILING], {}, Outcome.FAIL),
        ([RIGHT, LATE, LATE], {}, Outcome.FAIL),
        ([RIGHT, RIGHT, LATE, LATE], {}, Outcome.INCONCLUSIVE),
        ([RIGHT, LATE, UNASKED], {}, Outcome.INCONCLUSIVE),
        ([RIGHT, LATE, LATE, UNASKED], {}, Outcome.FAIL),
        ([RIGHT], {"rows": UNTOLD}, Outcome.INCONCLUSIVE),
        ([RIGHT, result(check(OPEN, detail=f"{NOT_CALLED}: no"))], {}, Outcome.INCONCLUSIVE),
        ([RIGHT, result(check(OPEN, detail="coarse"))], {}, Outcome.PASS),
        ([], {}, Outcome.INCONCLUSIVE),
        ([RIGHT], {"parameters": [MASK]}, Outcome.INCONCLUSIVE),
        ([RIGHT], {"parameters": [replace(MASK, status=Status.TRIED)]}, Outcome.PASS),
        ([RIGHT, result(check(LESS, improbable=True))], {}, Outcome.INCONCLUSIVE),
        ([result(check(LESS, improbable=True))], {"max_times_torch": 9.0}, Outcome.PASS),
    ],
)
def test_the_outcome_of_a_run(
    results: list[CaseResult], more: dict[str, Any], outcome: Outcome
) -> None:
    """Any failure fails; time-outs do where they are most of what was asked; doubt leaves open.

    Kills "inconclusive passes", and `>=` for `>` in most.
    """
    given: dict[str, Any] = {"rows": PASSED, "parameters": (), "run_check_failed": False}
    given |= more
    found = summary.outcome(
        results, given["rows"], given["parameters"], given["run_check_failed"],
        given.get("max_times_torch"),
    )  # fmt: skip
    assert outcome is found


def test_the_largest_factor_of_an_improbable_error_is_kept() -> None:
    """In how many checks, and how far; none where the caller says which factor is right."""
    results = [
        result(check(LESS, improbable=True, times_torch=3.0)),
        result(check(MATCH, times_torch=9.0), check(LESS, improbable=True, times_torch=5.0)),
        result(check(LESS, improbable=True)),
    ]
    assert (3, 5.0) == summary.improbable(results)
    assert (0, 0.0) == summary.improbable(results, 1.0)
    assert (0, 0.0) == summary.improbable([RIGHT])


def test_the_worst_error_is_the_largest_in_units_of_what_is_allowed() -> None:
    """Of a target that is less accurate and nowhere wrong, too; what has no place counts not.

    An inconclusive one counts not: rounding may reach it. Kills the largest error by itself, and
    the worst among failures alone.
    """
    place = Place(0, 0, 1, 2)
    small = check(MATCH, error=5.0, allowed=9.0, where=place)
    worst = check(LESS, error=2.0, allowed=1.0, where=place)
    nowhere = check(WRONG, error=99.0, allowed=1.0)
    exact = check(WRONG, error=99.0, allowed=0.0, where=place)
    void = check(Severity.INCONCLUSIVE, error=99.0, allowed=1.0, where=place)
    assert summary.worst([small, worst, nowhere, exact, void]) is worst
    assert summary.worst([nowhere, exact]) is None


def test_a_feature_has_the_status_of_its_cases() -> None:
    """Fail, pass, inconclusive, not offered, not drawn: each with its number of cases and its note.

    Kills each count taken for another, and a case that shows nothing counted as one that passed.
    """
    blind = result(check(MATCH), case=CASE.replace(attn="bool2d"), exposes=frozenset())
    open_case = result(check(OPEN), case=CASE.replace(attn="float2d"))
    wrong = result(check(WRONG), case=CASE.replace(attn="causal"), seconds=2.0)
    right = result(check(MATCH), case=CASE.replace(attn="causal"), seconds=1.0)
    asked = make_offer(
        inputs="cross", attn=("none", "bool2d", "float2d", "bool3d", "causal"),
        regime=("normal", "infinite_value"), size=("small", "empty"), gradients="no",
    )  # fmt: skip
    offered = asked | {"padding": ("none", "bool"), "gradients": ("no", "yes")}
    reasons = {("padding", "float"): "no", ("padding", "bool"): "unused"}
    results = [RIGHT, RIGHT, blind, open_case, wrong, right]
    rows = summary.feature_rows(results, asked, offered, reasons)
    found = {(row.axis, row.value): row for row in rows}
    for whole, left_out in ((offered, [("padding", "bool")]), (asked, [])):
        narrowed = summary.feature_rows(results, asked, offered, reasons, whole=whole)
        assert left_out == [(r.axis, r.value) for r in narrowed if r.status == "left out"]
    expected = {
        ("attn", "none"): ("pass", 2, "", 0),
        ("attn", "bool2d"): ("inconclusive", 1, "no case could have shown a bug", 0),
        ("attn", "float2d"): ("inconclusive", 1, "no case could have shown a bug", 0),
        ("attn", "bool3d"): ("inconclusive", 0, "no case drawn", 0),
        ("attn", "causal"): ("fail", 2, "1 of 2 fail", 1),
        ("attn", "float3d"): ("not offered", 0, "", 0),
        ("padding", "bool"): ("not offered", 0, "", 0),
        ("padding", "float"): ("not offered", 0, "no", 0),
        ("regime", "infinite_value"): ("not drawn", 0, "--cases 500 has some", 0),
        ("regime", "largest_value"): ("not offered", 0, "", 0),
        ("size", "empty"): ("pass", 0, "", 0),
    }
    for feature, (status, cases, note, failed) in expected.items():
        row = found[feature]
        assert (status, cases, note, failed) == (row.status, row.cases, row.reason, row.failed), row
    assert 3.0 == found["attn", "causal"].seconds
    assert ("bias", "in") not in found
    assert ("bias", "out") not in found
    assert ("gradients", "yes") not in found
    axes = [row.axis for row in rows]
    assert axes == sorted(axes, key=list(AXES).index)


def test_inconclusive_cases_are_counted_by_their_reason() -> None:
    """A call that was not made says so itself; all else is rounding. Failing cases have none."""
    results = [
        result(check(MATCH), check(OPEN, detail="a tenth")),
        result(check(OPEN, detail="too coarse"), check(OPEN, ANSWERED, detail="late.\nmore")),
        result(check(OPEN, ANSWERED, detail="late.\nmore")),
        result(check(OPEN), check(WRONG)),
        RIGHT,
    ]
    assert {TOO_COARSE: 2, "late": 1} == summary.reasons(results)


def test_checks_are_counted_with_their_failures_and_their_time() -> None:
    """What held is a check as well; those over the run count once and take no time."""
    results = [
        result(check(MATCH), check(WRONG, "weights"), held=("determinism",), seconds=1.0),
        result(check(WRONG), seconds=2.0),
    ]
    over_run = [check(WRONG, "systematic error"), check(MATCH, "overflow")]
    assert (
        CheckRow("output", 2, 1), CheckRow("weights", 1, 1), CheckRow("determinism", 1, 0),
        CheckRow("systematic error", 1, 1), CheckRow("overflow", 1, 0),
    ) == summary.check_rows(results, over_run)  # fmt: skip
    times = [row.seconds for row in summary.check_rows(results, over_run)]
    assert [3.0, 1.0, 1.0, 0.0, 0.0] == times


def test_power_is_counted_where_it_was_measured() -> None:
    """None is not measured, and an empty set shows nothing."""
    results = [RIGHT, result(exposes=frozenset({"zeros", "no scale"})),
               result(exposes=frozenset()), result(exposes=None)]  # fmt: skip
    assert {"zeros": 2, "no scale": 1} == summary.exposing_cases(results)
    assert 3 == summary.measured_cases(results)


def test_notes_say_what_a_verdict_leaves_open() -> None:
    """Cases that were not asked, accuracy, masked rows, meanings of masks, remarks: each once."""
    rows = "Rows that see no key are"
    results = [
        result(check(OPEN, detail=f"{NOT_ASKED}: a\nmore"), remarks=("r",)),
        result(check(OPEN, detail=f"{NOT_ASKED}: b"), remarks=("r", "s")),
        result(check(OPEN, detail=f"{NOT_CALLED}: c")),
        result(check(MATCH, MASKED_ROWS, detail=f"{rows} zero.")),
        result(check(MATCH, MASKED_ROWS, detail=f"{rows} {SEVERAL}.")),
        result(check(MATCH, MASKED_ROWS, detail=f"{rows} nan.")),
        result(check(WRONG, MASKED_ROWS, detail=f"{rows} other.")),
        result(check(LESS, times_torch=3.25), check(LESS)),
    ]
    assert (
        f"2 cases: {NOT_ASKED}: b",
        f"1 case: {NOT_CALLED}: c",
        "r",
        "s",
        "`mask`: True hides",
        "less accurate than torch by a factor of up to 3.2 in 2 checks, within the rounding bound",
        f"{rows} zero in 1 case, where torch's module has NaN.",
    ) == summary.verdict_notes(results, [MASK, replace(MASK, meaning="")])
    assert () == summary.verdict_notes([RIGHT])
    (said,) = summary.verdict_notes([result(check(LESS, times_torch=1.04))])
    assert "less accurate than torch in 1 check, within the rounding bound" == said


def test_a_target_that_never_answers_is_refused_by_what_it_did_most() -> None:
    """The first of the most frequent kind is quoted; one answer, or a failure of one, is enough."""
    crash = result(check(Severity.CRASH, ANSWERED, detail=f"{NOT_CALLED}: raised X\nTraceback"))
    many = [LATE, crash, crash, UNASKED]
    many[3] = result(check(OPEN, ANSWERED, detail=f"{NOT_ASKED}: z"))
    said = r"^f could not be called as qkv: raised X; none of 3 cases was answered, the first was"
    with pytest.raises(TargetError, match=said):
        summary.refuse_unanswered("f", "qkv", many)
    for answered in (RIGHT, FAILING, result(check(LESS)), replace(LATE, held=("determinism",))):
        summary.refuse_unanswered("f", "qkv", [*many, answered])
    summary.refuse_unanswered("f", "qkv", [])


def test_a_small_call_that_did_not_end_is_the_reason_of_a_refusal() -> None:
    """What its signature alone makes of it is no mistake of the target."""
    crash = result(check(Severity.CRASH, ANSWERED, detail="raised X"))
    said = (
        r"^f could not be called: of the small calls .* one hung, and as qkv, by its signature "
        r"alone, it raised X; none of 1 case was answered, .*; raise --timeout or --memory, or"
    )
    with pytest.raises(TargetError, match=said):
        summary.refuse_unanswered("f", "qkv", [crash], "hung")


@pytest.mark.parametrize(
    ("alike", "failing", "passing", "said"),
    [
        ([False] * 4, 4, 4, True), ([False] * 3, 4, 4, False), ([False] * 4, 4, 5, False),
        ([False] * 4, 5, 5, True), ([False] * 4, 3, 0, False), ([False, True] * 4, 8, 0, False),
    ],
)  # fmt: skip
def test_a_border_between_equal_and_other_lengths_is_said(
    alike: list[bool], failing: int, passing: int, said: bool
) -> None:
    """Four cases of either kind and half of the failures at least, none of them at S = L."""
    square = CASE.replace(keys=5)
    results = [replace(FAILING if fails else RIGHT, case=square) for fails in alike]
    results += [FAILING] * failing + [RIGHT] * passing + [result(check(OPEN))] * 9
    found = verdict_limits.fails_cross(results)
    assert bool(found) is said
    assert not said or f"fails {failing} of {failing + passing} cases of S unlike L" in found


@pytest.mark.parametrize(
    ("failing", "of_float32", "of_float64", "said"),
    [(5, 9, 4, True), (5, 10, 4, False), (4, 4, 4, False), (5, 9, 3, False)],
)
def test_that_one_dtype_alone_fails_is_said_where_half_of_its_cases_do(
    failing: int, of_float32: int, of_float64: int, said: bool
) -> None:
    """Kills five failures by chance: another reason fails few cases, in whatever dtype they are."""
    right = [replace(RIGHT, case=CASE.replace(dtype=dtype)) for dtype in ("float32", "float64")]
    results = [replace(FAILING, case=right[0].case)] * failing
    results += right[:1] * (of_float32 - failing) + right[1:] * of_float64
    found = verdict_limits.fails_in_one_dtype(results)
    expected = "fails in float32 alone; float64 holds, which --dtypes float64 judges alone."
    assert (expected if said else "") == found


def test_what_rows_without_a_key_are_is_named_with_the_demand() -> None:
    """From the sentences of failing checks alone, each word once; two at once where no other is."""
    details = (
        "rows are zero, but",
        "rows are neither nan, zero nor uniform, but",
        "rows are zero, but",
    )
    failing = [result(check(WRONG, MASKED_ROWS, detail=text)) for text in details]
    assert all(map(fails_by_rows_alone, failing))
    assert not fails_by_rows_alone(result(check(WRONG, MASKED_ROWS), check(WRONG)))
    assert not fails_by_rows_alone(RIGHT)
    (found,) = by_demand(failing, "nan")
    assert (
        "rows that see no key are zero or none of these in 3 cases, and --fully-masked asks for NaN"
    ) == found.title
    (one,) = by_demand(failing[:1], "uniform")
    assert "are zero in 1 case, and --fully-masked asks for the mean of the values" in one.title
    both = result(check(WRONG, MASKED_ROWS, detail=f"rows are {SEVERAL}, but should be nan."))
    (several,) = by_demand([both], "nan")
    assert several.title.startswith("rows that see no key are zero and the mean of the values at ")
    assert "are zero in 2 cases" in by_demand([failing[0], both], "nan")[0].title
    assert () == by_demand(failing, None) == by_demand([], "nan")


def test_parameters_that_fixed_features_leave_out_are_excluded() -> None:
    """Of masks by `attn` and `padding`, of keys by `inputs`, of all by a path of torch."""
    keys = Parameter(name="keys", of="call", role=Role.KEYS)

    def statuses(**options: Any) -> list[Status]:
        found = summary.parameters_with_status([MASK, keys], [RIGHT], Options(**options))
        return [each.status for each in found]

    left, out = Status.NOT_TRIED, Status.EXCLUDED
    assert [left, left] == statuses() == statuses(features=(("bias", "yes"),))
    assert [out, left] == statuses(features=(("attn", "none"),))
    assert [out, left] == statuses(features=(("padding", "none"),))
    assert [left, out] == statuses(features=(("inputs", "self"),))
    assert [out, out] == statuses(path="flash")
    (tried,) = summary.parameters_with_status(
        [MASK], [replace(RIGHT, parameters={"call.mask": True})], Options(path="flash")
    )
    assert tried.status is Status.TRIED
