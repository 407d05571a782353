"""What a diagnosis says beside its cause."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Diagnosis
from mha_parity.run.check import check
from mha_parity.run.diagnosis_run import with_unanswered
from mha_parity.worker.open_target import bind_in_process
from subject_checks import load_subject


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ("0.8 from a layer without dropout.", "0.8 from a layer without dropout; 5 failing cases"),
        ("predicts 24 of 24", "predicts 24 of 24; 5 failing cases"),
        ("", "5 failing cases"),
    ],
)
def test_evidence_and_unanswered_cases_are_one_sentence(evidence: str, said: str) -> None:
    """A full stop of the evidence, or none of it, leaves no stray punctuation before the count."""
    found = Diagnosis(bug=None, title="", remedy="", explains=1.0, evidence=evidence)
    (after,) = with_unanswered((found,), 5)
    assert f"{said} gave no answer to compare" == after.evidence


def test_a_verdict_outlives_a_mistake_of_the_diagnosis(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failures stand, a note says what went wrong, and the error output where."""

    def mistaken(*_asked: object, **_options: object) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("mha_parity.diagnose.diagnose", mistaken)
    asked = Options(cases=18, shrink=False)
    verdict = check(bind_in_process(load_subject("wrong_scale.py:f"), asked), asked)
    assert not verdict.holds
    assert not verdict.diagnosis
    said = "the diagnosis itself failed (ZeroDivisionError: float division by zero)"
    assert any(note.startswith(said) for note in verdict.notes), verdict.notes
    assert "in mistaken" in capsys.readouterr().err
