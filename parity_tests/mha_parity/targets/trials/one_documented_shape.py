"""Targets that document one shape for queries and keys, and answer to others as if they had it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mha_parity.targets.interpretations.try_interpretations import SMALL, Search
from mha_parity.targets.static.documented_layout import documentation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.try_interpretations import Ask

OF_ONE_SHAPE = "its documentation gives queries and keys one shape, and others are answered wrong"
_SHAPE = r"[(\[][^()\[\]]*[)\]]"


def is_of_one_shape(subject: Any, how: Interpretation, ask: Ask, dtype: str) -> bool:
    """Return whether one shape is documented, and right answers are given to that alone.

    A wrong answer to equal lengths is no limit of the target, and a right one to others is none.
    """
    if not documents_one_shape(subject, [name for name, _ in how.roles.inputs]):
        return False
    alike, unlike = (
        Search(ask, dtype, SMALL.replace(keys=keys)).tried_with(how, "cross").exact
        for keys in (SMALL.queries, SMALL.keys)
    )
    return alike and not unlike


def documents_one_shape(subject: Any, inputs: Sequence[str]) -> bool:
    """Return whether a class or function documents one shape for these inputs: `q, k, v: (…)`.

    "q, k, v: (N, H, L, D), (N, H, S, D)" says otherwise.
    """
    named = r"[\s,`/*]*(?:and\b)?[\s`*]*".join(map(re.escape, inputs))
    said = rf"(?<!\w){named}[`*]*\s*(?::|of\b|are\b|have\b)[^()\[\]]{{0,40}}{_SHAPE}"
    found = re.search(rf"{said}(?!\s*(?:,|and|/)\s*[(\[])", documentation(subject))
    return len(inputs) > 1 and found is not None
