"""Whether a layer is in training or in evaluation."""

from __future__ import annotations

from typing import Any

from mha_parity.targets.conventions.calls import target_errors


def has_modes(layer: Any) -> bool:
    """Return whether a layer can be switched between training and evaluation."""
    return all(callable(getattr(layer, name, None)) for name in ("train", "eval"))


def set_mode(layer: Any, training: bool) -> Any:
    """Return the layer in training or evaluation mode; some switch themselves, some return it."""
    with target_errors():
        switched = layer.train() if training else layer.eval()
    return layer if switched is None else switched
