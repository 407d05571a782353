"""An infinite gradient is rounding where the right one and its bound pass the dtype's range."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.check_result import Severity
from mha_parity.judging import gradients
from mha_parity.judging.gradients import judge_gradients
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.reference_gradients import ReferenceGradient, reference_gradients


@pytest.mark.parametrize(
    ("words", "sign", "severity"),
    [
        ("mha-N1-L33-S33-H16-D5-grad-float16-widerange-s31", 1, Severity.INCONCLUSIVE),
        ("mha-N1-L33-S33-H16-D5-grad-float16-widerange-s31", -1, Severity.INCONCLUSIVE),
        ("mha-N2-L5-S5-H2-D5-grad-float16-s31", 1, Severity.WRONG),
    ],
    ids=["next to the range", "of either sign", "far from it"],
)
def test_infinity_next_to_the_range_proves_nothing(
    words: str, sign: int, severity: Severity
) -> None:
    """Where the right gradient and its bound pass float16's range it may be rounding, else not."""
    problem = make_problem(parse(words))
    reference = reference_answer(problem)
    right = reference_gradients(problem, reference)
    name, most = "in_proj_weight", float(np.finfo(np.float16).max)
    reach = np.abs(right[name].value).astype(float) + right[name].limit
    place = np.unravel_index(int(reach.argmax()), reach.shape)
    assert ("widerange" in words) == (reach[place] > most)
    with np.errstate(over="ignore"):
        found = {key: each.value.astype(np.float16) for key, each in right.items()}
    assert np.isfinite(found[name][place])
    found[name][place] = np.copysign(np.inf, sign * right[name].value[place])
    answer = Answer(output=reference.output.astype(np.float16), gradients=found)
    results = {each.check: each for each in judge_gradients(problem, reference, answer)}
    assert severity is results[f"gradient of {name}"].severity


@pytest.mark.parametrize(
    ("sign", "severity"), [(1, Severity.INCONCLUSIVE), (-1, Severity.WRONG)], ids=["+", "-"]
)
def test_infinity_is_rounding_on_the_side_that_the_bound_reaches(
    monkeypatch: pytest.MonkeyPatch, sign: int, severity: Severity
) -> None:
    """60000 with a bound of 6000 passes 65504, and not -65504. Kills the sign of the bound."""
    problem = make_problem(parse("mha-N2-L5-S5-H2-D5-grad-float16-s31"))
    reference = reference_answer(problem)
    right = reference_gradients(problem, reference)
    whole = right["in_proj_weight"]
    value, limit = whole.value.copy(), whole.limit.copy()
    value[3, 2], limit[3, 2] = 60000, 6000
    right["in_proj_weight"] = ReferenceGradient(value, limit)
    monkeypatch.setattr(gradients, "reference_gradients", lambda *_: right)
    found = {name: each.value.astype(np.float16) for name, each in right.items()}
    found["in_proj_weight"][3, 2] = sign * np.inf
    answer = Answer(output=reference.output.astype(np.float16), gradients=found)
    results = {each.check: each for each in judge_gradients(problem, reference, answer)}
    assert severity is results["gradient of in_proj_weight"].severity
