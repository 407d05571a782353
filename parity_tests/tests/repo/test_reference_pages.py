"""The reference pages that are written from the code, and what keeps a table from being text."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mha_parity.__main__ import main
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.checks.call_effects import CHECKS
from mha_parity.checks.metamorphic import RELATIONS
from mha_parity.commands.bug_example import pictured
from mha_parity.core.case import parse

DRAWN = ("scale-dmodel", "causal-strict", "merge-no-transpose", "s0-undefined")
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that writes the pages, which stands beside them."""
    monkeypatch.syspath_prepend(DOCS)
    monkeypatch.delitem(sys.modules, "generate", raising=False)
    import generate

    return generate


@pytest.fixture
def pages(generate: ModuleType, tmp_path: Path) -> dict[str, str]:
    """Return every generated page by its name; of a few bugs with pictures."""
    generate.write_reference(tmp_path, lambda bug: pictured(bug) if bug.id in DRAWN else None)
    found = tmp_path.rglob("*.md")
    return {
        path.relative_to(tmp_path).as_posix()[:-3]: path.read_text(encoding="utf-8")
        for path in found
    }


def test_every_check_has_a_row(pages: dict[str, str]) -> None:
    """The page has each relation and each check around a call, in tables of two columns."""
    rows = dict(re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|$", pages["checks"]))

    assert {*RELATIONS, *CHECKS, "output", "systematic error"} <= set(rows)
    assert rows["forbidden modules"].endswith("that `--forbid` names")


def test_an_option_in_a_table_is_code(pages: dict[str, str]) -> None:
    """Typography would make a dash of its two hyphens: `–forbid`."""
    rows = [row for text in pages.values() for row in re.findall(r"(?m)^\|.*\|$", text)]

    assert rows
    assert [] == [row for row in rows if re.search(r"(?<![\w`-])--[a-z]", row)]


def test_the_page_of_bugs_counts_them_as_the_list_does(
    pages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong ones and right variants are counted, with the number that names no thread."""
    assert 0 == main(["list"])
    listed = dict(re.findall(r"list (\w+) +(\d+)", capsys.readouterr().out))
    shown = re.search(r"(\d+) wrong attentions and (\d+) unusual right", pages["bugs"])

    assert shown is not None
    assert (listed["bugs"], listed["variants"]) == shown.groups()
    assert len(catalogue()) == sum(int(count) for count in shown.groups())


def test_the_index_leads_to_every_bug(pages: dict[str, str]) -> None:
    """Each link of the index names a page, and a section of it; the families are listed."""
    links = re.findall(r"\| \[([^\]]+)\]\(([^)#]+)\.md#([^)]+)\) \|", pages["bugs"])

    assert sorted(catalogue()) == sorted(name for name, _, _ in links)
    for name, page, section in links:
        assert name == section
        assert f"\n## {section}\n" in pages[page]
    assert {page for _, page, _ in links} == {name for name in pages if name.startswith("bugs/")}
    assert set(re.findall(r"(?m)^bugs/\S+$", pages["bugs"])) == {page for _, page, _ in links}


def test_a_bug_is_drawn_right_wrong_and_in_its_difference(pages: dict[str, str]) -> None:
    """The maps have the numbers of the case that the page names."""
    section = pages["bugs/scale"].split("\n## scale-dmodel\n")[1].split("\n## ")[0]
    titles = re.findall(r"<caption>([^<]+)</caption>", section)
    maps = [re.findall(r"<td[^>]*>([^<]+)</td>", each) for each in section.split("<table")[1:]]
    case = re.search(r"Attention weights, head (\d), of `([^`]+)`", section)

    assert case is not None
    problem = make_problem(parse(case[2]))
    right, wrong = (
        answer.weights[0, int(case[1])]
        for answer in (
            answer_of(Attention, problem),
            catalogue()["scale-dmodel"].attend(problem),
        )
        if answer.weights is not None
    )
    assert ["right", "wrong", "wrong − right"] == titles
    for shown, matrix in zip(maps, (right, wrong, wrong - right), strict=True):
        for text, value in zip(shown, matrix.ravel(), strict=True):
            assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.0051)


def test_what_raises_an_error_has_no_map(pages: dict[str, str]) -> None:
    """A bug without an answer says so beside the right one; bugs of several calls have none."""
    text = "".join(text for name, text in pages.items() if name.startswith("bugs/"))

    assert "wrong: none, it raises an error" in text
    assert "No picture: it takes more than one call" in text


@pytest.mark.parametrize(
    ("text", "is_raw"),
    [
        ("| check | holds where |\n|--|--|\n| output | it is right |", True),
        ("| check | holds where |\n|—|—|\n| output | it is right |", True),
        ("| check | cases |\n| :--- | ---: |", True),
        ("the sum |a| - |b| of two lengths", False),
        ("one - or two | three", False),
    ],
)
def test_a_raw_table_is_found(text: str, monkeypatch: pytest.MonkeyPatch, *, is_raw: bool) -> None:
    """What a page shows of a table that is not rendered as one, and sentences near it."""
    monkeypatch.syspath_prepend(DOCS)
    from raw_tables import is_raw_table

    assert is_raw == is_raw_table(text)


def test_the_build_fails_on_a_raw_table(tmp_path: Path) -> None:
    """Sphinx warns of a page with a table as text, and of none that is rendered; needs Sphinx."""
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    import subprocess

    conf = (
        f"import sys\nsys.path.insert(0, {str(DOCS)!r})\n"
        "from raw_tables import warn_of_raw_tables\nextensions = ['myst_parser']\n"
        "def setup(app):\n    app.connect('doctree-resolved', warn_of_raw_tables)\n"
    )
    (tmp_path / "conf.py").write_text(conf, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(tmp_path), str(tmp_path / "built")]
    status = {}
    for name, text in {
        "table": "| a | b |\n|---|---|\n",
        "text": "\\| a | b |\n\\|---|---|\n",
    }.items():
        (tmp_path / "index.md").write_text(f"# Page\n\n{text}", encoding="utf-8")
        status[name] = subprocess.run(command, capture_output=True, check=False).returncode
    assert {"table": 0, "text": 1} == status
