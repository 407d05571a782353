"""JAX's arrays: copies, whatever memory they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mha_parity.core.candidate import TargetError

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


class JaxArrays:
    """float64 exists only where its user has set JAX_ENABLE_X64: that is not ours to change."""

    name = "jax"
    memory = ("c",)

    def __init__(self, device: str = "cpu") -> None:
        try:
            self._device = jax.devices(device)[0]
        except RuntimeError as error:
            said = str(error).partition("\n")[0].rstrip(".")
            raise TargetError(
                f"got the device {device!r}, but JAX has none of that name here ({said}); "
                f"name one that JAX can use, or leave --device out."
            ) from None
        enabled = ("float64",) if jax.config.jax_enable_x64 else ()
        self.dtypes: tuple[str, ...] = (*enabled, "float32", "float16", "bfloat16")

    def from_numpy(self, array: Array) -> Any:
        """Return a JAX array on the device.

        Of a copy: a device that is the processor may keep the memory that it gets. `jnp.asarray`
        would compile a copy for each shape, which takes longer than a call.
        """
        return jax.device_put(np.array(array, order="C"), self._device)

    def to_numpy(self, value: Any) -> Array:
        """Return the numbers; JAX's bfloat16 is ml_dtypes' already."""
        return np.asarray(value)
