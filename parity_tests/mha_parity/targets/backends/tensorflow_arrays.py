"""TensorFlow's tensors: copies, whatever memory they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from mha_parity.core.candidate import TargetError
from mha_parity.core.features import AXES

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


class TensorflowArrays:
    """Eager tensors of all dtypes; TensorFlow has ml_dtypes' bfloat16."""

    name = "tensorflow"
    memory = ("c",)
    dtypes = tuple(AXES["dtype"])

    def __init__(self, device: str = "cpu") -> None:
        kind = device.partition(":")[0].upper()
        if not tf.config.list_logical_devices(kind):
            raise TargetError(
                f"got the device {device!r}, but TensorFlow has none of that name here; "
                f"name one that TensorFlow can use, or leave --device out."
            )
        self._device = device

    def from_numpy(self, array: Array) -> Any:
        """Return a tensor on the device, of a copy: a tensor may keep the memory that it gets."""
        with tf.device(self._device):
            return tf.constant(np.array(array, order="C"))

    def to_numpy(self, value: Any) -> Array:
        """Return the numbers of a tensor or a variable."""
        return np.asarray(value)
