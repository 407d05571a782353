"""The one sentence of a verdict, in each of its forms, and the verdict as a number and a truth."""

from __future__ import annotations

from typing import Any

import pytest

from mha_parity.core.case import Case
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.identity_card import ExperimentResult, IdentityCard
from mha_parity.core.parameters import Parameter, Role, Status
from mha_parity.core.verdict import Diagnosis, Failure, FeatureRow, Outcome, Verdict

CASE = Case(seed=0, batch=2, queries=3, keys=4, heads_count=2, head_dim=3)
MASK = Parameter(name="m", of="call", role=Role.MASK, status=Status.TRIED)


def verdict(outcome: Outcome, failed: int = 0, inconclusive: int = 0, **more: Any) -> Verdict:
    """Return a verdict over 9 cases."""
    passed = 9 - failed - inconclusive
    given: dict[str, Any] = {"convention": "qkv", "features": (), "checks": (), "failures": ()}
    return Verdict(
        target="f", outcome=outcome, run=9, passed=passed, failed=failed,
        inconclusive=inconclusive, **(given | more),
    )  # fmt: skip


def failure(check: str, detail: str) -> Failure:
    """Return a failed check with this sentence."""
    found = CheckResult(case=CASE, check=check, severity=Severity.WRONG, detail=detail)
    return Failure(check_result=found, case=CASE, replay="")


def parameter(name: str, role: Role, status: Status, meaning: str = "") -> Parameter:
    """Return a parameter of the call."""
    return Parameter(name=name, of="call", role=role, status=status, meaning=meaning)


def rows(count: int) -> tuple[FeatureRow, ...]:
    """Return a feature that passed, and `count` that no case could decide."""
    values = ("bool2d", "float2d", "bool3d", "float3d", "causal")[:count]
    untold = (FeatureRow("attn", value, "inconclusive", 2) for value in values)
    return (FeatureRow("bias", "yes", "pass", 3), *untold)


PASS, FAIL, OPEN = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
OTHERS = (
    parameter("a", Role.DROPOUT, Status.NOT_TRIED),
    parameter("b", Role.MASK, Status.TRIED, "True hides, (L, S), at L = S alone"),
    parameter("c", Role.CACHE, Status.DEFAULT_ONLY),
    parameter("d", Role.MASK, Status.EXCLUDED),
    parameter("e", Role.DROPOUT, Status.NOT_TRIED),
)
LEFT_OUT = (
    "; parameters not tried: a, e; parameters left at default: c; parameters excluded: d"
    "; passed at L = S alone: b"
)


def dtypes(*raising: str) -> tuple[FeatureRow, ...]:
    """Return float32 that passed, and dtypes that raise."""
    rows = (FeatureRow("dtype", each, "not offered", 0, "raised TypeError") for each in raising)
    return (FeatureRow("dtype", "float32", "pass", 3), *rows)


UNSHOWN, ASK = "none of 9 cases could have shown a bug in", ": ask for more"
SENTENCES: list[tuple[Verdict, str]] = [
    (verdict(PASS), "Parity holds: f equals torch in 9 of 9 cases."),
    (verdict(PASS, parameters=OTHERS), f"Parity holds: f equals torch in 9 of 9 cases{LEFT_OUT}."),
    (
        verdict(PASS, features=dtypes("float64", "bfloat16")),
        "Parity holds: f equals torch in 9 of 9 cases; calls raise in float64, bfloat16.",
    ),
    (
        verdict(PASS, features=dtypes("bfloat16")),
        "Parity holds: f equals torch in 9 of 9 cases.",
    ),
    (verdict(PASS, 0, 2), "Parity holds: f equals torch in 7 of 9 cases; 2 inconclusive."),
    (
        verdict(PASS, 0, 3, reasons={"coarse": 1, "NaN": 2}),
        "Parity holds: f equals torch in 6 of 9 cases; 3 inconclusive, 2 of them: NaN.",
    ),
    (
        verdict(PASS, 0, 3, reasons={"coarse": 3}),
        "Parity holds: f equals torch in 6 of 9 cases; 3 inconclusive: coarse.",
    ),
    (verdict(FAIL, 4), "Parity does not hold: f fails 4 of 9 cases."),
    (
        verdict(FAIL, 4, 2),
        "Parity does not hold: f fails 4 of 9 cases; 2 inconclusive.",
    ),
    (
        verdict(FAIL, 4, dtype_finding="answers in float32"),
        "Parity does not hold: f answers in float32, and fails 4 of 9 cases.",
    ),
    (
        verdict(FAIL, 1, stopped_early=True),
        "Parity does not hold: f fails 1 of the first 9 cases.",
    ),
    (
        verdict(FAIL, failures=(failure("bias", "is 3 (a) long."), failure("sum", "is 4."))),
        "Parity does not hold: f: bias is 3; sum is 4; no single one of 9 cases fails.",
    ),
    (
        verdict(OPEN, 2, failures=(failure("output", "gave no answer\nTraceback"),)),
        (
            "Inconclusive: f gave no answer in 2 of 9 cases; raise --timeout, or mend what does "
            "not end."
        ),
    ),
    (verdict(OPEN, 0, 9), "Inconclusive: f: 9 of 9 cases could not be judged."),
    (
        verdict(OPEN, 0, 2, features=rows(1)),
        f"Inconclusive: f: {UNSHOWN} boolean attn_mask (L, S){ASK}.",
    ),
    (
        verdict(OPEN, features=rows(3)),
        (
            f"Inconclusive: f: {UNSHOWN} boolean attn_mask (L, S); "
            f"float attn_mask (L, S); boolean attn_mask per sample and head{ASK}."
        ),
    ),
    (
        verdict(OPEN, features=rows(5)),
        (
            f"Inconclusive: f: {UNSHOWN} boolean attn_mask (L, S); "
            f"float attn_mask (L, S); boolean attn_mask per sample and head and 2 more{ASK}."
        ),
    ),
    (
        verdict(OPEN, parameters=OTHERS),
        f"Inconclusive: f: 0 of 9 cases could not be judged{LEFT_OUT}.",
    ),
    (
        verdict(OPEN, improbable=(2, 12.34)),
        (
            "Inconclusive: f is less accurate than torch, up to 12 times, in 2 of 9 cases, which "
            "rounding in their dtype does not explain; compute in that dtype, or say by "
            "--max-times-torch which factor is right."
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "sentence"), SENTENCES)
def test_a_verdict_is_one_sentence(found: Verdict, sentence: str) -> None:
    """Kills each condition negated: a count that is left out, or said where it is 0."""
    assert sentence == found.sentence
    assert f"<Verdict: {sentence}>" == repr(found)


def test_a_run_of_one_case_has_one_case() -> None:
    """Kills the plural for one, and "the first 1"."""
    one = Verdict(
        target="f", convention="qkv", outcome=FAIL, run=1, passed=0, failed=1, inconclusive=0,
        features=(), checks=(), failures=(), stopped_early=True,
    )  # fmt: skip
    assert one.sentence.endswith("f fails the first case.")


def test_an_untried_mask_is_said_beside_fewer_digits() -> None:
    """Both are in the sentence of a run that is inconclusive by both."""
    untried = parameter("m", Role.MASK, Status.NOT_TRIED)
    said = verdict(OPEN, parameters=(untried, *OTHERS), improbable=(2, 12.34)).sentence
    assert "f is less accurate than torch, up to 12 times" in said
    assert "which factor is right: no case passed `m` (mask); say what it means" in said
    assert said.endswith(f"--without m{LEFT_OUT}.")
    alone = verdict(OPEN, parameters=(untried,)).sentence
    assert alone.startswith("Inconclusive: f: no case passed `m` (mask)")


@pytest.mark.parametrize(("outcome", "status"), [(PASS, 0), (FAIL, 1), (OPEN, 3)])
def test_parity_holds_where_the_run_passed_alone(outcome: Outcome, status: int) -> None:
    """2 is the status of a run that could not start. Kills "inconclusive holds"."""
    found = verdict(outcome)
    assert status == outcome.exit_status
    assert found.holds is bool(found) is (outcome is PASS)


@pytest.mark.parametrize("measured", [True, False, None])
def test_a_card_is_torchs_without_a_departure_and_a_cause(measured: bool | None) -> None:
    """What could not be measured is no departure. Kills `is True` for `is not False`."""
    result = ExperimentResult(experiment="scale", sentence="", as_torch=measured)
    given: dict[str, Any] = {"target": "f", "convention": "qkv", "sentence": "", "environment": {}}
    right = ExperimentResult(experiment="mask", sentence="")
    assert IdentityCard(measures=(right, result), **given).as_torch is (measured is not False)
    cause = Diagnosis(bug=None, title="no scale")
    assert not IdentityCard(measures=(right,), causes=(cause,), **given).as_torch
