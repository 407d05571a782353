"""The Python of a notebook's cells: what speaks to the notebook goes, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.load import load
from mha_parity.targets.loading.default_target import public_names
from mha_parity.targets.loading.notebook import cell_python
from subject_checks import check_subject

if TYPE_CHECKING:
    from pathlib import Path

# An expression whose lines begin as those of IPython do; in groups of two heads, and so wrong.
ATTENTION = """
import numpy as np

def attention(q, k, v):
    order = [(head
        % 2
        ) for head in range(q.shape[1])]
    q = q[:, order]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v
"""
CELLS = {
    "a % at the head of a line": ("x = (7\n% 4)", 3),
    "a comparison": ("x = (7\n!= 4)", True),
    "a text": ('x = """\n%matplotlib\n!ls\n"""', "\n%matplotlib\n!ls\n"),
    "beside a magic": ("%matplotlib inline\nx = (7\n  % 4)\n!ls", 3),
    "a text beside a magic": ('!pip install x\nx = """\n%kept\n"""', "\n%kept\n"),
    "a continued line": ("%time\nx = 7 \\\n% 4", 3),
    "a magic in a block": ("if True:\n    %time\n    x = 3", 3),
    "help": ("x = 3\nlen?\nx??", 3),
}


def write(path: Path, *cells: str) -> None:
    """Write a notebook of these code cells."""
    made: list[dict[str, object]] = [
        {
            "cell_type": "code", "id": f"a{number}", "metadata": {}, "outputs": [],
            "execution_count": None, "source": source,
        }
        for number, source in enumerate(cells)
    ]  # fmt: skip
    book = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(book), "utf-8")


@pytest.mark.parametrize("kind", CELLS)
def test_only_what_speaks_to_the_notebook_goes(kind: str) -> None:
    """A line that a bracket, a text or a backslash goes on in is Python's, as IPython has it."""
    cell, x = CELLS[kind]
    scope: dict[str, object] = {}
    exec(cell_python(cell), scope)  # noqa: S102  (a text of this file)
    assert x == scope["x"]


def test_a_cell_of_another_language_is_empty() -> None:
    """A cell magic says so; a cell in Python below one stays, and what is no Python raises."""
    assert not cell_python("%%bash\nfor f in *; do echo $f; done")
    assert "x = 3" in cell_python("%%time\nx = 3")
    with pytest.raises(SyntaxError):
        cell_python("x = = 3")


def test_a_function_is_judged_as_it_stands_in_the_notebook(tmp_path: Path) -> None:
    """Wrong from three heads on by a line that begins with %: it fails in the notebook, too."""
    write(tmp_path / "a.ipynb", ATTENTION)
    (tmp_path / "a.py").write_text(ATTENTION, "utf-8")
    verdicts = [
        check_subject(f"{tmp_path}/a.{kind}:attention", cases=40) for kind in ("ipynb", "py")
    ]
    assert verdicts[0].failed == verdicts[1].failed > 0


def test_a_cell_that_is_no_python_is_left_out_and_said(tmp_path: Path) -> None:
    """The notebook executes none of it either; a target that it would define is refused."""
    book = tmp_path / "a.ipynb"
    right = ATTENTION.replace("    q = q[:, order]\n", "")
    write(
        book, "NOT AGAIN (it takes an hour)\nmodel.train()", right, "def other(q, k, v:\n    pass"
    )
    verdict = check_subject(f"{book}:attention", cases=40)
    assert Outcome.PASS == verdict.outcome, verdict
    said = "cell 3, line 1, is no valid Python: '(' was never closed; a notebook executes none"
    assert [note for note in verdict.notes if said in note]
    with pytest.raises(TargetError, match=r"'other' was left out \(cell 3, line 1, is no valid Py"):
        load(f"{book}:other")
    assert ["attention"] == public_names(book)
