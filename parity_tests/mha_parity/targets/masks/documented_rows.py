"""Documentation of what rows come to that see no key."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

from mha_parity.targets.conventions.signatures import forward

if TYPE_CHECKING:
    from typing import Any

_NO_KEY = re.compile(
    r"\b(fully|all|entirely|completely)[- ](masked|hidden|blocked)\b"
    r"|\b(no|without an?y?|zero) ((visible|allowed|valid|unmasked|kept|attendable|real) )?keys?\b"
    r"|\bno true\b|\bsees? (no keys?|nothing)\b|\bnothing (is|are) (visible|allowed|left)\b"
    r"|\b(every|all|whole) (of (its|the) )?(keys?|context|row)( is| are)? "
    r"(hidden|masked|blocked|padding|padded|excluded)\b",
    re.IGNORECASE,
)
_ZERO = re.compile(r"\b(zeros?|zeroed|0(\.0)?)\b", re.IGNORECASE)
_OTHERWISE = re.compile(
    r"\b(not?|never|nan|uniform|mean|undefined|instead|unless|except|gradients?|weights?)\b"
    r"|\w+n['\u2019]t\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.;])\s+|\n\s*\n|\n\s*[-*]\s")


def documents_zero_rows(subject: Any) -> bool:
    """Return whether a class or function promises an output of 0 in rows that see no key.

    A sentence that says both says so, unless it denies something, or speaks of other arrays.
    """
    documented = [subject]
    if isinstance(subject, type):
        documented += [getattr(subject, "__init__", None), forward(subject)]
    text = "\n\n".join(inspect.getdoc(each) or "" for each in documented)
    sentences = (" ".join(each.split()) for each in _SENTENCE.split(text))
    return any(map(_promises_zero, sentences))


def _promises_zero(sentence: str) -> bool:
    """Return whether a sentence promises 0 where there is no key, and nothing else besides."""
    said = _NO_KEY.search(sentence)
    if said is None:
        return False
    rest = sentence[: said.start()] + sentence[said.end() :]
    return bool(_ZERO.search(rest)) and not _OTHERWISE.search(rest)
