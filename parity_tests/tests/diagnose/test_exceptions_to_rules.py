"""Rows that are exceptions to the rule of the keys that rows see are said, with the rule."""

from __future__ import annotations

import pytest

from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.weights import causes, readings
from mha_parity.targets.bind import bind
from subject_checks import load_subject

SAID = {
    "Chunked": (
        "row i sees keys i-8 … i, expected 0 … i, but for rows 32, 64, 96, 128 …: "
        "row 32 sees keys 25–32, expected 0–32"
    ),
    "FirstRowOfAChunk": (
        "rows 32, 64, 96, 128 … see other keys than 0 … i: row 32 sees keys 1–32, expected 0–32"
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_rows_that_are_exceptions_are_said(name: str) -> None:
    """Kills the rule of most rows: without it there is an example alone."""
    caller = Caller(bind(load_subject(f"chunked_windows.py:{name}")), lambda: True)
    (found,) = causes(caller, list(readings(caller)))
    assert SAID[name] == found.text
