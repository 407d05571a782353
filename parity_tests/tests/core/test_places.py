"""The place behind the words of an exception is found, whatever brackets these have."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import place_of, without_place

SLICED = "raised ValueError: got mask[0:3], too short"
SHAPES = "raised RuntimeError: expected shape [*, 8], but got [2, 5] at x [1:2]"
LATER = "raised KeyError: 'q' [/src/my layers/a.py:7] on 1 query"


@pytest.mark.parametrize(("said", "place", "words"), [
    (SLICED, None, SLICED),
    (f"{SLICED} [/src/a.py:30]", ("/src/a.py", 30), SLICED),
    (f"{SHAPES} [<cell 3>:4].", ("<cell 3>", 4), f"{SHAPES}."),
    (LATER, ("/src/my layers/a.py", 7), "raised KeyError: 'q' on 1 query"),
])  # fmt: skip
def test_a_place_is_a_file_and_a_line(said: str, place: tuple[str, int], words: str) -> None:
    """Kills the first bracket taken for the place, and words that are cut at the first one."""
    assert place == place_of(said)
    assert words == without_place(said)
