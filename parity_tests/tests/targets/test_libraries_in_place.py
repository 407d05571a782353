"""What has the interface of an installed library is judged with that one, which is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets import stand_ins
from subject_checks import check_subject

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = """
import like_numpy as xp
from like_numpy import exp
from like_numpy.linalg import norm

def f(q, k, v):
    library = xp.get_array_module(q)
    scores = library.matmul(q, xp.asnumpy(k).swapaxes(-1, -2)) / SCALE
    weights = exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""


@pytest.mark.parametrize(
    ("scale", "outcome"),
    [("xp.sqrt(q.shape[-1])", Outcome.PASS), ("norm(q.shape[-1:])", Outcome.FAIL)],
)
def test_it_is_judged_with_the_other_library(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[str], str], scale: str, outcome: Outcome
) -> None:
    """Names, names of modules within and functions of its own are found; a wrong one fails."""
    monkeypatch.setitem(stand_ins.INTERFACE_OF, "like_numpy", "numpy")
    verdict = check_subject(write(SOURCE.replace("SCALE", scale)), cases=40)
    assert outcome is verdict.outcome, verdict.sentence
    said = "`like_numpy` is not installed: `numpy`, whose interface it has, was used in its place"
    assert any(said in note for note in verdict.notes), verdict.notes


def test_a_library_without_its_interface_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[str], str]
) -> None:
    """What the other library has not is a stand-in, whose call says what is missing."""
    monkeypatch.setitem(stand_ins.INTERFACE_OF, "like_numpy", "numpy")
    with pytest.raises(ValueError, match=r"like_numpy.fused was called, but like_numpy is not in"):
        check_subject(write("import like_numpy as xp\ndef f(q, k, v): return xp.fused(q, k, v)\n"))
