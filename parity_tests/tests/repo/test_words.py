"""The words of the house: docstrings, comments, messages and names speak the field's language.

A banned word is a metaphor, or says less than a number would. Ordinary words in ordinary sentences
(near, turn, cell, noted, apart from) are not on the list.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("impl/mha_numpy", "reference/mha_torch", "parity_tests/mha_parity")

# Word or construction in prose -> what to write.
PROSE = {
    r"\b(so|how)-?manieth\b": "the number: seed % 4 == 0",
    r"\bevery so many\b": "the number",
    r"\bof two minds\b": "what happens on which path",
    r"\b(mourn|hear|heard|hears|hearing|booths?|revives?d?|deafening|loud|unlucky)\b": "the event",
    r"\b(dear|dearer|drowns?|drowned)\b": "the cost or the error in numbers",
    r"\b(told|blamed?)\b": "reported, formatted, found, attributed",
    r"\bapart\b(?! from)": "separate, distinct",
    r"\bway (back|forth)\b": "backward pass, forward pass",
    r"\b(by heart|rolls? dice|asked anew|mixes? dice)\b": "what is computed",
    r"\b(in|whose|takes?) turns?\b": "one after the other, scheduled",
    r"\bdue\b(?! to)": "expected, right",
    r"\bposed?\b|\bposes\b|\bposing\b": "asked, called with",
}
# Part of a name -> what to call it.
NAMES = {
    "told": "formatted, found",
    "apart": "separate, difference",
    "due": "expected",
    "got": "actual",
    "chance": "rng, probability",
    "weigh": "attention_weights",
    "mix": "apply_weights",
    "blamed": "target_errors",
    "booth": "client",
    "hear": "receive",
    "mourn": "on_exit",
    "revive": "retry",
    "posed": "problem",
}


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comment and every string of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every function, class, parameter, variable and attribute set."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words(name: str) -> list[str]:
    """Split a name in snake_case or CamelCase into lower-case words."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")


def banned(source: str) -> list[str]:
    """List the banned words of a module, each with its line and what to write."""
    found = [
        (line, f"{match[0]!r}: write {instead}")
        for line, text in prose(source)
        for pattern, instead in PROSE.items()
        for match in re.finditer(pattern, text, flags=re.IGNORECASE)
    ]
    found += [
        (line, f"{name}: call it {NAMES[word]}")
        for line, name in names(source)
        for word in words(name)
        if word in NAMES
    ]
    return [f"{line}: {each}" for line, each in sorted(set(found))]


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of the three packages by its path from the root."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path


def test_no_banned_word() -> None:
    """No docstring, comment, message or name of the packages has a banned word."""
    found = [
        f"{name}:{each}"
        for name, path in modules()
        for each in banned(path.read_text(encoding="utf-8"))
    ]
    assert [] == found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("x = 1  # every so-manieth case", 1),
        ('"""What a candidate prints, told apart by case."""', 2),
        ('raise ValueError("the samples are judged apart")', 1),
        ("def told(rows): ...", 1),
        ("class BoothClient: ...", 1),
        ("def f(chance): ...", 1),
        ("due = 1", 1),
        ("for got, x in (): ...", 1),
        ("self.hear = 1", 1),
        ("expected = actual = 1  # two rows are returned", 0),
        ("def untold_residue(): ...", 0),
        ("near = cells = 1  # noted apart from the sizes", 0),
    ],
)
def test_a_banned_word_is_found(source: str, count: int) -> None:
    """Each kind of place is searched, and words that only contain a banned one are left alone."""
    assert count == len(banned(source))
