"""Whether a target documents that its scores are not scaled, as layers of T5 do.

torch's layer always scales. Such a layer is equal to it where the weights of its queries are
multiplied by 1 / sqrt(D), as their initial values are in its paper: it is given those.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from mha_parity.targets.fit.documented_layout import documented_sentences

UNSCALED = (
    "its documentation says that scores are not scaled: the weights and the bias of its queries "
    "are multiplied by 1 / sqrt(D)."
)
UNSCALED_GRADIENTS = (
    "the weights of its queries have gradients of their own, as its scores are not scaled"
)
# The scale itself has to be named: "unscaled" may be of anything.
_ROOT = r"(1 ?/ ?)?(sqrt|√)|(d|d_k|head_dim)( ?\*\* ?|\^)\(?-?(0?\.5|1 ?/ ?2)"
_SAYS = re.compile(
    rf"\b(no|without)\W+(the |a |any |scaling by |scale of |division by )?({_ROOT})"
    rf"|\b(not|never)\W+(scaled|divided|multiplied) by (the )?({_ROOT})",
    re.IGNORECASE,
)
_UNSURE = re.compile(r"\b(if|when|unless|optional\w*|option|whether|masks?)\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def documents_unscaled(subject: Any) -> bool:
    """Return whether a class says without conditions that its scores are not scaled."""
    return isinstance(subject, type) and any(map(_says, documented_sentences(subject)))


def _says(sentence: str) -> bool:
    found = _SAYS.search(sentence)
    return found is not None and _UNSURE.search(sentence[: found.end() + 20]) is None
