"""A call that is timed, and the mask that all of them are passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.candidate import Answer


@dataclass(frozen=True, eq=False)
class Workload:
    """A call ready to be made, and what turns its result into an answer."""

    call: Callable[[], Any]
    answer: Callable[[Any], Answer]


def causal_mask(length: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return torch's causal mask, True = hidden."""
    return np.triu(np.ones((length, length), dtype=bool), k=1)
