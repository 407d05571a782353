"""A library that is not installed, and whose names a star imports, is named as the reason."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS

FILE = SUBJECTS / "star_imports.py"


@pytest.mark.parametrize("name", ["Attention", "attention"])
def test_the_library_is_named(name: str) -> None:
    """The sentence had the name that was not defined, which the library would have given."""
    with pytest.raises(TargetError, match=r"absentkeras,? .*is not installed"):
        bind(load.load(f"{FILE}:{name}"))


def test_what_needs_nothing_of_it_is_judged() -> None:
    """A function of NumPy next to it is called."""
    assert "many" in bind(load.load(f"{FILE}:of_numpy")).offer["heads"]
