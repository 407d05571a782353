"""What a whole run makes of its cases: power, policies, and a bug in one head."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mha_parity import catalogue
from mha_parity.core.candidate import Answer, CandidateError, FunctionCandidate
from mha_parity.core.case import parse
from mha_parity.core.check_result import MASKED_ROWS, CheckResult, Severity
from mha_parity.core.features import label, make_offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import Outcome
from mha_parity.run.case_run import CaseResult
from mha_parity.run.check import check
from mha_parity.run.summary import verdict_notes
from mha_parity.targets.bind import bind

OFFERED = make_offer(
    inputs=("self", "cross"), attn=("none", "causal", "bool3d"), bias=("no", "yes"),
    dtype=("float64", "float32"), size=("small", "medium"),
)  # fmt: skip


def plain(problem: Problem) -> Answer:
    """Answer rightly."""
    return catalogue.answer_of(catalogue.Attention, problem)


def test_a_feature_that_no_case_has_is_inconclusive() -> None:
    """Three cases cannot have all features: those left out are named, and the status is 3."""
    found = check(FunctionCandidate("plain", plain, OFFERED), Options(cases=3))
    rows = [row for row in found.features if row.status == "inconclusive"]

    assert found.outcome is Outcome.INCONCLUSIVE
    assert 3 == found.outcome.exit_status
    assert rows
    assert {"no case drawn"} == {row.reason for row in rows}
    assert label(rows[0].axis, rows[0].value) in found.sentence


@pytest.mark.parametrize(
    "features",
    [
        (("size", "empty"), ("attn", "causal")),
        (("regime", "offset"), ("bias", "no")),
        (("size", "empty"), ("regime", "ties"), ("inputs", "cross")),
    ],
    ids=lambda features: "-".join(value for _, value in features),
)
def test_features_that_no_case_has_together_are_refused(
    features: tuple[tuple[str, str], ...],
) -> None:
    """Each alone has cases, and the run does not search for ever for one that has them all."""
    whole = OFFERED | {"size": ("small", "empty"), "regime": ("normal", "offset", "ties")}
    candidate = FunctionCandidate("plain", plain, whole)
    for each in features:
        assert 4 == check(candidate, Options(cases=4, features=(each,), diagnose=False)).run
    asked = " and ".join(f"{axis}={value}" for axis, value in features)
    with pytest.raises(ValueError, match=f"got {asked}, but no case of this target has them"):
        check(candidate, Options(cases=4, features=features))


def test_a_feature_that_no_case_has_is_refused_by_itself() -> None:
    """The largest number wants no output projection: where one has to be, no case has it."""
    candidate = FunctionCandidate("plain", plain, OFFERED | {"out_proj": ("general",)})
    said = "got regime=largest_value, but no case of this target can have it"
    with pytest.raises(ValueError, match=said):
        check(candidate, Options(cases=4, features=(("regime", "largest_value"),)))


def test_a_run_without_power_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no case would expose any gross error, no feature passes; as the cases are, all do."""
    candidate = FunctionCandidate("plain", plain, OFFERED)
    assert check(candidate, Options(cases=30)).outcome is Outcome.PASS
    monkeypatch.setattr("mha_parity.judging.power.exposed_errors", lambda *_: frozenset())
    found = check(candidate, Options(cases=30))
    offered = [row for row in found.features if row.status != "not offered"]

    assert found.outcome is Outcome.INCONCLUSIVE
    assert {"no case could have shown a bug"} == {row.reason for row in offered}


def test_a_run_has_one_thread_of_openmp_and_leaves_the_callers() -> None:
    """Cases wait for no other core, the diagnosis for BLAS's neither; then all is as before."""
    threads: dict[str, list[int]] = {"openmp": [], "blas": []}

    def zeros(problem: Problem) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        for each in threadpool_info():
            threads[each["user_api"]].append(each["num_threads"])
        return np.zeros(problem.output_shape, problem.dtype)

    before = {each["filepath"]: each["num_threads"] for each in threadpool_info()}
    with threadpool_limits(2):
        found = check(FunctionCandidate("zeros", zeros, OFFERED), Options(cases=3, shrink=False))
        assert {2} == {each["num_threads"] for each in threadpool_info()}
    assert before == {each["filepath"]: each["num_threads"] for each in threadpool_info()}
    assert "zeros-returned" == found.diagnosis[0].bug
    assert {1} == set(threads["openmp"])
    assert [2, 1] == [threads["blas"][0], threads["blas"][-1]]


def test_junk_fails_and_blind_cases_do_not_hide_it() -> None:
    """Zeros fail every case that has anything to show."""
    zeros = FunctionCandidate("zeros", lambda p: np.zeros(p.output_shape, p.dtype), OFFERED)
    found = check(zeros, Options(cases=12, shrink=False, diagnose=False))

    assert found.outcome is Outcome.FAIL
    assert found.failed == found.sensitivity["zeros"] == 12


@pytest.mark.parametrize("raises", [False, True])
def test_a_name_says_how_many_failures_gave_no_answer(raises: bool) -> None:
    """What a bug explains is counted over answers: cases that crashed are counted beside it."""
    wrong_scale = catalogue.catalogue()["scale-none"]

    def answer(problem: Problem) -> Answer:
        if raises and problem.case.attn == "causal":
            raise CandidateError("crash", "raised ValueError: no rule")
        return wrong_scale.attend(problem)

    offer = OFFERED | {"size": ("small",)}
    found = check(FunctionCandidate("raising", answer, offer), Options(cases=18, shrink=False))
    crashed = next((row.failed for row in found.checks if row.name == "call completes"), 0)

    assert (crashed > 1) is raises
    assert "scale-none" == found.diagnosis[0].bug
    remark = f"; {crashed} failing cases gave no answer to compare"
    assert found.diagnosis[0].evidence.endswith(remark) is raises


def one_head(problem: Problem) -> Answer:
    """Leave the scale out in the last head, where there are several."""
    right = plain(problem)
    if problem.num_heads == 1:
        return right
    last = problem.v_head_dim * (problem.num_heads - 1)
    output = right.output.copy()
    output[..., last:] = catalogue.catalogue()["scale-none"].attend(problem).output[..., last:]
    return Answer(output=output)


def test_a_bug_in_one_head_fails_the_run_and_is_placed_there() -> None:
    """A scale forgotten in the last head alone fails, though all other heads are right."""
    options = Options(cases=30, shrink=False, diagnose=False)
    found = check(FunctionCandidate("one head", one_head, OFFERED), options)
    wrong_ones = [
        each.check_result for each in found.failures if each.check_result.check == "output"
    ]

    assert found.outcome is Outcome.FAIL
    assert wrong_ones
    for each in wrong_ones:
        assert each.where is not None
        assert each.where.head == each.case.heads_count - 1


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        (None, Outcome.PASS),
        ("nan", Outcome.PASS),
        ("zero", Outcome.FAIL),
        ("uniform", Outcome.FAIL),
    ],
)
def test_policies_are_named_and_judged_on_demand(asked: str | None, outcome: Outcome) -> None:
    """Torch's NaN in rows that see no key is named, and fails only where another is wanted."""
    bound = bind(_torchs_own())
    options = Options(
        cases=32, fully_masked=asked, features=(("weights", "per_head"), ("masked_rows", "some")),  # type: ignore[arg-type]  # one of the policies
        dtypes=("float64",), shrink=False, diagnose=False,
    )  # fmt: skip
    found = check(bound, options)
    failing = {row.name for row in found.checks if row.failed}

    assert found.outcome is outcome
    assert failing == (set() if outcome is Outcome.PASS else {"fully masked rows"})
    assert any(row.name == "fully masked rows" and row.cases for row in found.checks)


def _torchs_own() -> type:
    import torch

    return torch.nn.MultiheadAttention


def test_rows_without_a_key_are_counted_in_one_note() -> None:
    """What they are, most often first, stands in one note; torch's NaN is not counted."""
    case = parse("qkv-N1-L2-S2-H2-D1-unbatched-float64-s0")
    policies = ("uniform", "uniform", "nan", "zero")
    found = [
        CaseResult(
            case=case,
            check_results=(
                CheckResult(
                    case=case,
                    check=MASKED_ROWS,
                    severity=Severity.MATCH,
                    detail=f"output: rows that see no key are {policy}.",
                ),
            ),
        )
        for policy in policies
    ]
    said = "are uniform in 2 cases, zero in 1 case, where torch's module has NaN."
    assert (f"output: rows that see no key {said}",) == verdict_notes(found)


def test_the_failure_that_is_shown_has_rows_and_keys() -> None:
    """A case without keys is shorter than the others, and shows nothing of what is wrong there."""

    def negated(problem: Problem) -> Answer:
        output = plain(problem).output
        return Answer(output=-output if problem.key.size else np.full_like(output, np.inf))

    offered = make_offer(form="qkv", projection="none", inputs=("cross",), size=("small", "empty"))
    found = check(
        FunctionCandidate("negated", negated, offered),
        Options(cases=160, diagnose=False, max_failures=0),
    )
    sizes = [(f.case.batch, f.case.queries, f.case.keys) for f in found.failures]
    assert any(row.failed for row in found.features if row.value == "empty")
    assert sizes
    assert all(min(each) > 0 for each in sizes)
