"""A required module of dropout is a function that drops nothing; one by default stays."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from mha_parity.targets.adapters.adapter_source import filled_adapter
from mha_parity.targets.bind import bind
from subject_checks import checks_of, load_subject

judged = checks_of("required_dropout.py", cases=60)


def test_a_right_one_passes_and_a_wrong_one_fails() -> None:
    """Kills None for such a parameter: it is called, and the target was refused."""
    assert Outcome.PASS == judged("attention").outcome
    assert Outcome.FAIL == judged("unscaled").outcome


def test_an_adapter_passes_it_too() -> None:
    """Kills None in the source that `adapt` prints."""
    subject = load_subject("required_dropout.py:attention")
    source = filled_adapter("", subject, bind(subject))  # type: ignore[arg-type]  # is fitted
    assert "lambda rows: rows" in source


def test_a_module_by_default_is_left() -> None:
    """Kills a rate in its place: nn.Sequential takes no number, and the target was refused."""
    assert Outcome.PASS == judged("ByDefault").outcome
    assert Outcome.FAIL == judged("ByDefaultDoubled").outcome
