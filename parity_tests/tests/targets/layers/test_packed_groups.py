"""One Linear of queries and fewer key heads is filled by parts, or group by group, and judged."""

from __future__ import annotations

import pytest

from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from subject_checks import check_subject

FEWER = (("kv_heads", "fewer"),)


@pytest.mark.repeats(1)
@pytest.mark.parametrize("grad", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", ["InParts", "ByGroups", "OneForAll"])
def test_right_ones_pass(name: str, *, grad: bool) -> None:
    """The gradient of a shared head's weights is the sum over the heads that share it."""
    verdict = check_subject(f"packed_groups.py:{name}", cases=40, features=FEWER, grad=grad)
    assert Outcome.PASS == verdict.outcome, verdict


@pytest.mark.parametrize("name", ["InPartsTiled", "ByGroupsScaledTwice"])
def test_what_is_wrong_of_groups_alone_fails_by_itself(name: str) -> None:
    """Both are right with as many key heads as query heads."""
    found = check_subject(f"packed_groups.py:{name}", cases=60)
    assert Outcome.FAIL == found.outcome
    rows = {row.value: row.failed for row in found.features if row.axis == "kv_heads"}
    assert 0 == rows["equal"]
    assert 0 < rows["fewer"]


def test_keys_and_values_exchanged_fail() -> None:
    """Of one head for all, the order of the last rows shows."""
    assert (
        Outcome.FAIL
        == check_subject("packed_groups.py:OneForAllExchanged", cases=24, fail_fast=True).outcome
    )


def test_as_many_key_heads_are_no_trial_of_fewer() -> None:
    """A layer that raises for fewer passes, and its parameter for them is said to be untried."""
    verdict = check_subject("packed_groups.py:EqualAlone", cases=24)
    assert Outcome.PASS == verdict.outcome
    tried = {each.name: each.status for each in verdict.parameters}
    assert Status.NOT_TRIED == tried["n_kv_heads"], tried
    assert "parameters not tried: n_kv_heads" in verdict.sentence


def test_masks_of_rows_that_groups_repeat_are_judged_in_their_shape() -> None:
    """Other shapes are taken where no heads share a key head alone: they raised, and it failed."""
    right = check_subject("packed_groups.py:FoldedRows", cases=150)
    assert Outcome.PASS == right.outcome, right
    (mask,) = (each for each in right.parameters if "allow" == each.name)
    assert Status.TRIED == mask.status
    assert "taken as (N, L, S)" in mask.meaning
    assert Outcome.FAIL == check_subject("packed_groups.py:FoldedRowsInTurn", cases=150).outcome
