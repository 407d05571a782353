"""Maps in characters: which keys a query sees, and where an output is off."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.report import ascii_maps

MASKED = "mha-N2-L5-S7-H3-D4-cross-padding-floatmask3d-float32-peaky-s1234"


def test_masks_are_drawn_as_the_oracle_applies_them() -> None:
    """A hidden key is a #, a favoured one +, a disfavoured one -; a causal mask is a staircase."""
    problem = make_problem(parse(MASKED))
    hidden, bias = problem.hidden()[0, 1], problem.additive()[0, 1]
    drawn = [line.plain for line in ascii_maps.mask_lines(problem, 1, 0, 80)][2:]
    assert 5 == len(drawn)
    for row, line in enumerate(drawn):
        marks = line.split("|")[1]
        assert ["#" == mark for mark in marks] == list(hidden[row])
        assert ["+" == mark for mark in marks] == list(~hidden[row] & (bias[row] > 0))
    causal = make_problem(parse("mha-N1-L3-S4-H1-D2-cross-causal-float64-s0"))
    stairs = [
        line.plain.split("|")[1] for line in list(ascii_maps.mask_lines(causal, 0, 0, 80))[2:]
    ]
    assert ["·###", "··##", "···#"] == stairs
    assert [] == list(
        ascii_maps.mask_lines(make_problem(parse("mha-N1-L3-S3-H1-D2-float64-s0")), 0, 0, 80)
    )


@pytest.mark.parametrize(
    ("units", "mark"),
    [(0.0, "·"), (1.0, "·"), (1.5, "1"), (10, "1"), (99, "2"), (1e30, "9"), (np.inf, "!")],
    ids=str,
)
def test_marks_of_errors(units: float, mark: str) -> None:
    """Within what is allowed is a dot; beyond it the digit counts powers of ten."""
    array = np.full((1, 1, 1, 1), units)
    assert f"  row 0   |{mark}|" == [line.plain for line in ascii_maps.errors(array, 0, 0, 80)][-1]


def test_wide_errors_have_a_mark_a_head() -> None:
    """Where 8 heads of width 64 do not fit, each head and row has the mark of its worst element."""
    units = np.zeros((1, 2, 8, 64))
    units[0, 1, 5, 33] = 50
    lines = [line.plain for line in ascii_maps.errors(units, 0, 0, 80)]
    assert lines[0].endswith("the worst of each head and row")
    assert "  row 1   |·|·|·|·|·|2|·|·|" == lines[-1]


@pytest.mark.parametrize(
    ("rows", "near", "count"),
    [(16, 0, 16), (17, 0, 17), (18, 9, 18), (18, 0, 17), (60, 30, 18), (60, 59, 17)],
)
def test_no_row_of_a_map_is_lost(rows: int, near: int, count: int) -> None:
    """Each of 60 rows is on a line of the map: alone near the worst one, else with others."""
    names: set[str] = set()
    for off in range(rows):
        units = np.zeros((1, rows, 1, 3))
        units[0, off, 0, 1] = 50
        lines = [line.plain for line in ascii_maps.errors(units, 0, near, 80)]
        (marked,) = [line for line in lines if line.endswith("|·2·|")]
        name = marked.partition("|")[0].removeprefix("  row").strip()
        first, _, last = name.partition("-")
        assert int(first) <= off <= int(last or first)
        names.add(name)
        assert (rows > count) == lines[-1].endswith("several rows: the worst of each column")
    assert count == len(names)
