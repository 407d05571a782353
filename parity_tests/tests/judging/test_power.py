"""A case says what it could have shown, and blind cases say that they are blind."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from mha_parity import catalogue
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.core.features import make_offer
from mha_parity.core.problem import Problem
from mha_parity.judging import power
from mha_parity.judging.output import judge_answer
from mha_parity.judging.power import exposed_errors
from mha_parity.oracle.error_bound import bound
from mha_parity.oracle.reference import Reference, reference_answer

WHOLE = {
    "zeros", "mean of V", "uniform weights", "keys reversed", "Q and K exchanged", "no scale",
    "scale 1/sqrt(d_model)", "softmax over queries",
}  # fmt: skip

# Case -> the gross errors to which it must be blind; all others it exposes.
BLIND = {
    "mha-N2-L7-S7-H3-D5-bias-float32-s71": (),
    "mha-N2-L7-S7-H3-D5-bias-outproj-float64-s72": (),
    # With one head, 1/sqrt(d_model) is 1/sqrt(head_dim).
    "mha-N2-L7-S7-H1-D5-bias-float32-s73": ("scale 1/sqrt(d_model)",),
    # A head width of one has the scale 1.
    "mha-N2-L7-S7-H3-D1-bias-float32-s74": ("no scale",),
    # L and S differ: exchanged, Q and K do not fit the output.
    "mha-N2-L5-S7-H3-D4-cross-bias-float32-s75": ("Q and K exchanged",),
    # One key gets all the weight, whatever its score.
    "mha-N2-L5-S1-H3-D4-cross-bias-float32-s76": (
        "mean of V", "uniform weights", "keys reversed", "Q and K exchanged", "no scale",
        "scale 1/sqrt(d_model)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", BLIND)
def test_a_case_exposes_what_it_can(words: str) -> None:
    """Each of the listed cases is blind to what its shape hides, and to nothing else."""
    problem = make_problem(parse(words))
    assert WHOLE - set(BLIND[words]) == exposed_errors(problem, reference_answer(problem))


def test_tiny_inputs_hide_the_scores() -> None:
    """With inputs a twentieth in size, bfloat16 cannot tell a missing scale from rounding."""
    problem = make_problem(parse("mha-N2-L7-S7-H3-D5-bfloat16-tiny-s77"))
    found = exposed_errors(problem, reference_answer(problem))
    assert "zeros" in found
    assert not found & {"no scale", "scale 1/sqrt(d_model)", "uniform weights"}


def test_an_empty_case_exposes_nothing() -> None:
    """Without a key or a query there is nothing to be wrong about."""
    for words in ("mha-N2-L5-S0-H3-D4-cross-float32-s78", "mha-N2-L0-S5-H3-D4-cross-float32-s79"):
        problem = make_problem(parse(words))
        assert frozenset() == exposed_errors(problem, reference_answer(problem))


@cache
def drawn() -> list[tuple[Problem, Reference, frozenset[str]]]:
    """Return 40 problems with their references, and what they expose."""
    offered = make_offer(
        dtype=("float32", "float64"), size=("small", "medium"), bias=("no", "yes"),
        out_proj=("identity", "general"),
    )  # fmt: skip
    problems = [make_problem(case) for case in draw_cases(offered, 40, 80)]
    references = [reference_answer(problem) for problem in problems]
    return [(p, r, exposed_errors(p, r)) for p, r in zip(problems, references, strict=True)]


@pytest.mark.parametrize(
    ("gross", "bug"),
    [
        ("no scale", "scale-none"),
        ("scale 1/sqrt(d_model)", "scale-dmodel"),
        ("mean of V", "mean-pooling"),
        ("softmax over queries", "softmax-query-axis"),
    ],
)
def test_power_is_what_the_judge_does(gross: str, bug: str) -> None:
    """In 40 cases what is said to be exposed is judged wrong, and what is not is not."""
    agreed = []
    for problem, reference, exposed in drawn():
        fails = any(
            each.severity.fails
            for each in judge_answer(problem, reference, catalogue.catalogue()[bug].attend(problem))
        )
        agreed.append(fails == (gross in exposed))
    assert 40 * [True] == agreed


def test_the_tolerance_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tolerance as wide as the answer, no case exposes anything."""
    problem = make_problem(parse("mha-N2-L7-S7-H3-D5-bias-float32-s71"))
    reference = reference_answer(problem)
    wide = bound(problem, reference)

    class Wide:
        output = np.full(wide.output.shape, 1e3)

    monkeypatch.setattr(power, "bound", lambda *_: Wide)
    assert frozenset() == exposed_errors(problem, reference)
