"""The story of a bug: what is computed on the spot is right, and nothing is left out."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from mha_parity.__main__ import main
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.commands import explain
from mha_parity.core.case import parse

WIDTH = 80


def story(name: str, width: int = WIDTH) -> str:
    """Return what a terminal shows."""
    console = Console(file=io.StringIO(), width=width)
    explain.print_bug(name, console)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


def words(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


def test_a_story_is_whole() -> None:
    """Formulas, when it shows and hides, remedy, threads, frequency, an example; no blank ends."""
    bug = catalogue()["scale-dmodel"]
    lines = story(bug.id).splitlines()
    assert lines == [line.rstrip() for line in lines]
    text = words("\n".join(lines))
    for part in (bug.title, bug.right, bug.wrong, bug.visible_when, bug.remedy, *bug.sources):
        assert part in text
    assert "surest where the problem has: scale 1/sqrt(head_dim); and: several heads" in text
    assert re.search(r"It shows in [1-9]\d* of \d+ cases", text)
    assert "The smallest found: qkv-" in text


@pytest.mark.parametrize("name", ["scale-dmodel", "softmax-query-axis", "merge-no-transpose"])
def test_the_numbers_are_those_of_the_case(name: str) -> None:
    """The example's id is a real case; the two answers printed are the right and the wrong one."""
    text = story(name)
    found = re.search(r"The smallest found: (\S+)", text)
    assert found
    problem = make_problem(parse(found[1]))
    assert problem.case.queries * problem.case.keys <= 9
    with np.printoptions(precision=4, suppress=True):
        right = str(answer_of(Attention, problem).output[0])
        wrong = str(catalogue()[name].attend(problem).output[0])
    assert right != wrong
    for label, array in (("right", right), ("wrong", wrong)):
        printed = text.split(f"output, {label} (float64)")[1]
        assert words(printed).startswith(words(array))


@pytest.mark.whole
@pytest.mark.repeats(4)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("weights-transposed", "weights, wrong (float64)"),
        ("s0-undefined", "output, wrong: none, it raises an error"),
        ("mask-1e9-full-row", "output, right (float64) [[ nan]"),
        ("bool-inverted", "attn_mask (True: hidden)"),
        ("mutates-inputs", "No example: it takes more than one call"),
        ("softmax-divided-late", "No example: no problem drawn here tells it"),
        ("softmax-divided-late", "proof equal: the sum of a row is one number"),
        ("softmax-plus-one", "alias zeroattn-always"),
        ("silent-upcast", "It shows in 150 of 150"),
        ("silent-upcast", "output, wrong (float64)"),
    ],
)
def test_every_kind_of_bug_has_its_example(name: str, sentence: str) -> None:
    """Weights, crashes, rows without keys, state, equivalents and dtypes have a sentence each."""
    assert sentence in words(story(name))


# Every fourth here, all in `make test-all`.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if i % 4 else ()) for i, n in enumerate(catalogue())],
)
def test_every_story_fits_eighty_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bug breaks its own story, and no line is wider than the terminal."""
    monkeypatch.setattr(explain, "TRIED", 12)
    text = story(name)
    assert catalogue()[name].remedy.split()[0] in text
    assert WIDTH >= max(len(line) for line in text.splitlines())


@pytest.mark.parametrize(
    ("name", "hint"),
    [("scale-model", "did you mean scale-dmodel"), ("xyz", "see mha-parity list bugs")],
)
def test_an_unknown_bug_is_refused(
    name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence names what was got and the nearest ones; the status is 2."""
    assert 2 == main(["explain", name])
    said = capsys.readouterr()
    assert "" == said.out
    assert f"got the bug {name!r}, but the catalogue has no such one; {hint}" in said.err
    assert 1 == said.err.count("\n")


def test_bugs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every bug stands in one list with its title, every right variant in the other."""
    for what, is_bug in (("variants", False), ("bugs", True)):
        assert 0 == main(["list", what])
        listed = capsys.readouterr().out
        ids = {line.split()[0] for line in listed.splitlines() if re.match(r" ?[a-z0-9]", line)}
        expected = {each.id for each in catalogue().values() if is_bug != bool(each.equivalent)}
        assert expected == ids & set(catalogue())
    assert "the scores are divided by the root of the whole width" in words(listed)
