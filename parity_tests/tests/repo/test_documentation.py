"""Hold the documentation to the code: each command, option and make target that it names exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import mha_parity
from mha_numpy.textbook import plain
from mha_parity.command_line import parser
from mha_parity.core.parameters import Status
from mha_parity.report import terminal, wording

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        # Those in `generated` are written from the parser when the site is built.
        *(p for p in ROOT.glob("parity_tests/docs/**/*.md") if "generated" not in p.parts),
        *ROOT.glob(".github/*.md"),
        *ROOT.glob(".github/actions/*/*.yml"),
        *ROOT.glob(".github/workflows/*.yml"),
        ROOT / "README.md",
    ]
)
COMMAND = re.compile(r"mha-parity ([a-z]+)((?: [^\s`|#]+)*)")
PLUGIN = re.compile(r"--mha-parity-([a-z-]+)")
MAKE = re.compile(r"(?:`|run: |^)make ([a-z-]+)", flags=re.MULTILINE)


def subcommand_options() -> dict[str, set[str]]:
    """Return the long options of each subcommand."""
    actions = [action for action in parser()._actions if isinstance(action.choices, dict)]
    return {
        name: {option for option in sub._option_string_actions if option.startswith("--")}
        for action in actions
        for name, sub in action.choices.items()  # type: ignore[union-attr]  # a dict, seen above
    }


def unknown(text: str) -> list[str]:
    """List the subcommands and options of the command that a text names and that do not exist."""
    known = subcommand_options()
    found = []
    for name, rest in COMMAND.findall(text):
        options = re.findall(r"(?<!\S)(--[a-z-]+)", rest)
        if name in known:
            found += [f"{name} {option}" for option in options if option not in known[name]]
        elif options:
            found.append(name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(page: Path) -> None:
    """Every subcommand and option of `mha-parity` on the page is one that it takes."""
    assert [] == unknown(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mha-parity check a.py:f --cases 100", []),
        ("mha-parity check a.py:f --case 100", ["check --case"]),
        ("mha-parity chek a.py:f --cases 100", ["chek"]),
        ("`mha-parity bench a.py:f`, then --nothing", []),
    ],
)
def test_an_unknown_option_is_found(text: str, found: list[str]) -> None:
    """A misspelt option or subcommand is found; words that follow a command are left alone."""
    assert found == unknown(text)


def test_plugin_options_exist() -> None:
    """Every `--mha-parity-...` option that a page names is one of the pytest plugin."""
    own = PLUGIN.findall((ROOT / "parity_tests/mha_parity/pytest_plugin.py").read_text("utf-8"))
    options = {option[2:] for option in subcommand_options()["check"]} | set(own)
    named = {name for page in PAGES for name in PLUGIN.findall(page.read_text(encoding="utf-8"))}

    assert "target" in named
    assert set() == named - options


def test_make_targets_exist() -> None:
    """Every make target that a page names is one."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for page in pages for name in MAKE.findall(page)}

    assert {"parity", "test"} <= named
    assert set() == named - targets


def documented(text: str) -> set[str]:
    """Return the names of the package that a page lets Sphinx document."""
    return set(re.findall(r"^\.\. auto\w+:: mha_parity\.(\w+)(?:\(\))?$", text, flags=re.MULTILINE))


def test_the_api_page_has_every_exported_name() -> None:
    """The page on the API documents what `mha_parity.__all__` exports, and no other name of it."""
    page = (ROOT / "parity_tests/docs/reference/api.md").read_text(encoding="utf-8")

    assert set(mha_parity.__all__) - {"__version__"} == documented(page)
    assert {"check"} == documented(".. autofunction:: mha_parity.check\n")


def cells(text: str) -> list[str]:
    """Return the code of a page that Sphinx executes."""
    return re.findall(r"(?ms)^```\{code-cell\} python\n(?::[^\n]*\n)*(.*?)^```$", text)


def test_the_tutorial_ends_with_the_textbooks_plain_attention() -> None:
    """The remedy is the shipped function word for word; the bug before it is in one line alone."""
    page = cells((ROOT / "parity_tests/docs/tutorial.md").read_text(encoding="utf-8"))
    wrong, right = (cell for cell in page if "def attention" in cell)
    shipped = inspect.getsource(plain.attention)

    assert right.startswith(shipped)
    assert len(inspect.getsource(plain).splitlines()) <= 40
    pairs = zip(shipped.splitlines(), wrong[wrong.index("def ") :].splitlines(), strict=True)
    code = [ours for ours, theirs in pairs if ours != theirs and "#" not in ours]
    assert ["    scores = q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5"] == code


@pytest.mark.parametrize(
    "page", ["tutorial.md", "explanation/judging.md", "howto/gradients.md", "howto/any-language.md"]
)
def test_the_code_of_a_page_runs(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every cell runs, in order, with fewer cases than on the site; each page judges red and green.

    A page whose cell raises would fail `make docs`, which these tests do not run.
    """
    path = ROOT / "parity_tests/docs" / page
    monkeypatch.chdir(path.parent)
    monkeypatch.syspath_prepend(path.parent)
    names: dict[str, object] = {}
    for cell in cells(path.read_text(encoding="utf-8")):
        fewer = re.sub(r"cases([= ])\d+", r"cases\g<1>40", cell)
        exec(compile(fewer, page, "exec"), names)  # noqa: S102  (the page's own lines)
    said = capsys.readouterr().out

    assert re.search(r"Parity does not hold: .*attention", said)
    assert re.search(r"Parity holds: .*attention equals torch", said)


def test_the_page_on_replaying_replays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its report names the case that the page then replays, which fails; the edited one holds."""
    path = ROOT / "parity_tests/docs/howto/replay.md"
    monkeypatch.chdir(path.parent)
    monkeypatch.syspath_prepend(path.parent)
    names: dict[str, object] = {}
    said = []
    for cell in cells(path.read_text(encoding="utf-8")):
        exec(compile(cell, "replay.md", "exec"), names)  # noqa: S102  (the page's own lines)
        said.append(capsys.readouterr().out)
    report, failing, holding, compared = said
    assert " calls compared by statelessness\n" in compared

    case = re.search(r"replay +mha-parity replay (\S+) attention\.py:f", report)
    assert case is not None
    assert failing.startswith(f"$ mha-parity replay {case[1]} ")
    assert "attention.py:f fails this case: output" in failing
    assert "fails" not in holding


def terms() -> list[str]:
    """Return the terms of the glossary, in its order."""
    page = (ROOT / "parity_tests/docs/reference/glossary.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(.+)\n: ", page, flags=re.MULTILINE)
    return [term for line in lines for term in line.split(", ")]


@pytest.mark.parametrize(
    "word",
    [
        wording.ALIASES,
        wording.COMMON,
        wording.ABSENT,
        wording.SENSITIVITY,
        *(status.value for status in (Status.NOT_TRIED, Status.DEFAULT_ONLY)),
        *(
            "regime",
            "untested",
            "not offered",
            "not asked",
            "shrunk",
            "inconclusive",
            "less accurate",
        ),
    ],
)
def test_a_word_of_the_report_is_in_the_glossary(word: str) -> None:
    """What a report says at the left of its lines can be looked up by that name."""
    assert word in terms()


# Labels that say what stands beside them, to whoever has never seen a report.
PLAIN_LABELS = {
    "", "and", "checks", "error", "evidence", "fails", "judged", "note", "remedy", "torch's paths",
}  # fmt: skip


def labels() -> set[str]:
    """Return the labels at the left of the report's lines that are written in its module."""
    source = inspect.getsource(terminal)
    following = r"(?:Text|page|wording|diagnosis|\"|not_drawn)"
    return set(re.findall(rf"\(\"((?:[a-z][a-z' ]{{0,20}})?)\", {following}", source))


def test_every_label_of_the_report_is_in_the_glossary() -> None:
    """None is missing but those that need no word."""
    found = labels()

    assert {"look at", "not drawn", "worst error", "shrunk from", "also fails"} <= found
    known = {*terms(), *PLAIN_LABELS, "shrunk from"}
    assert set() == found - known


def test_the_glossary_is_sorted() -> None:
    """Its entries are in alphabetical order."""
    assert terms()
    first = re.findall(
        r"^(.+)\n: ",
        (ROOT / "parity_tests/docs/reference/glossary.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert sorted(first, key=str.lower) == first
