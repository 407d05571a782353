"""The global state of NumPy, torch and Python: a call may read it, and leaves it unchanged."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class GlobalState:
    """NumPy's error state and print options, torch's autograd mode and default dtype.

    ``torch`` is None where torch is not loaded.
    """

    errors: dict[str, Any]
    printing: dict[str, Any]
    torch: tuple[bool, Any] | None

    @classmethod
    def now(cls) -> GlobalState:
        """Return the state as it is."""
        return cls(np.geterr(), np.get_printoptions(), _of_torch())  # type: ignore[arg-type]  # typed dicts are dicts

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
        if self.torch is not None and _of_torch() != self.torch:
            yield (
                "global state unchanged: the call left torch's autograd mode or default dtype "
                "changed; use `with torch.no_grad()`, and name dtypes."
            )

    def restore(self) -> None:
        """Put the state back, so that one call cannot hide in the next."""
        np.seterr(**self.errors)
        if np.get_printoptions() != self.printing:
            np.set_printoptions(**self.printing)
        if self.torch is not None and _of_torch() != self.torch:
            torch: Any = sys.modules["torch"]
            torch.set_grad_enabled(self.torch[0])
            torch.set_default_dtype(self.torch[1])


def _of_torch() -> tuple[bool, Any] | None:
    torch: Any = sys.modules.get("torch")
    return None if torch is None else (torch.is_grad_enabled(), torch.get_default_dtype())


class GlobalGenerator(NamedTuple):
    """A global generator; ``key`` makes its state comparable."""

    seed: Callable[[int], object]
    state: Callable[[], Any]
    set_state: Callable[[Any], object]
    key: Callable[[Any], object]


def _generators() -> dict[str, GlobalGenerator]:
    """Return the global generators, by their owner."""
    legacy: Any = np.random
    found = {
        "NumPy's": GlobalGenerator(
            legacy.seed, legacy.get_state, legacy.set_state, lambda s: (s[1].tobytes(), s[2])
        ),
        "Python's": GlobalGenerator(random.seed, random.getstate, random.setstate, lambda s: s),
    }
    if "torch" in sys.modules:
        own: Any = sys.modules["torch"].default_generator
        found["torch's"] = GlobalGenerator(
            own.manual_seed, own.get_state, own.set_state, lambda s: s.numpy().tobytes()
        )
    return found


@contextmanager
def seeded_generators(seed: int) -> Iterator[dict[str, GlobalGenerator]]:
    """Seed the global generators, and leave them as they were found."""
    generators = _generators()
    found = {owner: each.state() for owner, each in generators.items()}
    try:
        for each in generators.values():
            each.seed(seed)
        yield generators
    finally:
        for owner, each in generators.items():
            each.set_state(found[owner])
