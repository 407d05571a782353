"""The source of a target is read once, and what has none is no error."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

from mha_parity.targets.static.source import comments_in, source_text, syntax_of


def attention(q: float, k: float) -> float:
    """Return a product."""
    return q * k


class Holder:
    """A class with a method, whose source is indented."""

    def method(self, q: object) -> object:
        """Return what it gets."""
        return q


@dataclass(eq=True)
class Callable:
    """A callable object that has no hash."""

    scale: float

    def __call__(self, q: float) -> float:
        """Return a product."""
        return q * self.scale


def test_a_source_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second question of a function reads no file. Kills a reader that keeps nothing."""
    first = syntax_of(attention)
    monkeypatch.setattr(inspect, "getsource", pytest.fail)
    assert first is syntax_of(attention)
    assert ["attention"] == [getattr(each, "name", "") for each in first.body]


def test_a_method_is_read_without_its_indent() -> None:
    """The source of a method parses, as that of what wraps a function does."""
    assert source_text(Holder.method).startswith("def method")
    assert ["method"] == [getattr(each, "name", "") for each in syntax_of(Holder.method).body]
    assert source_text(attention) == source_text(lru_cache(attention))


def test_comments_are_read_by_paragraphs() -> None:
    """Lines that follow one another are one comment; one behind code stands alone."""

    def commented(q: float) -> float:
        # Rows of the first
        # paragraph.
        doubled = 2 * q  # behind code
        # the next one
        return doubled + 1

    expected = ("Rows of the first paragraph.", "behind code", "the next one")
    assert expected == comments_in(commented)
    assert () == comments_in(np.dot)


@pytest.mark.parametrize(
    "subject", [Callable(2.0), np.dot, 3, None], ids=lambda each: type(each).__name__
)
def test_no_source_is_an_empty_one(subject: object) -> None:
    """Objects without a hash, functions in C and numbers have no source, and raise nothing."""
    assert "" == source_text(subject)
    assert [] == syntax_of(subject).body
