"""Masks of float32 beside queries of float64, which torch's kernel for CPUs misreads.

``F.scaled_dot_product_attention`` takes them without a word; from 16 keys on its answer is that of
another mask. A layer that makes its mask in float32, whatever its inputs are, is wrong so.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.error_origin import attributed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.case import Case
    from mha_parity.targets.convention_base.convention import Convention


def passes_float32_masks(convention: Convention) -> bool:
    """Return whether small calls in float64, without and with masks, give torch such a mask."""
    library = convention.library
    if library.name != "torch" or str(getattr(library, "device", "cpu")) != "cpu":
        return False  # other devices have other kernels
    if "torch" not in sys.modules or "float64" not in convention.offer["dtype"]:
        return False
    watch = _watch()
    for case in _cases(convention):
        with suppress(CandidateError), attributed(convention.subject), watch:
            convention(make_problem(case))
    return bool(watch.found)


def _cases(convention: Convention) -> Iterator[Case]:
    """Yield a plain case, and one with each kind of mask that is offered first."""
    plain = convention.plain_case().replace(dtype="float64")
    yield plain
    for axis in ("attn", "padding"):
        kinds = (each for each in convention.offer[axis] if each != "none")
        yield from (plain.replace(**{axis: kind}) for kind in [*kinds][:1])


def _watch() -> Any:
    """Return a context that looks at what torch's function gets; ``found`` says what it saw."""
    import torch
    from torch.overrides import TorchFunctionMode

    attend = torch.nn.functional.scaled_dot_product_attention

    class Watch(TorchFunctionMode):
        """Looks at the dtypes of queries and mask."""

        found = False

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Call the function."""
            given = kwargs or {}
            if function is attend:
                mask = given.get("attn_mask", args[3] if len(args) > 3 else None)
                query = given.get("query", args[0] if args else None)
                dtypes = (getattr(query, "dtype", None), getattr(mask, "dtype", None))
                self.found |= dtypes == (torch.float64, torch.float32)
            return function(*args, **given)

    return Watch()
