"""NumPy's global state: what a call may read and should not leave changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem


@dataclass(frozen=True, slots=True)
class GlobalState:
    """Error state and print options at one moment."""

    errors: dict[str, Any]
    printing: dict[str, Any]

    @classmethod
    def now(cls) -> GlobalState:
        """Return the state as it is."""
        return cls(np.geterr(), np.get_printoptions())  # type: ignore[arg-type]  # typed dicts are dicts

    def changed(self) -> Iterator[str]:
        """Yield what is no longer as it was."""
        if np.geterr() != self.errors:
            yield (
                "global state unchanged: the call left np.seterr changed; use `with np.errstate`."
            )
        if np.get_printoptions() != self.printing:
            yield (
                "global state unchanged: the call left np.set_printoptions changed; use "
                "`with np.printoptions`."
            )

    def restore(self) -> None:
        """Put the state back, so that one call cannot hide in the next."""
        np.seterr(**self.errors)
        if np.get_printoptions() != self.printing:
            np.set_printoptions(**self.printing)


def seeded(
    seed: int, candidate: Callable[[Problem], Answer], problem: Problem
) -> tuple[Array, bytes]:
    """Return the output with NumPy's global generator seeded, and the generator's state afterwards.

    Draws advance the generator from its seed: two seeds, two states. A call after which the states
    are equal has seeded the generator itself. The generator is left as it was found.
    """
    legacy: Any = np.random
    found = legacy.get_state()
    try:
        legacy.seed(seed)
        result = candidate(problem).output.copy()
        after = legacy.get_state()
        return result, after[1].tobytes() + bytes(str(after[2]), "ascii")
    finally:
        legacy.set_state(found)
