"""One sample, row or key that raises by mistake fails; what an exception refuses is not asked."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("squeezed.py", cases=60)


@pytest.mark.parametrize(
    ("name", "outcome", "offered"),
    [
        ("MultiQuery", Outcome.PASS, True),
        ("Squeezed", Outcome.FAIL, True),
        ("Refusing", Outcome.PASS, False),
        ("RefusingByAnother", Outcome.PASS, False),
        ("Unpacked", Outcome.FAIL, True),
    ],
)
def test_sizes_of_one_are_asked_unless_they_are_refused(
    name: str, outcome: Outcome, *, offered: bool
) -> None:
    """Kills a crash at one key that leaves the sizes of one unasked, and the verdict green."""
    verdict = judged(name)
    assert outcome is verdict.outcome, verdict
    (status,) = (r.status for r in verdict.features if (r.axis, r.value) == ("size", "ones"))
    assert offered is (status != "not offered")
