"""Each page of results says by which command it was made, and from now on when and where."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from mha_parity.core.environment import cpu
from mha_parity.selftest import provenance

DATA = Path(provenance.__file__).parent / "data"


def test_a_page_says_where_it_was_made() -> None:
    """Command, date, processor and versions, once, behind an empty line; it can be taken away."""
    page = provenance.with_origin("| a |\n|---|\n| 1 |", "make it")
    again = provenance.with_origin(page, "make it again")
    last = again.rstrip("\n").splitlines()[-1]

    assert re.fullmatch(r"Made by `make it again` on \d{4}-\d\d-\d\d; .*numpy \d.*\.", last)
    assert cpu() in last
    assert platform.python_version() in last
    assert "make it`" not in again
    assert "" == again.splitlines()[-2]
    assert "| a |\n|---|\n| 1 |" == provenance.without_origin(again)


@pytest.mark.parametrize("name", ["calibration", "accuracy", "mutants", "corpus", "diagnosis"])
def test_the_published_pages_have_their_command(name: str) -> None:
    """Each ends with the command that writes it and a date."""
    last = (DATA / f"{name}.md").read_text(encoding="utf-8").splitlines()[-1]
    assert re.match(r"Made by `[^`]+`.* on \d{4}-\d\d-\d\d[;,]", last)
