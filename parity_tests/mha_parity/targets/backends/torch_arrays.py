"""torch's tensors, on the CPU or on an accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from mha_parity.cases.rng import numpy_dtype
from mha_parity.core.candidate import TargetError
from mha_parity.core.features import AXES

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


class TorchArrays:
    """Tensors share memory with CPU arrays; none has negative strides or is read-only."""

    name = "torch"
    memory = ("c", "fortran", "sliced")
    dtypes = tuple(AXES["dtype"])

    def __init__(self, device: str = "cpu") -> None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            said = str(error).partition("\n")[0].rstrip(".")
            raise TargetError(
                f"got the device {device!r}, but torch has none of that name here ({said}); "
                f"name one that torch can use, or leave --device out."
            ) from None
        self.device = device

    def from_numpy(self, array: Array) -> torch.Tensor:
        """Return a tensor on the device."""
        if not array.flags.writeable or any(stride < 0 for stride in array.strides):
            array = array.copy()
        if array.itemsize == 2 and array.dtype.name == "bfloat16":
            # torch does not know ml_dtypes' type: pass the bits
            tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        return tensor.to(self.device)

    def to_numpy(self, value: torch.Tensor) -> Array:
        """Return the tensor's numbers on the CPU."""
        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            bits: Array = tensor.contiguous().view(torch.int16).numpy()
            return bits.view(numpy_dtype("bfloat16"))
        array: Array = tensor.numpy()
        return array
