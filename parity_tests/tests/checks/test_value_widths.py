"""Value heads that are narrower than query heads are judged where a constructor has them."""

from __future__ import annotations

import pytest

from mha_parity.checks import head_widths
from mha_parity.checks.value_widths import NAME
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("value_widths.py", cases=24, dtypes=("float64",))


def test_a_width_of_its_own_is_tried() -> None:
    """The parameter stands for no value that it never had: kills equal widths as a trial."""
    verdict = judged("Own")
    assert Outcome.PASS is verdict.outcome, verdict
    assert any(NAME == row.name and row.cases for row in verdict.checks)
    assert "not tried" not in verdict.sentence


def test_a_scale_by_the_wrong_width_fails() -> None:
    """Equal widths hide it: no case of the run fails by its output."""
    verdict = judged("ScaledByValues", max_failures=0, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    found = [each.check_result.check for each in verdict.failures]
    assert {NAME, head_widths.NAME} == {*found}
    said = [each.check_result.detail for each in verdict.failures]
    assert any("and query heads of width 4 elements differ" in each for each in said), said
    assert "scale by the width" in verdict.diagnosis[0].remedy


@pytest.mark.parametrize(
    ("name", "noted"),
    [("OfOneWidth", True), ("OfTheOutputAlone", True), ("SharedWidth", False), ("Packed", False)],
)
def test_what_serves_no_other_width_is_named_as_not_tried(name: str, *, noted: bool) -> None:
    """One that raises by mistake is said besides; a refusal, or one matrix for all, is not."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    said = "value heads of another width are not served"
    assert noted == any(said in note for note in verdict.notes), verdict.notes
    assert verdict.sentence.endswith("parameters not tried: d_v.")
