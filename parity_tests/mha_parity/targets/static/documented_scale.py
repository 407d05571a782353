"""Whether a target documents that its scores are not scaled, as layers of T5 do.

torch's layer always scales. Such a layer is equal to it where the weights of its queries are
multiplied by 1 / sqrt(D), as their initial values are in its paper: it is given those.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from mha_parity.targets.static.documented_layout import documented_sentences

UNSCALED = (
    "its documentation says that scores are not scaled: the weights and the bias of its queries "
    "are multiplied by 1 / sqrt(D)."
)
UNSCALED_GRADIENTS = (
    "the weights of its queries have gradients of their own, as its scores are not scaled"
)
# The scale itself has to be named, by the width of a head: "unscaled" may be of anything, and what
# is not divided by sqrt(d_model) is divided by another root.
_WIDTH = r"(d|d_?(k|kv|h|head|q|qk)|head_?(dim|size|width)|dim_?head)"
_ROOT = rf"(1 ?/ ?)?((sqrt|√) ?\(? ?{_WIDTH}\b|{_WIDTH} ?(\*\*|\^) ?\(?-?(0?\.5|1 ?/ ?2))"
_SAYS = re.compile(
    rf"\b(no|without)\W+(the |a |any |scaling by |scale of |division by )?{_ROOT}"
    rf"|\b(not|never)\W+(scaled|divided|multiplied) by (the )?{_ROOT}",
    re.IGNORECASE,
)
# What is scaled by something else all the same.
_SCALED = re.compile(r"(?<!not )(?<!never )\b(scaled|divided|multiplied) by\b", re.IGNORECASE)
_UNSURE = re.compile(r"\b(if|when|unless|optional\w*|option|whether|masks?)\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def documents_unscaled(subject: Any) -> bool:
    """Return whether a class says without conditions that its scores are not scaled."""
    return isinstance(subject, type) and any(map(_says, documented_sentences(subject)))


def _says(sentence: str) -> bool:
    found = _SAYS.search(sentence)
    if found is None or _SCALED.search(sentence):
        return False
    return _UNSURE.search(sentence[: found.end() + 20]) is None
