"""Check the attentions of the folder of subjects in this process, by few cases.

``pythonpath`` of pytest's settings has this folder: tests import the module by its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.worker.open_target import bind_in_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.verdict import Verdict

SUBJECTS = Path(__file__).parents[2] / "subjects"
RIGHT = f"{SUBJECTS}/projected.py:f"
WRONG = f"{SUBJECTS}/wrong_scale.py:f"
LAYER = "mha_numpy:MultiheadAttention"
# The fields of a verdict that do not depend on where its cases are judged.
SAME = (
    "outcome", "run", "passed", "failed", "features", "checks", "sensitivity", "measured_cases",
    "worst",
)  # fmt: skip


def load_subject(target: str) -> Any:
    """Return what ``file.py:name`` of the subjects or of a whole path names, or of a library."""
    return load.load(f"{SUBJECTS / target}" if ".py:" in target else target)


def check_subject(target: str, **options: Any) -> Verdict:
    """Return the verdict on a subject, or on a target of a library.

    ``options`` are those of a run: 18 cases, no diagnosis and no shrinking by default.
    """
    asked = Options(**({"cases": 18, "diagnose": False, "shrink": False} | options))
    verdict = check(bind_in_process(load_subject(target), asked), asked)
    mistakes = [note for note in verdict.notes if note.startswith("the diagnosis itself failed")]
    assert not mistakes, mistakes
    return verdict


def checks_of(file: str, **options: Any) -> Callable[..., Verdict]:
    """Return a function that checks one of a file's subjects by its name, with those options.

    It takes further options, or other values of the same ones.
    """
    return lambda name, **changes: check_subject(f"{file}:{name}", **(options | changes))


def assert_named(target: str, bugs: list[str], cases: int, **options: Any) -> None:
    """Hold that the diagnosis of a subject is sure of these bugs alone; without any it passes."""
    verdict = check_subject(target, cases=cases, diagnose=True, **options)
    assert bugs == [each.bug for each in verdict.diagnosis], verdict.diagnosis
    assert all(each.confident for each in verdict.diagnosis)
    assert bool(bugs) == bool(verdict.failures)
