"""Documentation of a module that speaks of all its masks is demanded of each of them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.masks.documented_meaning import documented_hides
from subject_checks import checks_of

if TYPE_CHECKING:
    from collections.abc import Callable

judged = checks_of("masks_of_module.py", cases=30, dtypes=("float64",))
SAID = "Masking follows torch: True = hide, False = attend."


def test_the_right_one_holds() -> None:
    """True keeps, as the module says."""
    verdict = judged("Attention")
    assert Outcome.PASS is verdict.outcome, verdict.sentence


def test_the_opposite_fails() -> None:
    """Kills a meaning that trials alone decide: an inverted mask passed as one that hides."""
    verdict = judged("Inverted", diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert "inverted" in verdict.diagnosis[0].title, verdict.diagnosis


@pytest.fixture
def hides_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], bool | None]:
    """Return what `documented_hides` says of a parameter by the documentation of its module."""
    module = ModuleType("documented")
    monkeypatch.setitem(sys.modules, "documented", module)

    def hides(documentation: str, name: str) -> bool | None:
        module.__doc__ = documentation
        subject = SimpleNamespace(__module__="documented", __doc__="")
        return documented_hides(subject, None, name, clauses=2)

    return hides


@pytest.mark.parametrize(
    ("documentation", "name", "expected"),
    [
        (SAID, "mask", True),
        (SAID.replace("hide", "kept").replace("attend", "hidden"), "src_mask", False),
        (SAID, "bias", None),  # no mask
        (SAID.replace("Masking", "Causal masking"), "mask", None),  # of one kind
        (SAID.partition(",")[0] + ".", "mask", None),  # one clause alone
        ("Masks are boolean. True = hide, False = attend, of the labels.", "mask", None),
    ],
    ids=["hides", "keeps", "no mask", "of one kind", "one clause", "another sentence"],
)
def test_two_clauses_of_one_sentence_decide(
    hides_in: Callable[[str, str], bool | None],
    documentation: str,
    name: str,
    expected: bool | None,
) -> None:
    """A sentence on masks of one kind, or on something else, says nothing of a mask."""
    assert expected is hides_in(documentation, name)
