"""Documentation of how one matrix of q, k and v holds them: all of q, then all of k, all of v."""

from __future__ import annotations

import re
from typing import Any

from mha_parity.targets.static.documented_layout import documentation

_GAP = r"(?:[^.;]|\.(?=\w)){0,30}?"  # within a sentence; names have points
_AS_TORCHS = re.compile(
    rf"\b(laid out|layout|packed|stacked|ordered|order)\b{_GAP}\b(as|like|that|order|layout)\b"
    rf"{_GAP}\bMultiheadAttention\b",
    re.IGNORECASE,
)
_ONE_AFTER_ANOTHER = re.compile(
    rf"\b(first|all)\b{_GAP}\bq(uer(y|ies)|s)?\b{_GAP}\b(next|then|second|all|followed by)\b"
    rf"{_GAP}\bk(eys?|s)?\b{_GAP}\b(last|then|next|third|all|and)\b{_GAP}\bv(alues?|s)?\b",
    re.IGNORECASE,
)
_OF_HEADS = re.compile(
    r"\b(each|every|per|of a|for a|one) head\b(?! (dim|width|size))|\bhead by head\b|\binterleav",
    re.IGNORECASE,
)


def documents_parts_first(subject: Any) -> bool:
    """Return whether a class documents that a packed projection holds all of q before k and v.

    A sentence that says so of each head says another thing.
    """
    text = " ".join(documentation(subject).split())
    if _AS_TORCHS.search(text):
        return True
    found = _ONE_AFTER_ANOTHER.search(text)
    return found is not None and not _OF_HEADS.search(text)
