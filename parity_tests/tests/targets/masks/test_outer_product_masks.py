"""A mask of keys that is read beside one of queries alone is passed with all queries kept."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

checked = checks_of("masks_of_pairs.py", cases=60, dtypes=("float64",))
BESIDE = "`key_mask` is read beside `query_mask` alone, which was passed with all queries kept."


def test_a_pair_of_masks_is_passed_and_said() -> None:
    """Neither has an effect by itself, which left the verdict open."""
    verdict = checked("multiplied")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert BESIDE in verdict.notes
    assert {"pass"} == {
        r.status for r in verdict.features if (r.axis, r.value) == ("padding", "bool")
    }


def test_a_wrong_mask_of_a_pair_fails() -> None:
    """Its neighbour's key is hidden."""
    verdict = checked("multiplied_late", diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert "key_padding_mask" in verdict.diagnosis[0].title


def test_a_pair_that_is_not_read_stays_open() -> None:
    """With all queries kept the mask of keys has no effect either: no green."""
    verdict = checked("never")
    assert Outcome.INCONCLUSIVE is verdict.outcome
    assert "`key_mask`" in verdict.sentence
    assert BESIDE not in verdict.notes
