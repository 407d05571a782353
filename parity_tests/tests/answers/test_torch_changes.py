"""Judging torch by a record says of each of its paths what changed since that was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import mha_parity
from mha_parity import selftest
from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.judging.accuracy import installed_torch_output
from mha_parity.oracle.reference import reference_answer
from mha_parity.run import torch_changes
from mha_parity.run.torch_changes import PathChange
from mha_parity.selftest import torch_versions
from mha_torch import PathNotTakenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

TORCH = "torch.nn:MultiheadAttention"
LAYER = "mha_numpy:MultiheadAttention"
FEW = ("--cases", "40")
PUBLISHED = Path(selftest.__file__).parent / "data" / "torch-versions.md"


def said(target: str, path: str) -> dict[str, str]:
    """Return by path what the verdict says of two versions of torch."""
    verdict = mha_parity.judge(target, in_process=True, answers=path, draw=False, diagnose=False)
    notes = [note for note in verdict.notes if ", path " in note]
    return dict(note.partition(", path ")[2].split(": ", 1) for note in notes)


def test_the_same_torch_has_changed_nowhere(record: Callable[..., str]) -> None:
    """Each path that is taken answers the same bits, and is named."""
    found = said(TORCH, record(TORCH, *FEW))
    assert {"weights", "no-weights", "sdpa-math"} <= set(found)
    assert ["40 of 40 outputs are equal to the bit"] == [found["weights"]]
    assert all(text.endswith("outputs are equal to the bit") for text in found.values())


def test_other_targets_are_not_compared(record: Callable[..., str]) -> None:
    """A NumPy layer is judged alone: what torch is installed does not matter."""
    assert {} == said(LAYER, record(TORCH, *FEW))


def test_a_changed_path_is_named_with_what_changed(
    record: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit in the last place is rounding, 1 % is more; a path may come, go or lose a number."""

    def newer(problem: Problem, path: str) -> Array:
        output = installed_torch_output(problem, path)
        if path == "sdpa-math":
            return np.asarray(output * output.dtype.type(1.01))
        if path == "sdpa-flash":
            raise PathNotTakenError(path)
        return np.nextafter(output, np.inf) if problem.case.dtype == "float64" else output

    monkeypatch.setattr(torch_changes, "installed_torch_output", newer)
    found = said(TORCH, record(TORCH, *FEW))
    assert "within what is allowed" in found["weights"]
    assert "differ by more" not in found["weights"]
    assert "differ by more; at most" in found["sdpa-math"]
    assert "cases took it in" in found["sdpa-flash"]


def test_each_kind_of_change_is_counted_once() -> None:
    """Equal, rounded, more, gone and new: one case each, and the worst one is kept with its size.

    Kills each count as a difference, a comparison that is turned, and a case that is not kept.
    """
    problem = make_problem(Case(seed=1, batch=1, queries=2, keys=2, heads_count=1, head_dim=2))
    answer = reference_answer(problem).output.astype(np.float64)
    change = PathChange("path")
    change.add(problem, answer, answer.copy())
    change.add(problem, answer, np.nextafter(answer, np.inf))
    assert 0 < change.units <= 1
    change.add(problem, answer, answer + 1)
    change.add(problem, answer, None)
    change.add(problem, None, answer)
    counts = change.equal, change.rounding, change.more, change.gone, change.new
    assert (1, 1, 1, 1, 1) == counts
    assert (problem.case.id, True) == (change.case, change.units > 1)
    assert change.sentence("1", "2").startswith(
        "torch 1 and 2, path path: 1 of 3 outputs are equal to the bit, 1 within what is allowed, "
        "1 differ by more, 1 cases took it in 1 alone, 1 in 2 alone; at most "
    )


def test_the_table_has_a_row_for_each_path(
    record: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`make torch-versions` prints or appends Markdown; no record is one sentence."""
    path, summary = record(TORCH, *FEW), tmp_path / "summary.md"
    assert 0 == torch_versions.main([path, "--markdown", str(summary)])
    rows = [line for line in summary.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert "| weights | 40 | 40 | 0 | 0 | 0 | 0 |  |" in rows
    assert {line.count("|") for line in rows} == {len(torch_versions.HEAD) + 1}
    assert 2 == torch_versions.main(["nowhere"])
    assert 1 == capsys.readouterr().err.count("\n")


def test_the_published_table_counts_each_case_once() -> None:
    """Its columns are those that are written today; each path is taken or not in 500 cases."""
    text = PUBLISHED.read_text(encoding="utf-8")
    head, _, *rows = [line for line in text.splitlines() if line[:1] == "|"]
    assert list(torch_versions.HEAD) == cells(head)
    counts = {path: [int(n) for n in numbers] for path, *numbers, _ in map(cells, rows)}
    assert {"weights", "no-weights", "fast", "sdpa-math", "sdpa-flash"} == set(counts)
    for compared, equal, rounding, more, new, gone in counts.values():
        assert compared == equal + rounding + more
        assert 500 >= compared + new + gone
    assert {0} == {more for _, _, _, more, _, _ in counts.values()}


def cells(row: str) -> list[str]:
    """Return the cells of a row in Markdown."""
    return [cell.strip() for cell in row.strip("|\n").split("|")]
