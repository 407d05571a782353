"""The status of a parameter follows from what all answers together passed."""

from __future__ import annotations

import pytest

from mha_parity.core.parameters import Parameter, Role, Status, with_status

MASK = Parameter(name="mask", of="call", role=Role.MASK)


@pytest.mark.parametrize(
    ("passed", "excluded", "status"),
    [
        ([], (), Status.NOT_TRIED),
        ([{}, {"constructor.mask": True}], (), Status.NOT_TRIED),
        ([{"call.mask": False}], (), Status.DEFAULT_ONLY),
        ([{"call.mask": False}, {"call.mask": True}], (), Status.TRIED),
        ([{"call.mask": True}, {"call.mask": False}], (), Status.TRIED),
        ([], ("mask",), Status.EXCLUDED),
        ([{"call.mask": True}], ("mask",), Status.TRIED),
    ],
)
def test_another_value_in_any_answer_is_a_trial(
    passed: list[dict[str, bool]], excluded: tuple[str, ...], status: Status
) -> None:
    """The default alone is none, and what is excluded need not be tried."""
    (found,) = with_status([MASK], passed, excluded)
    assert status is found.status
    assert found.is_untried is (status in {Status.NOT_TRIED, Status.DEFAULT_ONLY})


def test_keys_are_tried_by_another_number_alone() -> None:
    """As many keys as queries are no trial. Kills the role of keys asked for the wrong way."""
    keys = Parameter(name="keys", of="call", role=Role.KEYS)
    (found,) = with_status([keys], [{"call.keys": True}])
    assert Status.NOT_TRIED is found.status
    assert found.is_untried
