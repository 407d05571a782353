"""Arguments that are no rows are not taken for rows, and masks of other axes are found."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("further_arguments.py", cases=32, dtypes=("float64",))


RIGHT = (
    "OfMap", "SharedPair", "MaskFlag", "SamplesLast", "channels_of_heads", "Columns",
    "PrivateNames", "Drawing", "drawn_rows", "PaddingSamplesLast", "heads_first",
    "heads_first_by_names",
)  # fmt: skip
WRONG = (
    "OfMapUnscaled", "ContextUnread", "MaskFlagUnscaled", "SamplesLastKeepsFirst",
    "channels_of_heads_by_heads", "ColumnsUnscaled", "PrivateNamesUnmoved",
    "DrawingUnscaled", "PaddingSamplesLastKeepsFirst", "heads_first_for_samples",
    "heads_first_by_samples",
)  # fmt: skip


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_hold(name: str) -> None:
    """The height and width of a map are numbers, and `kv` that changes no answer is no input.

    A switch that leaves a mask unread is no causal rule, and a mask may have its samples last.
    Heads may be (N, D, H, L), and rows in a table of columns; a private name says what it projects.
    A source of random numbers is no input.
    """
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_fail(name: str) -> None:
    """The same calls, and wrong numbers; a context that is not read is a mistake."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence


def test_documented_heads_before_samples_are_passed_so() -> None:
    """Rows are (H, N, L, D) and a mask is (N, L, S), with the meaning that is documented of it."""
    verdict = judged("heads_first")
    assert any("(H, N, L, D)" in note for note in verdict.notes), verdict.notes
    said = {each.name: each.meaning for each in verdict.parameters}
    assert "True hides" in said["blocked"], said


def test_heads_before_samples_are_passed_so_beside_torch_s_names() -> None:
    """Its mask and its weights have these axes. Kills torch's order by a name alone, as `scale`."""
    verdict = judged("heads_first_by_names")
    assert any("(H, N, L, D)" in note for note in verdict.notes), verdict.notes
    assert "not tried" not in verdict.sentence
    assert any("documented axes, (H, N, S, L)" in note for note in verdict.notes), verdict.notes


def test_what_was_found_is_said() -> None:
    """The report has the meaning of the switch, and the axes of the mask."""
    said = {each.name: each.meaning for each in judged("MaskFlag").parameters}
    assert "False leaves `attn_mask` unread" == said["mask_flag"]
    said = {each.name: each.meaning for each in judged("SamplesLast").parameters}
    assert "(L, S, N)" in said["mask"], said
    said = {each.name: each.meaning for each in judged("PaddingSamplesLast").parameters}
    assert "(S, N)" in said["src_mask"], said
