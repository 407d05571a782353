"""Inputs of their own for keys and values are judged where as many keys as queries are answered."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

checked = checks_of("one_length.py", cases=60)


@pytest.mark.parametrize("name", ["OneLength", "Causal"])
def test_right_ones_pass_with_three_inputs_of_one_length(name: str) -> None:
    """What raises for other lengths is said in a note, and S is L in every case."""
    verdict = checked(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    asked = {(row.axis, row.value) for row in verdict.features if row.status == "pass"}
    assert {("inputs", "self"), ("inputs", "cross"), ("inputs", "distinct")} <= asked
    assert "passed at L = S alone: key" in verdict.sentence
    (note,) = (each for each in verdict.notes if each.startswith("`key`: rows of keys are taken"))
    assert name == "Causal" or "(raised RuntimeError: shape" in note


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("KeysForQueries", "query and key are exchanged"),
        ("QueriesForValues", "value is not read: query is taken in its place"),
    ],
)
def test_an_input_in_the_place_of_another_fails(name: str, said: str) -> None:
    """Self-attention is right, and with keys of their own nothing is. Kills the inputs untried."""
    verdict = checked(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert said in verdict.diagnosis[0].title


def test_a_mistake_of_the_keys_alone_fails() -> None:
    """It is right in self-attention of one sample, and no further call adds a crash."""
    verdict = checked("FirstSampleAlone", diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    failing = {each.case.inputs for each in verdict.failures}
    assert failing
    assert all(each.case.queries == each.case.keys for each in verdict.failures)
    assert not any(each.check_result.severity == "crash" for each in verdict.failures)
