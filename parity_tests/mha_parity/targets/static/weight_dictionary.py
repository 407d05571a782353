"""A dictionary of weights for a constructor, which makes each array when it is asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.static.projection_names import bias_parts, is_weight, parts

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

# A constructor's parameter for all weights by name.
OF_WEIGHTS = re.compile(r"^((model|layer)_?)?(weights?|params?|parameters|state(_?dict)?)(_dict)?$")
MEANING = "weights"  # what such a parameter may mean


class WeightsByName(dict[str, Any]):
    """Weights (E, E) and biases (E,) of zeros, by whatever names the target reads them.

    Of several projections in one array, (E, p E) and (p E,). A name of none raises ``KeyError``.
    """

    def __init__(self, width: int) -> None:
        """Begin without any array."""
        super().__init__()
        self._width = width

    def __missing__(self, name: str) -> Array:
        """Make the array that a name means."""
        shape = self._shape(name)
        if shape is None:
            raise KeyError(name)
        self[name] = array = np.zeros(shape)
        return array

    def __contains__(self, name: object) -> bool:
        """Return whether a name means a weight or a bias."""
        return super().__contains__(name) or self._shape(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the array that a name means, else the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def _shape(self, name: object) -> tuple[int, ...] | None:
        if not isinstance(name, str) or "." in name:  # a dot divides the path to an array
            return None
        of_bias = () if is_weight(name) else bias_parts(name)
        of_weight = () if of_bias else parts(name)
        if not of_bias and not of_weight:
            return None
        across = self._width * len(of_bias or of_weight)
        return (across,) if of_bias else (self._width, across)


def of_instance(layer: Any) -> dict[str, WeightsByName]:
    """Return the dictionaries of this kind that a layer keeps, by attribute."""
    held = getattr(layer, "__dict__", {})
    return {name: each for name, each in held.items() if isinstance(each, WeightsByName)}
