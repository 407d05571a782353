"""From the text of an option to its value; what is wrong with it is one sentence."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING

from mha_parity.core.features import AXES
from mha_parity.core.options import MEANINGS, POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_DIGITS = 18  # of a number that 64 bits hold


def positive_integer(text: str) -> int:
    """Return a whole number above 0."""
    if not _is_count(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a whole number from 1 up")
    return int(text)


def nonnegative_integer(text: str) -> int:
    """Return a whole number, 0 included."""
    if not _is_count(text):
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a whole number from 0 up")
    return int(text)


def shard(text: str) -> tuple[int, int]:
    """Return the number of a shard, from 1, and how many there are, of a text such as ``3/8``."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be K/N with K from 1 to N")
    return int(number), int(of)


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_DIGITS


def positive_number(text: str) -> float:
    """Return a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a number above 0")
    return number


def dtypes(text: str) -> tuple[str, ...]:
    """Return the dtypes named in a comma-separated list."""
    return tuple(one_of(word, tuple(AXES["dtype"]), "dtype") for word in text.split(","))


def policy(text: str) -> str:
    """Return a policy on fully masked rows."""
    return one_of(text, POLICIES, "policy on fully masked rows")


def comma_list(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def module_names(text: str) -> tuple[str, ...]:
    """Return the names of modules in a comma-separated list, which has one."""
    names = comma_list(text)
    if not names:
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be names of modules: A,B")
    return names


def mask_meanings(text: str) -> tuple[tuple[str, str], ...]:
    """Return the (parameter, meaning) pairs of a list such as ``mask=keeps:(N,1,L,S)``."""
    pairs = []
    for word in re.split(r",(?![^(]*\))", text):
        name, equals, meaning = (part.strip() for part in word.partition("="))
        if not equals:
            raise argparse.ArgumentTypeError(f"got {word!r}, but should be NAME=keeps, say")
        one_of(meaning.partition(":")[0], MEANINGS, "meaning of a mask")
        pairs.append((name, meaning))
    return tuple(pairs)


def feature_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Return the (axis, value) pairs of a list such as ``attn=causal,bias=yes``."""
    pairs = []
    for word in text.split(","):
        axis, equals, value = word.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"got {word!r}, but should be AXIS=VALUE, as bias=yes")
        axis = one_of(axis.strip(), tuple(AXES), "feature axis")
        pairs.append((axis, one_of(value.strip(), tuple(AXES[axis]), f"value of {axis}")))
    return tuple(pairs)


def one_of(word: str, known: tuple[str, ...], what: str) -> str:
    """Return a word that is known; of any other, raise what it was meant for and the nearest."""
    if word in known:
        return word
    hint = hint_of(word, known, f"known are {', '.join(known)}", write=repr)
    raise argparse.ArgumentTypeError(f"got {word!r}, but no such {what}; {hint}")


def hint_of(
    word: str,
    known: Iterable[str],
    otherwise: str = "",
    most: int = 1,
    write: Callable[[str], str] = str,
) -> str:
    """Return the question whether the nearest known words are meant; ``otherwise`` if none is near.

    ``write`` gives a word as it stands in the question.
    """
    close = difflib.get_close_matches(word, list(known), n=most)
    return f"did you mean {' or '.join(map(write, close))}?" if close else otherwise
