"""Documentation of where a causal rule begins for other numbers of keys than of queries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.targets.static.documented_layout import documented_sentences

if TYPE_CHECKING:
    from typing import Any

_CAUSAL = re.compile(
    r"\b(causal|autoregressive|triang\w+|future|behind|attend\w*|sees?)\b", re.IGNORECASE
)
# The keys of query i end at i + S - L.
_LAST = re.compile(
    r"\b(bottom|lower)[- ]right\b"
    r"|(<=?|≤)\s*i\s*\+\s*\(?\s*(?P<keys>S|T_?k|L_?k|N_?k|Sk|(kv|k|key|source|src)_?(seq_?)?len\w*"
    r"|seq_?len_?k|num_keys|n_keys)\s*-\s*\w+"
    r"|\bquer(y|ies) (are|is) (at )?the (last|end)\b"
    r"|\b(position|index|row|token) \(?(S|n_keys|num_keys|\w*len_?k)\s*-\s*\w+\)?\s*\+\s*\w+",
    re.IGNORECASE,
)
_FIRST = re.compile(r"\b(top|upper)[- ]left\b", re.IGNORECASE)
_NOT = re.compile(
    r"\b(not|no|never|unlike|instead|rather|other than|differs?)\b|n['\u2019]t\b", re.IGNORECASE
)


def documents_last_keys(subject: Any) -> bool | None:
    """Return whether a causal rule is documented to count from the last query and key.

    False: from the first of both; None where nothing is said, or both, or something is denied.
    """
    said = {
        aligned
        for each in documented_sentences(subject)
        for pattern, aligned in ((_LAST, True), (_FIRST, False))
        if pattern.search(each) and _CAUSAL.search(each) and not _NOT.search(each)
    }
    return said.pop() if len(said) == 1 else None
