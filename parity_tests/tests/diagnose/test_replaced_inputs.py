"""What stands in place of another array, or elsewhere in the output, is said; of twins nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, check_subject

if TYPE_CHECKING:
    from mha_parity.targets.convention_base.convention import Convention

CAUSES = {
    "reversed_channels": "column d of the output holds column D - 1 - d",
    "rows_of_one_list": "every row of the output is row L - 1",
    "axes_by_size": (
        "wrong wherever L = H or S = H, and at no other sizes: an axis is taken by its size"
    ),
    "transposed": "wherever L = S: q and k are exchanged: the scores are transposed",
    "value_added": "v is added to k",
    "unit_values": "v is divided by its norm",
    "cosines": "the scores are the cosines of q and k",
    "normalised_keys": "k is divided by its root mean square",
    "QueryAlone": "wherever L = S: key and value are not read: query is taken in their place",
}
TWINS = ("reversed_twice", "sorted_back", "OwnInputs")


def _bound(name: str) -> Convention:
    return bind(load.load(f"{SUBJECTS}/replaced_parts.py:{name}"))


def _said(name: str) -> list[str]:
    return [
        each.text for each in cause_findings(run_experiments(Caller(_bound(name), lambda: True)))
    ]


@pytest.mark.parametrize("name", CAUSES)
def test_what_stands_in_place_of_another_array_is_said(name: str) -> None:
    """One sentence has what is taken, and where."""
    assert [CAUSES[name]] == _said(name)


def test_a_number_of_heads_that_is_not_read_is_named() -> None:
    """No axis of heads is documented: with one in its inputs the function would be right."""
    verdict = check_subject("replaced_parts.py:without_heads", cases=60, diagnose=True)
    assert "single-head" == verdict.diagnosis[0].bug


def test_samples_that_stay_sorted_are_said() -> None:
    """The output of a sample stands at another: no rule for the keys that a row sees is given."""
    (found,) = _said("sorted_batch")
    assert "with padding=lengths at N = 6: samples 0 … 5 of the output hold those of" in found
    assert found.endswith("the longest first, and put back by that order, not its inverse")


@pytest.mark.repeats(1)
@pytest.mark.parametrize("name", TWINS)
def test_nothing_is_said_of_the_right_twins(name: str) -> None:
    """What takes its own arrays, and puts back what it has moved, has no cause."""
    assert [] == _said(name)


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("BareValue", "v is not projected: value stands there"),
        ("BareHead", "the output is not projected: what the heads give stands there"),
    ],
)
def test_a_projection_that_is_skipped_at_one_size_is_said(name: str, said: str) -> None:
    """The border between sizes alone does not say what stands beyond it."""
    first, *_ = check_subject(f"replaced_parts.py:{name}", cases=160, diagnose=True).diagnosis
    assert said in first.title
