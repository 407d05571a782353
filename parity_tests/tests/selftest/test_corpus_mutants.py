"""Changes of public attentions: drawn as mistakes are made, judged as they stand, and counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mha_parity.selftest import corpus_mutants
from mha_parity.selftest.corpus_mutants import (
    ChangedEntry,
    draw_changes,
    judge_changed,
    page,
    publish_rows,
    read_rows,
)
from mha_parity.selftest.corpus_run import CorpusEntry
from mha_parity.selftest.source_changes import SourceChange, draw_change

if TYPE_CHECKING:
    from pathlib import Path

# By a kind, a body with one place of it, and all that may stand there.
BODIES = {
    "switch": ("return f(a, True)", {"return f(a, (False))"}),
    "number": ("return a[2]", {f"return a[({each})]" for each in (3, 1, -2, 4)}),
    "operator": ("return a @ b / c", {"return (a @ b * c)"}),
    "comparison": ("return a == b", {"return (a != b)"}),
    "negation": ("return ~a", {"return a"}),
    "function": ("return a.tril()", {"return a.triu()"}),
    "input": ("return k", {"return q", "return v"}),
    "keyword": ("return f(a, dim=b)", {"return (f(a))"}),
    "condition": (
        "if a:\n        return b",
        {"if (True):\n        return b", "if (False):\n        return b"},
    ),
    "statement": ("a = f(a)\n    return a", {"pass\n    return a"}),
}
ATTENTION = """
import numpy as np


def weights(scores):
    \"\"\"Return 2 kinds of 1.\"\"\"
    if scores.ndim < 2:
        raise ValueError(f"got {1 + 1} axes")
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(q, k, v):
    return weights(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v
"""
ENTRY = CorpusEntry(
    repository="someone/attention", commit="0" * 40, path="a.py", name="attention",
    truth="right", verdict="pass",
)  # fmt: skip
ROW = ChangedEntry(
    seed=1, repository="a/b", path="c.py", name="f", kind="number", line=3, verdict="pass",
    settled="let through", reason="the axis of heads", later="fail",
)  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
def test_a_change_is_one_of_its_kind(kind: str) -> None:
    """Each kind has its place, and nothing but this place is changed."""
    body, expected = BODIES[kind]
    drawn = [draw_change(f"def f(a, b):\n    {body}\n", "f", str(seed)) for seed in range(40)]
    found = {each.source.removeprefix("def f(a, b):\n    ").rstrip() for each in drawn if each}
    assert expected == found
    assert {kind} == {each.kind for each in drawn if each}


@pytest.mark.parametrize(
    "body",
    ["return a", "raise ValueError(1 + 1)", "assert a == 1", '"""Return 1."""'],
    ids=str.split,
)
def test_what_no_call_shows_is_not_changed(body: str) -> None:
    """Messages, assertions and docstrings stay, and so do defaults."""
    assert draw_change(f"def f(a, b=1):\n    {body}\n", "f", "0") is None


def test_what_a_target_calls_of_its_file_is_changed_too() -> None:
    """The softmax beside it, and no function that it does not call."""
    source = f"{ATTENTION}\n\ndef other(q):\n    return q + 1\n"
    drawn = [draw_change(source, "attention", str(seed)) for seed in range(60)]
    lines = {each.line for each in drawn if each}
    assert {7, 9, 10, 14} == lines


def test_a_changed_source_is_judged_as_it_stands(tmp_path: Path) -> None:
    """The entry's own verdict is green, that of the change is red, and the source is left alone."""
    file = ENTRY.file(tmp_path)
    file.parent.mkdir()
    file.write_text(ATTENTION, encoding="utf-8")
    wrong = SourceChange(
        kind="operator", line=14, source=ATTENTION.replace("/ np.sqrt", "* np.sqrt")
    )
    right = SourceChange(kind="statement", line=0, source=ATTENTION)
    assert "fail" == judge_changed(ENTRY, wrong, tmp_path, 1)[0].verdict
    assert "pass" == judge_changed(ENTRY, right, tmp_path, 1)[0].verdict
    assert ATTENTION == file.read_text(encoding="utf-8")


def test_right_entries_that_pass_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No wrong one, none that fails, and none whose source is not at hand."""
    file = ENTRY.file(tmp_path)
    file.parent.mkdir()
    file.write_text(ATTENTION, encoding="utf-8")
    others = [
        CorpusEntry(repository="someone/attention", commit="", path="a.py", name="attention",
                    truth=truth, verdict=verdict)
        for truth, verdict in (("wrong", "fail"), ("right", "fail"))
    ]  # fmt: skip
    absent = CorpusEntry(
        repository="a/b", commit="", path="a.py", name="f", truth="right", verdict="pass"
    )
    monkeypatch.setattr(corpus_mutants, "read_manifest", lambda: [*others, absent, ENTRY])
    assert [ENTRY] == [entry for entry, _ in draw_changes(tmp_path, 1)]


def test_the_page_counts_what_was_let_through(tmp_path: Path) -> None:
    """By seed, and what fails since is let through no more; a seed is replaced as a whole."""
    file = tmp_path / "rows.jsonl"
    publish_rows([ROW], file)
    publish_rows([replace(ROW, seed=2, later="")], file)
    publish_rows([ROW], file)
    assert [1, 2] == [row.seed for row in read_rows(file)]
    lines = list(page(read_rows(file)))
    assert "| 1 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 1 | 0 |" == lines[2]
    assert "| 2 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 1 | 1 |" == lines[3]
    assert "| a/b | number in line 3 of `c.py:f` | pass, then fail | the axis of heads |" in lines
    assert "\n".join(lines) in file.with_suffix(".md").read_text(encoding="utf-8")
