"""The paths that torch's own module can be sent along when it is itself the candidate."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from mha_parity.core.candidate import TargetError
from mha_torch import Path

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.features import Offer

_BACKENDS = {Path.SDPA_MATH: SDPBackend.MATH, Path.SDPA_FLASH: SDPBackend.FLASH_ATTENTION}


def path_offer(name: str) -> Offer:
    """Return the axes on which a path computes less than the module offers.

    Raises
    ------
    TargetError
        There is no such path.

    """
    path = _path(name)
    offered: Offer = {} if path.needs_weights else {"weights": ("none",)}
    if path is not Path.FAST:
        return offered
    return offered | {
        "inputs": ("self",), "layout": ("batch_first",), "projection": ("packed",),
        "bias": ("yes",), "bias_kv": ("no",), "zero_attn": ("no",),
        "padding": ("none", "bool", "lengths"), "attn": ("none", "bool2d", "causal"),
    }  # fmt: skip


def on_path(name: str, module: torch.nn.Module) -> Callable[..., Any]:
    """Return ``module`` as a function that goes along the path and leaves torch as it was."""
    path = _path(name)

    def called(*args: Any, **kwargs: Any) -> Any:
        enabled = torch.backends.mha.get_fastpath_enabled()
        with ExitStack() as stack:
            fast = path is Path.FAST
            stack.enter_context(torch.inference_mode() if fast else torch.no_grad())
            torch.backends.mha.set_fastpath_enabled(path in {Path.FAST, Path.EVAL})
            stack.callback(torch.backends.mha.set_fastpath_enabled, enabled)
            if path in _BACKENDS:
                stack.enter_context(sdpa_kernel(_BACKENDS[path]))
            return module.train(path.training)(*args, **kwargs)

    return called


def _path(name: str) -> Path:
    try:
        return Path(name)
    except ValueError:
        known = ", ".join(Path)
        raise TargetError(f"`path`={name!r} is unknown, but should be one of {known}.") from None
