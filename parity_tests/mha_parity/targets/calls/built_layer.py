"""Copies of a layer that is built already: of its class no other object is made.

Scale, buffers, switches and hooks of the layer are those of its copies. What differs is said by
whoever asks for one: other weights, or another probability of dropout.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import NOT_ASKED, CandidateError
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.target_call import target_errors
from mha_parity.targets.loading.callables import layer_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.problem import Problem

DROP = "drop"  # is in the names of classes and attributes of dropout


@dataclass(eq=False)
class BuiltLayer:
    """A layer, its weights, and how these are read out of a state.

    ``called`` is what is called: the layer itself, or what ``torch.compile`` made of it.
    ``inert`` says why no copy can be given other weights; "" where copies take them.
    """

    called: Any
    own: OwnWeights
    read: Callable[[Mapping[str, Array]], dict[str, Array]]
    inert: str = ""

    def require_holdable(self, problem: Problem) -> None:
        """Refuse a problem whose sizes or weights no copy of the layer can have.

        Raises
        ------
        CandidateError
            They are said, as what is not asked.

        """
        if reason := self.inert or self.own.unlike(problem):
            raise CandidateError("inconclusive", f"{NOT_ASKED}: {reason}")

    def copied(self) -> Any:
        """Return a copy of the layer.

        Raises
        ------
        CandidateError
            Copying it raised: nothing else is asked in its place.

        """
        try:
            with target_errors():
                return deepcopy(self.called)
        except CandidateError as error:
            reason = str(error).rstrip(".")
            raise CandidateError(
                "inconclusive", f"{NOT_ASKED}: copying the layer {reason}"
            ) from None

    def require_loaded(self, copy: Any, problem: Problem) -> None:
        """Refuse a copy whose state has other weights than the problem, of shared tensors say.

        Raises
        ------
        CandidateError
            It names the first of these weights.

        """
        for name, held in self.read(state_of(copy)).items():
            given = getattr(problem, name)
            neutral = np.eye(*held.shape) if held.ndim == 2 else np.zeros(held.shape)
            if not np.array_equal(held, neutral if given is None else given):
                raise CandidateError(
                    "inconclusive", f"{NOT_ASKED}: a copy of the layer keeps another {name}"
                )

    def dropping(self, p: float) -> Any | None:
        """Return a copy in which every dropout above 0 is ``p``; None where there is none."""
        if not any(True for _ in dropouts(self.called)):
            return None
        copy = self.copied()
        for module, name in list(dropouts(copy)):
            with target_errors():
                setattr(module, name, p)
        return copy


def state_of(layer: Any) -> dict[str, Array]:
    """Return the state of a layer as NumPy's arrays."""
    with target_errors():
        state = layer_inside(layer).state_dict()
    return {name: to_numpy(array, f"`{name}`") for name, array in state.items()}


def dropouts(layer: Any) -> Iterator[tuple[Any, str]]:
    """Yield the modules of a layer, itself included, with an attribute that is a dropout above 0.

    A module whose class is called after dropout keeps it as ``p``, as torch's do.
    """
    layer = layer_inside(layer)
    modules = getattr(layer, "modules", None)
    for module in list(modules()) if callable(modules) else [layer]:
        of_dropout = DROP in type(module).__name__.lower()
        for name, value in list(getattr(module, "__dict__", {}).items()):
            named = DROP in name.lower() or (of_dropout and name == "p")
            if named and isinstance(value, float) and 0 < value <= 1:
                yield module, name
