"""The words of the house: prose, messages and names speak the field's language.

A banned word is a metaphor, or says less than a number would. Ordinary words in ordinary sentences
(near, turn, cell, noted, apart from) are not on the list. Searched are packages, tests, subjects,
examples, Markdown pages and templates; not this file, which has the list, nor pages made by a
program. In the packages no docstring begins with "What", "Who" or "It" as a subject.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("impl/mha_numpy", "reference/mha_torch", "parity_tests/mha_parity")

# Folders of modules that are searched, names included.
FOLDERS = (
    *PACKAGES, "parity_tests/tests", "parity_tests/subjects", "parity_tests/examples",
    "parity_tests/docs",
)  # fmt: skip
# Texts that are searched as a whole: pages written by hand, and templates.
TEXTS = (
    "README.md", ".github/*.md", "parity_tests/docs/**/*.md",
    *(f"{package}/**/*.{kind}" for package in PACKAGES for kind in ("html", "jinja")),
)  # fmt: skip
MADE = "parity_tests/docs/generated"
OWN = "parity_tests/tests/repo/test_words.py"
# Modules outside these folders.
FURTHER = ("conftest.py",)
# Path and banned word -> why it stands there.
EXEMPT = {
    ("parity_tests/subjects/documented_masks.py", "'nobody'"): (
        "documentation as a user writes it, whose words the harness reads"
    ),
    ("parity_tests/subjects/without_counterpart.py", "mix"): (
        "the output projection, by a name that `targets.static.names` knows"
    ),
}
# A docstring begins with a verb or a noun of the field instead.
SUBJECT = re.compile(r"(What|Who|Whose|It)\b")

# Word or construction in prose -> what to write.
PROSE = {
    r"\b(so|how)-?manieth\b": "the number: seed % 4 == 0",
    r"\bso many\b": "the number, or the parameter that has it",
    r"\bby turns\b": "alternating, some ... others",
    r"\A(# )?Within, ": "Context: what holds inside it",
    r"\b(some|no|any)body\b": "the target, the system, the reader",
    r"\ban? (row|line|column|number|character|table|plate|entry|constant) an? \w+": "a row per x",
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
# A public function or class that stands in several modules of the harness -> why it may.
SHARED = {
    "main": "the entry of a module that is run as a program",
    "serve": "the loop of a worker process: answers requests until its pipe is closed",
    "document": "makes a report: `document(verdicts, refused)`, as `files.MAKE` calls it",
    "bench": "a command: `cli` reads its line, the room runs it",
    "check": "a command: `cli` reads its line, `commands` runs it, `run` judges",
    "identify": "a command: `cli` reads its line, `diagnose` runs the experiments",
    "merge": "a command: `cli` reads its line, `commands` runs it",
    "record": "a command: `cli` reads its line, `commands` runs it",
    "replay": "a command: `cli` reads its line, `commands` runs it; `api` offers it to Python",
    "Verdict": "`api` adds to the plain data what a notebook and a script ask of it",
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


def banned_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield each banned word of a text, with its line from 0 and what to write."""
    for pattern, instead in PROSE.items():
        for match in re.finditer(pattern.replace(" ", r"\s+"), text, flags=re.IGNORECASE):
            yield text.count("\n", 0, match.start()), f"{match[0]!r}: write {instead}"


def banned_in_page(text: str) -> list[str]:
    """List the banned words of a page or a template, each with its line and what to write."""
    return [f"{line + 1}: {each}" for line, each in sorted(set(banned_prose(text)))]


def banned(source: str) -> list[str]:
    """List the banned words of a module, each with its line and what to write."""
    found = [
        (line + further, each)
        for line, text in prose(source)
        for further, each in banned_prose(text)
    ]
    found += [
        (line, f"{name}: call it {NAMES[word]}")
        for line, name in names(source)
        for word in words(name)
        if word in NAMES
    ]
    return [f"{line}: {each}" for line, each in sorted(set(found))]


def pronoun_subjects(source: str) -> list[str]:
    """List the docstrings of a module that begin with a pronoun as a subject, with their lines."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        f"{node.body[0].lineno}: {text.splitlines()[0]}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, documented)
        if SUBJECT.match(text := ast.get_docstring(node) or "")
    ]


def modules(root: Path = ROOT, folders: tuple[str, ...] = PACKAGES) -> Iterator[tuple[str, Path]]:
    """Yield every module of the folders by its path from the root."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path


def pages(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Yield every page and template that is written by hand by its path from the root."""
    for pattern in TEXTS:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if not name.startswith(MADE):
                yield name, path


def word_of(each: str) -> str:
    """Return the banned word, or the name with one, of an entry of ``banned``, without its line."""
    return re.split(r": (?:write|call it) ", each)[0].split(": ", 1)[1]


@cache
def all_banned(root: Path) -> tuple[tuple[str, str], ...]:
    """Return path and entry of each banned word of all modules, pages and templates of a root."""
    further = [(name, root / name) for name in FURTHER if (root / name).exists()]
    sources = [each for each in (*modules(root, FOLDERS), *further) if each[0] != OWN]
    kinds = ((sources, banned), (pages(root), banned_in_page))
    return tuple(
        (name, each)
        for files, search in kinds
        for name, path in files
        for each in search(path.read_text(encoding="utf-8"))
    )


def banned_below(root: Path) -> list[str]:
    """List the banned words below a root, each with path and line, without those exempt."""
    return [
        f"{name}:{each}" for name, each in all_banned(root) if (name, word_of(each)) not in EXEMPT
    ]


def shared_names(sources: dict[str, str]) -> dict[str, list[str]]:
    """Return each public function and class that several modules define, with those modules."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_no_banned_word() -> None:
    """No docstring, comment, message or name of a module, and no page or template has one."""
    assert [] == banned_below(ROOT)


def test_each_exemption_is_needed() -> None:
    """A word that is exempt in a file stands in that file."""
    assert EXEMPT.keys() == EXEMPT.keys() & {
        (name, word_of(each)) for name, each in all_banned(ROOT)
    }


def test_no_docstring_begins_with_a_pronoun() -> None:
    """The docstrings of the packages begin with a verb or a noun of the field."""
    assert [] == [
        f"{name}:{each}"
        for name, path in modules()
        for each in pronoun_subjects(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""What a call passes."""', 1),
        ('class Room:\n    """Who has the cores."""', 1),
        ('class Room:\n    @property\n    def name(self):\n        """What reports call it."""', 1),
        ('async def ask():\n    """\n    It is sent.\n    """', 1),
        ('"""Whose the cores are."""\ndef _ask():\n    r"""It raises."""', 2),
        ('"""Whatever is passed.\n\nWhat is not."""\nx = "What a call passes."', 0),
        ('"""Items of a call, and what each is."""\ndef f(): ...', 0),
    ],
)
def test_a_pronoun_as_a_subject_is_found(source: str, count: int) -> None:
    """The first line of every docstring is searched, and nothing else."""
    assert count == len(pronoun_subjects(source))


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        *[(f"{package}/a/b.py", "told = 1", ["1: told"]) for package in PACKAGES],
        ("parity_tests/tests/run/test_a.py", "x = 1\ndef test_due(): ...", ["2: test_due"]),
        ("parity_tests/tests/conftest.py", '"""Hold.\n\nOne in so\nmany."""', ["3: 'so\\nmany'"]),
        ("parity_tests/examples/a.py", "x = 1  # ask somebody", ["1: 'somebody'"]),
        ("parity_tests/docs/conf.py", "got = 1", ["1: got"]),
        ("README.md", "# A\n\nThe files are kept\napart.", ["4: 'apart'"]),
        (".github/CONTRIBUTING.md", "One in so\nmany.", ["1: 'so\\nmany'"]),
        ("parity_tests/docs/howto/a.md", "- **told** by name", ["1: 'told'"]),
        ("parity_tests/docs/index.md", "The gradient due.", ["1: 'due'"]),
        ("parity_tests/mha_parity/report/a.html.jinja", "<p>\n{# loud #}</p>", ["2: 'loud'"]),
        ("parity_tests/mha_parity/report/a.html", "<p title='heard'></p>", ["1: 'heard'"]),
        ("parity_tests/docs/generated/a.md", "told", []),
        ("parity_tests/subjects/wrong/a.py", "x = 1\nself.mix = 1", ["2: mix"]),
        ("parity_tests/subjects/a.py", '"""Wants what nobody has."""', ["1: 'nobody'"]),
        ("conftest.py", "def f(chance): ...", ["1: chance"]),
        ("parity_tests/subjects/without_counterpart.py", "self.mix = told = 1", ["1: told"]),
        (OWN, "told = 1", []),
        ("README.md", "Apart\nfrom these, due to rounding, as many as that.", []),
    ],
)
def test_every_kind_of_file_is_searched(
    tmp_path: Path, name: str, text: str, found: list[str]
) -> None:
    """A word planted in a module, a page or a template is found there, with its line."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    actual = [each.removeprefix(f"{name}:") for each in banned_below(tmp_path)]
    assert found == [re.split(r": (?:write|call it) ", each)[0] for each in actual]


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("x = 1  # every so-manieth case", 1),
        ("x = 1  # one in so many is long", 1),
        ('"""Say that rows are right and wrong by turns."""', 1),
        ('"""Within, warnings are ignored."""', 1),
        ('"""Run somebody\'s code where nobody asks."""', 2),
        ('"""Yield a row a dtype, and a line an axis."""', 2),
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
        ('"""Yield a row per dtype, within, and as many as so few."""', 0),
    ],
)
def test_a_banned_word_is_found(source: str, count: int) -> None:
    """Each kind of place is searched, and words that only contain a banned one are left alone."""
    assert count == len(banned(source))


def test_one_name_has_one_meaning() -> None:
    """No public function or class of the harness stands in two modules, but for one protocol."""
    sources = {
        name: path.read_text(encoding="utf-8")
        for name, path in modules()
        if name.startswith("parity_tests/mha_parity/")
    }
    found = shared_names(sources)
    assert {} == {name: homes for name, homes in found.items() if name not in SHARED}
    assert set() == SHARED.keys() - found.keys()


def test_a_shared_name_is_found() -> None:
    """A second home of a function or a class is found; methods and private names are free."""
    one = "def show(x): ...\nclass Row:\n    def add(self): ...\ndef _read(): ..."
    other = "def show(y): ...\nclass Row: ...\ndef add(): ...\ndef _read(): ..."
    assert {"show": ["a", "b"], "Row": ["a", "b"]} == shared_names({"a": one, "b": other})
    assert {} == shared_names({"a": one})
