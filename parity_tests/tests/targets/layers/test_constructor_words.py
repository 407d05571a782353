"""Names of arguments and classes are read as people use them: each right, and a wrong one."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

checked = checks_of("constructor_words.py", cases=60)


@pytest.mark.parametrize(
    "name", ["OfArrays", "OfNormalHeads", "OfNestedWords", "OfContextSize", "OfContextWidth"]
)
def test_words_are_read_as_people_use_them(name: str) -> None:
    """`bq` is an array beside `Wq`, `LinearNormal` no norm, and `d_key` the width of a head.

    A `context_size` is that of a sequence or of a row, as the calls show.
    """
    verdict = checked(name, cases=100)
    assert Outcome.PASS is verdict.outcome, verdict.sentence


def test_a_bias_that_is_added_for_each_head_is_named() -> None:
    """Where constructors take biases by short names, with the number of times."""
    verdict = checked("OfArraysOncePerHead", cases=120, diagnose=True)
    (found,) = verdict.diagnosis
    assert "the bias of the output projection is added" in found.title
    assert "out_proj" in found.title


def test_two_arrays_of_one_projection_are_refused() -> None:
    """They are not those of two heads, which a layer of one head does not have."""
    with pytest.raises(TargetError, match=r"`out_proj.w_r`, `out_proj.w_i`.* no counterpart"):
        checked("WithAnImaginaryPart")
