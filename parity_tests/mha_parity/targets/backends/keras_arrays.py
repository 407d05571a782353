"""Keras 3's tensors, of whatever backend it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


class KerasArrays:
    """Keras on JAX has float64 only where JAX has; on torch and NumPy it always has."""

    name = "keras"
    memory = ("c",)

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.backend: str = keras.backend.backend()
        self.dtypes: tuple[str, ...] = ("float64", "float32")
        if keras.backend.backend() == "jax":
            from mha_parity.targets.backends.jax_arrays import JaxArrays

            own = JaxArrays(device).dtypes
            self.dtypes = tuple(dtype for dtype in self.dtypes if dtype in own)

    def from_numpy(self, array: Array) -> Any:
        """Return a tensor of the backend."""
        # Without its dtype named, the NumPy backend rounds float64 to float32.
        return keras.ops.convert_to_tensor(array, dtype=array.dtype.name)

    def to_numpy(self, value: Any) -> Array:
        """Return the numbers of a tensor."""
        return np.asarray(keras.ops.convert_to_numpy(value))
