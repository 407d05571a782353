"""Changes of the deciding code: what is drawn, how it is shown, and what the table says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mha_parity.selftest.mutation_draw import (
    ROOMS,
    Mutation,
    apply,
    changed_lines,
    draw,
    mutation_places,
)
from mha_parity.selftest.mutation_score import (
    EQUIVALENTS,
    ChangeResult,
    read_equivalents,
    score,
    score_tables,
)

ROOT = Path(__file__).parents[3]
JUDGING = "parity_tests/mha_parity/judging"
MODULE = '''"""A module."""
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 1 + 1

@dataclass(frozen=True)
class Pair:
    first: int | None

def larger(one: int | None, two: int | str) -> int | None:
    zip(one, two, strict=True)
    return one + two
'''


def change(line: str = "a + b", changed: str = "a - b", room: str = JUDGING) -> Mutation:
    """Return a change of a module of the room."""
    return Mutation(path=f"{room}/output.py", line=line, changed=changed)


def test_the_score_leaves_equivalents_out() -> None:
    """Three killed, one survived and four equivalent are 75 %."""
    outcomes = ["killed"] * 3 + ["survived"] + ["equivalent"] * 4
    assert 0.75 == score([ChangeResult(change=change(), outcome=one) for one in outcomes])


def test_a_survivor_is_shown_with_its_line() -> None:
    """The table has a line per room, and each change that no test sees, its bars escaped."""
    seen = ChangeResult(change=change(), outcome="killed")
    missed = ChangeResult(change=change("a | b", "a & b"), outcome="survived")
    text = score_tables([seen, missed], seed=7)
    assert "2 changes drawn under seed 7; a test sees 50.0%" in text
    assert f"| `{JUDGING}` | 2 | 1 | 0 | 1 |" in text
    assert f"| `{JUDGING}/output.py` | `a \\| b` | `a & b` |  |" in text


def test_a_change_is_shown_by_the_lines_that_differ() -> None:
    """The line that went and the one that came, without their indent."""
    assert changed_lines(f"{JUDGING}/output.py", "x\n  a + b\ny\n", "x\n  a - b\ny\n") == change()


def outdated(root: Path, path: Path = EQUIVALENTS) -> list[str]:
    """Return the lines of changes that have no reason, or that the code under ``root`` lacks."""
    entries = map(json.loads, path.read_text("utf-8").splitlines())
    return [
        each["line"]
        for each in entries
        if not each["why"] or not holds_line((root / each["path"]).read_text("utf-8"), each["line"])
    ]


def holds_line(text: str, line: str) -> bool:
    """Return whether a text has the words of a line one after the other."""
    return " ".join(line.split()) in " ".join(text.split())


def test_every_equivalent_change_has_a_reason_and_its_line(tmp_path: Path) -> None:
    """An entry without a reason, or whose line the code no longer has, excuses nothing."""
    assert [] == outdated(ROOT)
    (tmp_path / "code.py").write_text("first = 1  # one\nsecond = 2\n", encoding="utf-8")
    known = [
        ("first = 1  # one", "it is unused"),
        ("second = 2", ""),
        ("third = 3", "it is unused"),
    ]
    entries = [{"path": "code.py", "line": a, "changed": "", "why": why} for a, why in known]
    listed = tmp_path / "list.jsonl"
    listed.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    assert ["second = 2", "third = 3"] == outdated(tmp_path, listed)
    assert "it is unused" == read_equivalents(listed)["code.py", "first = 1  # one", ""]


def test_every_room_and_its_tests_exist() -> None:
    """A folder without tests would let every change survive, and one that is missing none."""
    for room, folders in ROOMS.items():
        assert list((ROOT / room).glob("*.py")), f"{room} has no module"
        for folder in folders:
            assert list((ROOT / "parity_tests/tests" / folder).glob("test_*.py"))


def test_what_no_run_can_see_is_not_changed() -> None:
    """Of annotations, a dataclass's options and imports for types nothing is drawn."""
    pytest.importorskip("cosmic_ray", reason="cosmic-ray is not installed; make mutation does")
    found = mutation_places(MODULE)
    assert {"return one + two"} == {MODULE.splitlines()[line - 1].strip() for line, _ in found}
    texts = {apply(MODULE, *each) for changes in found.values() for each in changes}
    assert MODULE.replace("one + two", "one - two") in texts


def test_a_seed_draws_the_same_changes() -> None:
    """Twice the same, each at a place of its own, and others under another seed."""
    pytest.importorskip("cosmic_ray", reason="cosmic-ray is not installed; make mutation does")
    first, again, other = (list(draw(ROOT, 5, seed, [JUDGING])) for seed in (1, 1, 2))
    assert first == again != other
    assert 5 == len({text for _, text in first})
