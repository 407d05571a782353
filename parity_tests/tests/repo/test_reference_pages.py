"""The reference pages that are written from the code, and what keeps a table from being text."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mha_parity.__main__ import main
from mha_parity.catalogue import catalogue
from mha_parity.checks.call_effects import CHECKS
from mha_parity.checks.metamorphic import RELATIONS

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
    """Return every generated page by its name."""
    generate.write_reference(tmp_path)
    return {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.md")}


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
    """Wrong ones and right variants apart, with the number that names no thread."""
    assert main(["list"]) == 0
    listed = dict(re.findall(r"list (\w+) +(\d+)", capsys.readouterr().out))
    shown = re.search(r"(\d+) wrong attentions and (\d+) unusual right", pages["bugs"])

    assert shown is not None
    assert (listed["bugs"], listed["variants"]) == shown.groups()
    assert len(catalogue()) == sum(int(count) for count in shown.groups())


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
