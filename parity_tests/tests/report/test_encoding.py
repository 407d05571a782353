"""Reports in narrow windows of letters: what a terminal cannot write is written otherwise."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from mha_parity.commands import listing
from mha_parity.core.features import AXES
from mha_parity.report import encoding

SIGNS = "✓ ✗ · × −"


@pytest.mark.parametrize(
    ("name", "written"),
    [("ascii", "+ ! | x -"), ("latin-1", "+ ! · × -"), ("utf-8", SIGNS), ("utf-16", SIGNS)],
)
def test_signs_stay_signs(name: str, written: str) -> None:
    """Where an encoding lacks a sign, another stands for it; passed and failed stay distinct."""
    bytes_ = io.BytesIO()
    stream = io.TextIOWrapper(bytes_, encoding=name)
    encoding.replace_unencodable(stream)
    stream.write(SIGNS)
    stream.flush()
    assert written == bytes_.getvalue().decode(name)


def test_other_letters_become_question_marks() -> None:
    """A letter that no sign stands for is a question mark, and nothing is raised."""
    bytes_ = io.BytesIO()
    stream = io.TextIOWrapper(bytes_, encoding="ascii")
    encoding.replace_unencodable(stream)
    stream.write("τό ✓")
    stream.flush()
    assert b"?? +" == bytes_.getvalue()


def test_without_it_a_report_would_be_lost() -> None:
    """The same stream as Python opens it raises an error on the first sign."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    with pytest.raises(UnicodeEncodeError):
        stream.write(SIGNS)


def test_what_is_no_stream_is_left_alone() -> None:
    """Output that is caught in a string takes every letter, and is not touched."""
    stream = io.StringIO()
    encoding.replace_unencodable(stream)
    stream.write(SIGNS)
    assert stream.getvalue() == SIGNS


def test_the_command_runs_in_ascii() -> None:
    """A whole report is printed where only ASCII can be, and holds the verdict."""
    done = subprocess.run(
        [sys.executable, "-m", "mha_parity", "check", "--cases", "4", "--in-process"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "80"},
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 3}
    assert b"torch-module" in done.stdout
    assert b"codec" not in done.stderr
    assert done.stdout.isascii()


@pytest.mark.parametrize("width", [60, 100], ids="width{}".format)
@pytest.mark.parametrize("what", ["conventions", "features", "bugs", "variants"])
def test_lists_fit_the_width(what: str, width: int) -> None:
    """Every list fits its window, names at the left, and nothing ends in blanks."""
    stream = io.StringIO()
    listing.print_listing(
        what, Console(file=stream, width=width, color_system=None, force_terminal=True)
    )
    lines = stream.getvalue().splitlines()
    assert [] == [line for line in lines if len(line) > width or line != line.rstrip()]
    names = [line.split()[0] for line in lines if not line.startswith("  ")]
    assert len(names) == len(set(names))
    if what == "features":
        assert [f"{axis}={value}" for axis, values in AXES.items() for value in values] == names
