"""Published figures are compared by their intervals: what moved is named, what did not is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mha_parity.selftest import figures
from mha_parity.selftest.figures import DATA, FIGURES, main, recompute, wilson_interval

RATIO = re.compile(r"\| ([\d.]+) \(([\d.]+)–([\d.]+)\) \|")
BENCH = Path(__file__).parents[3] / ".github" / "bench"


def published(name: str) -> str:
    """Return the text of a published figure."""
    folder = BENCH if name == "bench" else DATA
    return (folder / FIGURES[name].file).read_text(encoding="utf-8")


def of_json(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    """Return what changes the first row of a JSON document."""

    def changed(text: str) -> str:
        document = json.loads(text)
        change(document["rows"][0])
        return json.dumps(document)

    return changed


def test_intervals_are_wilsons() -> None:
    """None of 10: 0 to z² / (10 + z²) with z = 2.5758; the rest of a rate is its mirror image."""
    assert pytest.approx((0, 2.5758293**2 / (10 + 2.5758293**2))) == wilson_interval(0, 10)
    low, high = wilson_interval(3, 10)
    assert pytest.approx((1 - high, 1 - low)) == wilson_interval(7, 10)


@pytest.mark.parametrize("name", FIGURES)
def test_a_published_figure_has_not_moved_from_itself(name: str) -> None:
    """The same file twice is as published."""
    assert not list(FIGURES[name].compare(published(name), published(name)))


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("calibration", of_json(lambda row: row.update(failed=40)), "right float64: failed"),
        ("accuracy", of_json(lambda row: row.update(above2=0.5)), "above twice torch's"),
        ("mutants", lambda text: re.sub(r"\d+ of", "0 of", text, count=1), ""),
        ("bench", lambda text: RATIO.sub("| 99.00 (98.00–99.50) |", text, count=1), ": "),
    ],
)
def test_what_moved_beyond_its_interval_is_named(
    name: str, change: Callable[[str], str], what: str
) -> None:
    """A rate, a row or a ratio that changed is reported, and no other one."""
    (moved,) = FIGURES[name].compare(published(name), change(published(name)))
    assert what in moved.what
    assert moved.published != moved.found


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("calibration", of_json(lambda row: row.update(less_accurate=row["less_accurate"] + 1))),
        ("accuracy", of_json(lambda row: row.update(above2=row["above2"] + 1 / row["cases"]))),
        ("bench", lambda text: RATIO.sub(r"| \2 (\1–\3) |", text, count=1)),
    ],
)
def test_one_case_more_is_within_the_interval(name: str, change: Callable[[str], str]) -> None:
    """Rates and ratios that differ by less than their intervals did not move."""
    assert change(published(name)) != published(name)
    assert not list(FIGURES[name].compare(published(name), change(published(name))))


def test_a_row_that_is_missing_has_moved() -> None:
    """A kind of answer that is no longer judged is reported."""
    document = json.loads(published("calibration"))
    document["rows"].pop(0)
    moved = list(FIGURES["calibration"].compare(published("calibration"), json.dumps(document)))
    assert 4 == len(moved)
    assert all("right float64" in each.what for each in moved)


def test_times_of_another_machine_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """A ratio that depends on the processor is held to tables of the same one."""
    other = "- Other, 8 cores" + RATIO.sub("| 99.00 (98.00–99.50) |", published("bench"))[1:]
    assert not list(FIGURES["bench"].compare(published("bench"), other))
    assert "not compared" in capsys.readouterr().err


def test_the_command_runs_and_its_file_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the command of a figure writes is held against the published file; 1 where it moved."""
    write = "import sys; open(sys.argv[1] + '/mutants.md', 'w').write('| a | {} |')"
    for found, status in (("1 of 1", 0), ("0 of 1", 1)):
        figure = figures.Figure(
            command=("-c", write.replace("{}", found), "{to}"),
            file="mutants.md",
            compare=figures.compare_lines,
        )
        monkeypatch.setitem(FIGURES, "mutants", figure)
        monkeypatch.setattr(figures, "DATA", tmp_path)
        (tmp_path / "mutants.md").write_text("| a | 1 of 1 |", encoding="utf-8")
        assert status == len(recompute("mutants", tmp_path / "to", tmp_path))
        assert status == main(["mutants", "--to", str(tmp_path / "to")])
    assert "mutants: as published\nmutants: 1 moved\n  a: published" in capsys.readouterr().out
