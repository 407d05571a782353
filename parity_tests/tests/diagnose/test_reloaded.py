"""What a layer with reloaded weights has is said: the old weights, or a state of earlier calls."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mha_parity.diagnose.call_effects import from_findings
from mha_parity.targets.conventions.torch_module import PLAIN
from subject_checks import check_subject

OLD = "weights copied once are used for ever"
NEW_LAYER = "weights reloaded: elements differ by up to 2 from a newly constructed layer"


def test_old_weights_are_found_by_their_answer() -> None:
    """A layer that ignores all but the first state dict answers by that."""
    verdict = check_subject("misbehaving_layers.py:KeepsFirstWeights", cases=60, diagnose=True)
    assert OLD == verdict.diagnosis[0].title
    assert "it is that by the weights loaded before" in verdict.diagnosis[0].evidence


@pytest.mark.parametrize(
    ("note", "title", "remedy"),
    [
        (f"{NEW_LAYER}; it is that by the weights loaded before.", OLD, "read the weights in"),
        (f"{NEW_LAYER}.", "elements differ by up to 2", "keep nothing from one call to the next"),
        (
            "weights reloaded: state_dict() has another `w` than was loaded.",
            "state_dict() has another `w`",
            "let state_dict() return the arrays that",
        ),
    ],
)
def test_old_weights_are_said_only_where_they_give_the_answer(
    note: str, title: str, remedy: str
) -> None:
    """What departs otherwise may be any state of earlier calls, or what is saved."""
    seen = SimpleNamespace(
        answer=SimpleNamespace(notes=(note,)), problem=SimpleNamespace(case=PLAIN)
    )
    ((found,), _) = from_findings([seen])  # type: ignore[list-item]  # notes and case are read
    assert found.title.startswith(title)
    assert remedy in found.remedy


def test_a_state_hides_what_other_checks_see_of_it() -> None:
    """What a call leaves behind makes the calls of other checks depart as well."""
    state = "statelessness: elements differ by up to 4 in the answer after another problem."
    layout = "memory layout: elements differ by up to 5 in the answers of two layouts."
    seen = SimpleNamespace(
        answer=SimpleNamespace(notes=(layout, state, f"{NEW_LAYER}.")),
        problem=SimpleNamespace(case=PLAIN),
    )
    ((found,), _) = from_findings([seen])  # type: ignore[list-item]  # notes and case are read
    assert "in the answer after another problem" in found.title
