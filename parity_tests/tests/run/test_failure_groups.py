"""The features that explain failures, on the cases of a run and on counts written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.core.verdict import FailureGroup
from mha_parity.run.asked_cases import cases_for
from mha_parity.run.case_run import CaseResult
from mha_parity.run.failure_groups import failure_groups

PLAIN = Case(seed=0, batch=2, queries=5, keys=7, heads_count=2, head_dim=3)
OFFER = make_offer(
    dtype=("float64", "float32", "float16", "bfloat16"), padding=("none", "bool", "float"),
    attn=("none", "bool2d", "float2d", "causal"), layout=("batch_first", "unbatched"),
    inputs=("self", "cross"), bias=("no", "yes"),
)  # fmt: skip


def result(case: Case, severity: Severity = Severity.MATCH, **more: Any) -> CaseResult:
    """Return the result of a case, which could have shown a bug."""
    checks = (CheckResult(case=case, check="output", severity=severity),)
    return CaseResult(case=case, check_results=checks, **({"exposes": frozenset({"zeros"})} | more))


def results(*counts: tuple[dict[str, str], int, int]) -> list[CaseResult]:
    """Return results from (features, cases, failed)."""
    found = []
    for features, cases, failed in counts:
        case = PLAIN.replace(**features)
        found += [result(case, Severity.WRONG)] * failed + [result(case)] * (cases - failed)
    return found


@cache
def drawn(seed: int) -> tuple[Case, ...]:
    """Return the cases of a run."""
    return tuple(cases_for(FunctionCandidate("x:f", None, OFFER), OFFER, Options(seed=seed)))


def common(*features: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return sets of features from texts as attn=causal/none."""
    pairs = (feature.split("=") for feature in features)
    return tuple((axis, tuple(values.split("/"))) for axis, values in pairs)


def is_causal(case: Case) -> bool:
    """Return whether causal masks matter."""
    return case.attn == "causal" and case.queries > 1 and case.keys > 1


BUGS: dict[str, tuple[Callable[[Case], bool], list[tuple[str, ...]]]] = {
    "causal": (is_causal, [("attn=causal",)]),
    "scale": (lambda c: c.heads_count > 1 and c.regime != "zeros", [("heads=many",)]),
    "odd lengths": (lambda c: c.queries % 2 == 1, []),
    "float16": (lambda c: c.dtype == "float16", [("dtype=float16",)]),
    "two dtypes": (lambda c: c.dtype in {"float16", "bfloat16"}, [("dtype=bfloat16/float16",)]),
    "interaction": (
        lambda c: is_causal(c) and c.padding == "bool",
        [("padding=bool", "attn=causal")],
    ),
    "two bugs": (
        lambda c: is_causal(c) or c.dtype == "float16",
        [("attn=causal",), ("dtype=float16",)],
    ),
    "a bug and an interaction": (
        lambda c: c.dtype == "float16" or (is_causal(c) and c.padding == "bool"),
        [("dtype=float16",), ("padding=bool", "attn=causal")],
    ),
    "every third case": (lambda c: c.seed % 3 == 0, []),
    "all cases": (lambda c: c.seed >= 0, []),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_explained_by_its_features(name: str, seed: int) -> None:
    """Each bug has its features and no other, whatever cases were drawn; two have both."""
    fails, expected = BUGS[name]
    found = failure_groups(
        [result(c, Severity.WRONG if fails(c) else Severity.MATCH) for c in drawn(seed)]
    )
    named = {frozenset(group.common) for group in found if group.common}
    assert {frozenset(common(*features)) for features in expected} == named


def test_passing_runs_have_no_groups() -> None:
    """Without a failure there is nothing to explain."""
    assert () == failure_groups(results(({}, 40, 0), ({"attn": "causal"}, 40, 0)))


def test_one_failure_shares_nothing() -> None:
    """Of one failing case nothing is said to be common: its own id says what it has."""
    found = failure_groups(results(({}, 160, 0), ({"attn": "causal"}, 40, 1)))
    assert (FailureGroup(),) == found


def test_three_tied_keys_prove_nothing() -> None:
    """A value that 3 cases have and none of 40 failing ones is luck; of 150 cases it is not."""
    few, many = (results(({}, 50, 40), ({"regime": "ties"}, count, 0)) for count in (3, 150))
    assert (FailureGroup(),) == failure_groups(few)
    assert (FailureGroup(common=common("regime=normal")),) == failure_groups(many)


def test_few_absent_values_are_no_group() -> None:
    """Where most values fail and a plain one too, the absent ones are named instead."""
    regimes = {"normal": (60, 30), "tiny": (40, 20), "huge": (40, 20), "constant": (60, 0)}
    counts = [({"regime": name}, *numbers) for name, numbers in regimes.items()]
    assert (FailureGroup(absent=common("regime=constant")),) == failure_groups(results(*counts))


def test_what_comes_with_the_explaining_feature_is_explained() -> None:
    """All causal cases but few are unbatched: the layout has no part in the failures of its own."""
    alone, both = {"layout": "unbatched"}, {"layout": "unbatched", "attn": "causal"}
    found = failure_groups(
        results(({}, 100, 0), (alone, 40, 0), (both, 40, 35), ({"attn": "causal"}, 1, 0))
    )
    explained = common("layout=unbatched")
    assert (FailureGroup(common=common("attn=causal"), explained=explained),) == found


def test_a_failure_left_over_leaves_all_unexplained() -> None:
    """One failing case without causal: no feature is said to hold the failures."""
    found = failure_groups(results(({}, 160, 1), ({"attn": "causal"}, 40, 40)))
    assert [()] == [group.common for group in found]


def test_cases_that_could_show_nothing_are_left_out() -> None:
    """That every float16 case passes tells nothing where none could have shown a bug."""
    failing = results(({}, 40, 30))
    half = [result(PLAIN.replace(dtype="float16")) for _ in range(60)]
    blind = [replace(each, exposes=frozenset()) for each in half]
    assert [common("dtype=float64")] == [g.common for g in failure_groups(failing + half)]
    assert (FailureGroup(),) == failure_groups(failing + blind)
    unmeasured = [replace(each, exposes=None) for each in half]
    assert failure_groups(failing + half) == failure_groups(failing + unmeasured)
