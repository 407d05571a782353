"""Forcing one of torch's SDPA kernels, and saying why it would not."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend, sdpa_kernel

from mha_torch._paths import PathNotTakenError

if TYPE_CHECKING:
    from collections.abc import Iterator

MATH = SDPBackend.MATH
FLASH = SDPBackend.FLASH_ATTENTION

_REFUSALS = ("No viable backend", "No available kernel")


@contextmanager
def forced(kernel: SDPBackend) -> Iterator[None]:
    """Let torch use this kernel alone; raise PathNotTakenError with torch's reasons if it cannot.

    torch tells the reasons as warnings before it refuses; any other warning is passed on. The
    composite of plain operators refuses nothing.
    """
    if kernel is MATH:
        with sdpa_kernel(kernel):
            yield
        return
    with warnings.catch_warnings(record=True) as said, sdpa_kernel(kernel):
        warnings.simplefilter("always")
        try:
            yield
        except RuntimeError as error:
            if not any(refusal in str(error) for refusal in _REFUSALS):
                raise
            reasons = [str(warning.message).split(" (Triggered", 1)[0] for warning in said]
            reason_text = " ".join(reason for reason in reasons if not reason.endswith("because:"))
            msg = f"{kernel.name} cannot compute this: {reason_text or error}"
            raise PathNotTakenError(msg) from None
    for warning in said:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
