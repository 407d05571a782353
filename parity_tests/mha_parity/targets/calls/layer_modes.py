"""Whether a layer is in training or in evaluation."""

from __future__ import annotations

import sys
from typing import Any

from mha_parity.targets.calls.target_call import target_errors


def is_of_equinox(layer: Any) -> bool:
    """Return whether a layer is one of equinox's modules: what drops in it knows inference."""
    equinox = sys.modules.get("equinox")
    return equinox is not None and isinstance(layer, equinox.Module)


def has_modes(layer: Any) -> bool:
    """Return whether a layer can be switched between training and evaluation."""
    return is_of_equinox(layer) or all(
        callable(getattr(layer, name, None)) for name in ("train", "eval")
    )


def set_mode(layer: Any, training: bool) -> Any:
    """Return the layer in training or evaluation mode; some switch themselves, some return it."""
    if is_of_equinox(layer):
        return sys.modules["equinox"].nn.inference_mode(layer, value=not training)
    with target_errors():
        switched = layer.train() if training else layer.eval()
    return layer if switched is None else switched
