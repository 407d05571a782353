"""An identity projection that is one for NaN and infinity too.

A problem without `out_proj` (or without `in_proj`) is computed by torch with the identity matrix.
For finite numbers the product with it is exact, but 0 times infinity is NaN, so one infinite
feature would turn its whole row into NaN although the problem has no such product. In that case
the call is repeated with the products by the identity replaced by their other factor.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@lru_cache(maxsize=32)
def identity(width: int, copies: int, dtype: torch.dtype) -> torch.Tensor:
    """Return `copies` identity matrices stacked to (copies * width, width); never written to."""
    with torch.inference_mode(mode=False):
        return torch.eye(width, dtype=dtype).repeat(copies, 1)


# What `F.linear` comes down to: without bias, without bias on strided rows, and with bias.
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
_PRODUCT_PLUS = torch.ops.aten.addmm.default


class ExactIdentity(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it untyped
    """Within this mode a product by one of `matrices` hands its other factor on, NaN and all."""

    def __init__(self, matrices: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch leaves it untyped
        self._storages = {_storage(matrix) for matrix in matrices}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do not load the compiler, which takes torch a second, for the sake of leaving it out."""
        return False

    def __torch_dispatch__(
        self,
        func: Callable[..., torch.Tensor],
        types: object,
        args: Sequence[torch.Tensor] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> torch.Tensor:
        """Replace products of rows with an identity; run everything else as it is."""
        if func in _PRODUCTS and _storage(args[1]) in self._storages:
            return _repeated(args[0], args[1])
        if func is _PRODUCT_PLUS and _storage(args[2]) in self._storages:
            return args[0] + _repeated(args[1], args[2])
        return func(*args, **(kwargs or {}))


def _storage(matrix: torch.Tensor) -> int:
    return matrix.untyped_storage().data_ptr()


def _repeated(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return rows @ [I, I, ...], that is, the rows once for each identity matrix."""
    return torch.cat([rows] * (matrix.shape[-1] // matrix.shape[-2]), dim=-1)
