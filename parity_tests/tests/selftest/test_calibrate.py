"""The calibration counts what it says, and the published figures are those of the rule in force."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue
from mha_parity.core.case import Case, parse
from mha_parity.judging.output import DEFAULT_SETTINGS, JudgeSettings
from mha_parity.oracle.eval_orders import EVAL_ORDERS, K
from mha_parity.oracle.reference import reference_answer
from mha_parity.selftest import calibrate, calibrate_case, calibrate_gradients
from mha_parity.selftest.calibrate import (
    DATA,
    GRID,
    Calibration,
    CalibrationRow,
    calibration_markdown,
    main,
)
from mha_parity.selftest.calibrate_case import (
    FAMILIES,
    Counts,
    bugs_of,
    count_verdicts,
    random_order,
    upper_limit,
)
from mha_parity.selftest.calibrate_gradients import KINDS, count_gradient_verdicts
from mha_parity.selftest.provenance import without_origin

CASE = parse("mha-N2-L5-S7-H3-D4-cross-bias-float32-s81")
# The share of right answers that may be called less accurate (they pass): in a run of 500 cases
# with output and weights, one in four runs has one.
RARE = 2.5e-4


def of_case(seed: int, settings: JudgeSettings = DEFAULT_SETTINGS) -> Counts:
    """Count the verdicts on answers to one case."""
    problem = make_problem(CASE)
    return count_verdicts(problem, reference_answer(problem), random.Random(seed), settings)


def test_upper_limits_are_clopper_pearsons() -> None:
    """No event in n: 1 - 0.01^(1/n). One in two at 95 %: 0.9747 (tables). All of them: 1."""
    assert pytest.approx(1 - 0.01 ** (1 / 100_000)) == upper_limit(0, 100_000)
    assert pytest.approx(0.99**0.5) == upper_limit(1, 2)
    assert 1.0 == upper_limit(5, 5)


def test_random_orders_are_none_of_the_yardstick() -> None:
    """What is judged is not what it is judged by: the orders are others, and of many kinds."""
    rng = random.Random(82)
    drawn = {random_order(rng) for _ in range(300)}
    assert not drawn & set(EVAL_ORDERS)
    assert len(drawn) > 250


def test_right_and_wrong_answers_are_counted() -> None:
    """One case: 20 check results of right answers, all of them matches; bugs in every family."""
    counts = sum((of_case(s) for s in range(6)), start=of_case(6))
    assert 7 * calibrate_case.ORDERS_A_CASE == counts["right", "float32", "match"]
    for family in FAMILIES:
        assert sum(n for (kind, *_), n in counts.items() if kind == family) > 0, family
    assert counts["structural", "float32", "wrong"] > 0


def test_a_judge_that_allows_nothing_raises_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """With k = 0, no floor and no bound, right answers fail: the count of false alarms can rise."""
    monkeypatch.setattr("mha_parity.judging.output.ROUNDINGS", 0)

    class Nothing:
        output = np.zeros((2, 5, 12))
        weights = np.zeros((2, 3, 5, 7))

    monkeypatch.setattr("mha_parity.judging.output.bound", lambda *_: Nothing)
    counts = of_case(0, JudgeSettings(k=1e-9))
    assert counts["right", "float32", "wrong"] > 0


def test_a_judge_that_allows_all_misses_bugs() -> None:
    """With k = 1e9 no bug that gives numbers is wrong: the count of misses can rise."""
    counts = of_case(0, JudgeSettings(k=1e9))
    assert not counts["precision", "float32", "wrong"]
    assert counts["precision", "float32", "match"] > 0


def test_right_and_wrong_gradients_are_counted() -> None:
    """One case: right gradients are all matches; half a part is wrong, unless all is allowed."""
    problem = make_problem(CASE)
    reference = reference_answer(problem)
    right, wrong = KINDS
    counts = count_gradient_verdicts(problem, reference, random.Random(0), DEFAULT_SETTINGS)
    arrays = 3 + len(problem.state())
    assert counts[right, "float32", "match"] == arrays * calibrate_gradients.ORDERS_A_CASE
    assert sum(n for (kind, *_), n in counts.items() if kind == right) == sum(
        n for (kind, _, severity), n in counts.items() if (kind, severity) == (right, "match")
    )
    assert counts[wrong, "float32", "wrong"] > 0
    assert {"wrong"} == {severity for kind, _, severity in counts if kind == wrong}
    lenient = count_gradient_verdicts(problem, reference, random.Random(0), JudgeSettings(k=1e9))
    assert not lenient[wrong, "float32", "wrong"]


def test_a_small_calibration_runs_from_end_to_end(tmp_path: Path) -> None:
    """The command draws, splits, judges and writes the table and its figures."""
    main(["--cases", "8", "--workers", "0", "--to", str(tmp_path)])
    figures = json.loads((tmp_path / "calibration.json").read_text("utf-8"))
    assert 6 == figures["cases"]
    right = next(r for r in figures["rows"] if (r["kind"], r["dtype"]) == ("right", "all"))
    assert 0 == right["failed"]
    assert right["judged"] >= 6 * calibrate_case.ORDERS_A_CASE
    assert f"{right['judged']:,} judgements" in (tmp_path / "calibration.md").read_text("utf-8")


def published() -> Calibration:
    """Return the published figures."""
    figures = json.loads((DATA / "calibration.json").read_text("utf-8"))
    return Calibration(
        **{**figures, "rows": tuple(CalibrationRow(**row) for row in figures["rows"])}
    )


def test_the_published_figures_are_of_the_rule_in_force() -> None:
    """The k in force is the one that was fitted, and the table is made from the figures."""
    found = published()
    assert K == found.k
    assert K == min(k for k in GRID if found.beyond[f"{k:g}"] <= RARE)
    shown = (DATA / "calibration.md").read_text("utf-8")
    assert calibration_markdown(found).rstrip() == without_origin(shown)


def test_the_published_false_alarms_are_none() -> None:
    """At least 100,000 right answers to problems that k was not fitted to; none failed."""
    right = next(row for row in published().rows if (row.kind, row.dtype) == ("right", "all"))
    assert right.judged >= 100_000
    assert 0 == right.failed
    assert right.limit < 5e-5


def test_the_published_misses_are_few() -> None:
    """In float32 and float64 fewer than one structural or one-head bug in fifty passes."""
    kinds, dtypes = ("structural", "one head"), ("float32", "float64")
    rows = {(row.kind, row.dtype): row for row in published().rows}
    for row in (rows[kind, dtype] for kind in kinds for dtype in dtypes):
        assert (row.match + row.less_accurate) / row.judged < 0.02, row


def test_the_two_parts_share_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The problems k is fitted on are not those it is published for."""
    seen: dict[str, list[str]] = {"fit": [], "publish": []}

    def note(name: str, result: object, cases: Sequence[Case]) -> object:
        seen[name] += [case.id for case in cases]
        return result

    monkeypatch.setattr(calibrate, "fit_k", partial(note, "fit", []))
    monkeypatch.setattr(calibrate, "count_case_verdicts", partial(note, "publish", Counter()))
    calibrate.calibrate(120, 83)
    assert [30, 90] == [len(ids) for ids in seen.values()]
    assert not set(seen["fit"]) & set(seen["publish"])


@pytest.mark.parametrize("family", ["structural", "one head"])
def test_only_bugs_that_show_in_a_plain_call_are_planted(family: str) -> None:
    """What a layer does wrong with dropout alone is no miss where nothing is dropped."""
    planted = {bug.id for bug in bugs_of(family, "float64")}
    assert "scale-none" in planted
    assert not planted & {bug.id for bug in catalogue().values() if not bug.plain}
    assert {"sticky-eval", "weights-before-dropout"} <= {*catalogue()} - planted
