"""Documentation of a window by its target: the first key that a row sees."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.targets.static.documented_layout import documentation

if TYPE_CHECKING:
    from typing import Any

    from mha_parity.targets.static.window_arguments import WindowUse

_INCLUDED = (
    r"(itself|the (current|own|query'?s?( own)?)( one| key| token| position| row)?) "
    r"(is |being )?(included|inclusive)"
    r"|(including|inclusive of|counting) (itself|the current|its own)"
)
_LAST = r"(most )?(last|latest|recent|preceding|previous)"
_KEYS = r"(keys?|tokens?|positions?|rows?|steps?|entries)"
_ALONE = r"\b((only|just)\b[^.;]{0,20}\b(itself|its own)\b|(itself|its own \w+) (only|alone)\b)"
# What is said of the keys before a row's own, by how many there are; `W` stands for the window.
_SAID = {
    "w - 1": (
        r"\b(\w+) ?- ?W ?< ?\w+",
        r"\b\w+ ?- ?W ?\+ ?1\b",
        r"\b\w+ ?- ?\w+ ?\|?\)? ?< ?W\b",
        rf"\bW {_LAST} {_KEYS}\b[^.;]{{0,20}}\b({_INCLUDED})",
        rf"\b{_LAST} W {_KEYS}\b[^.;]{{0,20}}\b({_INCLUDED})",
        rf"\bW ?: [^.;]{{0,20}}\b(number of|how many) {_KEYS} [^.;]{{0,40}}\b({_INCLUDED})",
        rf"\bW ?==? ?1\b[^.;]{{0,40}}{_ALONE}",
    ),
    "w": (
        r"\b(\w+) ?- ?W ?(<=|≤) ?\w+",
        r"\b\w+ ?- ?\w+ ?\|?\)? ?(<=|≤) ?W\b(?! ?- ?1)",
        rf"\b(itself|its own {_KEYS}) and (the )?(W {_LAST}|{_LAST} W) {_KEYS}\b",
        rf"\bitself and (to )?(the )?W {_KEYS} before\b",
        r"\b\w+ ?- ?W ?(\.{2,3}|…|to|through) ?\w+\b",
        rf"\bW ?==? ?0\b[^.;]{{0,40}}{_ALONE}",
    ),
}  # fmt: skip


def documented_extent(subject: Any, name: str) -> str:
    """Return how many keys before its own a row sees by the documentation; "" where it is unsaid.

    "w" or "w - 1", as rules of a window are written. What says both says nothing.
    """
    text = re.sub(r"[`*]", "", " ".join(documentation(subject).split()))
    words = re.sub(rf"\b({re.escape(name)}|window(_size)?|w)\b", "W", text)
    found = [
        extent
        for extent, patterns in _SAID.items()
        if any(re.search(each, words, re.IGNORECASE) for each in patterns)
    ]
    return found[0] if len(found) == 1 else ""


def contradicted(use: WindowUse, subject: Any) -> str:
    """Return which keys a row sees by the documentation, "" where what was found agrees with it."""
    if use.pair or use.rule[0] not in _SAID:
        return ""
    said = documented_extent(subject, use.name)
    return use.of_extent(said).meaning if said not in {"", use.rule[0]} else ""
