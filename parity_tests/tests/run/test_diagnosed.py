"""What a diagnosis says beside its cause."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Diagnosis
from mha_parity.run.diagnosed import with_unanswered


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
