"""Which tests are asked about a change, in which order, and that they run on the changed copy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mha_parity.selftest import mutation_tests
from mha_parity.selftest.mutation_tests import (
    RecordedTest,
    WarmProcess,
    cached_json,
    chosen,
    first_difference,
    function_at,
)

FILE = "parity_tests/tests/core/test_of_it.py"
TESTS = """
from only_in_the_copy import Pair, one

def test_one():
    assert one() == 1

def test_two():
    assert Pair().both() == (1, 1)
"""
MODULE = """
def one():
    return 1

class Pair:
    def both(self):
        first = [one() for _ in range(2)]
        return tuple(first)
"""


@pytest.fixture
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WarmProcess]:
    """Return the process of a copy with one module and two tests of it."""
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "copy"
    (copy / FILE).parent.mkdir(parents=True)
    (copy / FILE).write_text(TESTS)
    (copy / "parity_tests" / "only_in_the_copy.py").write_text(MODULE)
    user = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "."], [*user, "commit", "-q", "-m", "first"]):
        whole = ["git", *command]
        subprocess.run(whole, cwd=copy, check=True)
    process = WarmProcess(copy)
    yield process
    process.close()


def test_a_change_of_the_copy_is_seen_by_the_tests_that_call_it(warm: WarmProcess) -> None:
    """Recorded are the functions that each test calls; wrong, endless and broken code is seen."""
    path = "parity_tests/only_in_the_copy.py"
    records = warm.record(FILE)
    assert [f"{FILE}::test_one", f"{FILE}::test_two"] == [each.name for each in records]
    called = [{name for file, name in each.called if file == path} for each in records]
    assert {"one"} == called[0]
    assert {"one", "Pair.both"} == called[1] - {"Pair.both.<locals>.<listcomp>"}
    assert warm.is_green(records)
    module = warm.root / path
    for changed in ("return 2", "return (1"):
        module.write_text(MODULE.replace("return 1", changed))
        assert not warm.is_green(records), changed
    module.write_text(MODULE.replace("return 1", "while True: pass"))
    names = [each.name for each in records]
    assert -1 == warm.ask(tests=names, seconds=2.0)["status"]
    module.write_text(MODULE)
    assert warm.is_green(records)


def test_tests_that_fail_on_unchanged_code_are_said(warm: WarmProcess) -> None:
    """They would see each change."""
    (warm.root / "parity_tests" / "only_in_the_copy.py").write_text("one = Pair = None\n")
    with pytest.raises(RuntimeError, match=f"{FILE} fails on unchanged code; mend it first"):
        warm.record(FILE)


def record(name: str, seconds: float, *called: tuple[str, str]) -> RecordedTest:
    """Return the record of a test in a folder."""
    return RecordedTest(
        name=f"parity_tests/tests/{name}", seconds=seconds, called=frozenset(called)
    )


def test_tests_that_call_the_function_come_first_then_those_of_its_module() -> None:
    """The fastest first, then others of their files; without any, those of the nearest folder."""
    slow = record("run/a::x", 5.0, ("m.py", "f"))
    fast = record("core/b::x", 1.0, ("m.py", "f"), ("n.py", "g"))
    other = record("core/c::x", 0.1, ("m.py", "h"))
    reader = record("core/c::y", 0.01, ("n.py", "g"))
    foreign = record("core/d::x", 0.1, ("n.py", "g"))
    every = [slow, foreign, other, reader, fast]
    assert [fast, slow, other, reader] == chosen(every, "m.py", "f", ["core", "run"])
    assert [other, fast, slow, reader] == chosen(every, "m.py", "", ["core", "run"])
    assert [reader, foreign, other, fast] == chosen(every, "l.py", "f", ["core", "run"])


def test_tests_take_no_longer_than_the_limit_but_the_first_runs() -> None:
    """What is slower is left out, and what fits after it is not."""
    most = mutation_tests.MOST_SECONDS
    first, second, third = (
        record(f"core/{name}", seconds, ("m.py", "f"))
        for name, seconds in (("a", 0.6 * most), ("b", 0.7 * most), ("c", 0.8 * most))
    )
    small = record("core/d", 0.3 * most, ("m.py", "g"))
    assert [first, small] == chosen([third, second, first, small], "m.py", "f", ["core"])
    slow = record("core/e", 2 * most, ("m.py", "f"))
    assert [slow] == chosen([slow], "m.py", "f", ["core"])


def test_every_test_is_asked_before_further_cases_of_one() -> None:
    """Kills the order by time alone: many fast cases of one test left no time for other tests."""
    cases = [record(f"core/a::x[{n}]", 0.01 * n, ("m.py", "f")) for n in range(1, 4)]
    others = [record(f"core/a::{n}", n, ("m.py", "f")) for n in (2.0, 1.0)]
    expected = [cases[0], *others[::-1], *cases[1:]]
    assert expected == chosen([*others, *cases[::-1]], "m.py", "f", ["core"])


def test_a_line_is_in_the_innermost_function() -> None:
    """A method by its class, a function in a function by both; a signature is in none."""
    source = "class A:\n  def f(self):\n    def g():\n      return 1\n    return g\nx = 1\n"
    names = ["", "", "A.f", "A.f.<locals>.g", "A.f", ""]
    assert names == [function_at(source, line) for line in range(1, 7)]
    assert 3 == first_difference("a\nb\nc", "a\nb\nd")


def test_what_is_kept_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another key is another result."""
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    def compute() -> list[str]:
        asked.append("once more")
        return list(asked)

    assert ["once more"] == cached_json("a", compute) == cached_json("a", compute)
    assert ["once more", "once more"] == cached_json("b", compute)
