"""One library in the place of another: for its interface, and never for its name alone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.loading import library_stubs
from subject_checks import check_subject

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    monkeypatch.setitem(library_stubs.INTERFACE_OF, "like_numpy", "numpy")
    verdict = check_subject(write(SOURCE.replace("SCALE", scale)), cases=40)
    assert outcome is verdict.outcome, verdict.sentence
    said = "`like_numpy` is not installed: `numpy`, whose interface it has, was used in its place"
    assert any(said in note for note in verdict.notes), verdict.notes


def test_a_library_without_its_interface_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[str], str]
) -> None:
    """What the other library has not is a stand-in, whose call says what is missing."""
    monkeypatch.setitem(library_stubs.INTERFACE_OF, "like_numpy", "numpy")
    with pytest.raises(ValueError, match=r"like_numpy.fused was called, but like_numpy is not in"):
        check_subject(write("import like_numpy as xp\ndef f(q, k, v): return xp.fused(q, k, v)\n"))


@pytest.mark.parametrize("library", ["numpy", "colorsys"])
def test_a_package_of_a_librarys_name_does_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """Whether that is imported before or by the file alone; its own modules are found besides."""
    held = sys.modules[library] if library == "numpy" else None
    if held is None:
        monkeypatch.delitem(sys.modules, library, raising=False)
    folder = tmp_path / "of_this_test" / library
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "sizes_of_test.py").write_text("N = 3\n", encoding="utf-8")
    text = f"import {library}\nfrom sizes_of_test import N\ndef f(q): return {library}.__file__\n"
    (folder / "layer.py").write_text(text, encoding="utf-8")
    assert not load.load(f"{folder / 'layer.py'}:f")(0).startswith(str(tmp_path))
    assert held in {None, sys.modules[library]}


def test_a_package_means_its_own_module_where_it_has_it(tmp_path: Path) -> None:
    """`from sched.scores import f` in a package `sched` is none of Python's module of that name."""
    folder = tmp_path / "sched"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "scores.py").write_text("def f(q): return q\n", encoding="utf-8")
    (folder / "layer.py").write_text("from sched.scores import f\n", encoding="utf-8")
    assert "sched" not in sys.modules
    assert 3 == load.load(f"{folder / 'layer.py'}:f")(3)
    for name in ("sched", "sched.scores", "sched.layer"):
        del sys.modules[name]


def test_a_missing_library_that_another_one_refuses_is_named(tmp_path: Path) -> None:
    """An import that raises because of a stand-in says which library to install."""
    (tmp_path / "registered.py").write_text(
        "import nowhere_installed\n\n"
        "if not isinstance(nowhere_installed.Module, type):\n"
        "    raise TypeError(f'Expected a class, got {nowhere_installed.Module!r}.')\n",
        encoding="utf-8",
    )
    said = r"got <nowhere_installed\.Module, which is not installed>.*; install nowhere_installed"
    with pytest.raises(TargetError, match=said):
        load.load(f"{tmp_path}/registered.py:attention")
