"""A variable that wraps an array stays one when its array is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_parity.targets.layers.layer_arrays import set_array


class Variable:
    """An array with a value, as those of flax.nnx are."""

    def __init__(self, value: Any) -> None:
        self.value = value

    value: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.value.dtype

    def replace(self, value: Any) -> Variable:
        """Return another variable of a value."""
        return Variable(value)


@dataclass
class Layer:
    """A layer whose code reads `w.value`."""

    w: Variable


def test_a_layer_may_read_the_value_of_a_variable() -> None:
    """Another variable of the new array stands in its place. Kills the bare array there."""
    first = Variable(np.zeros((2, 3)))
    layer = Layer(first)
    set_array(layer, "w", np.ones((2, 3)))
    assert type(layer.w) is Variable
    assert (layer.w.value == 1).all()
    assert (first.value == 0).all()  # a copy of the layer may hold it
