"""A layer that is built already is judged with its own weights, in its own sizes.

Its class is bound as any class is. Problems with the layer's own weights then go to the layer
itself, and those with others (trials, smaller cases, experiments) to new layers of its class.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import TargetError
from mha_parity.core.own_weights import OwnWeights
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.conventions.base import has_modes, set_mode
from mha_parity.targets.conventions.linear_layers import LinearModule
from mha_parity.targets.conventions.packing import parted
from mha_parity.targets.conventions.torch_module import TorchModule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.targets.conventions.base import Convention

# How layers call their number of heads.
HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads", "h", "H")
# Regimes of the inputs alone: all others are made by weights.
REGIMES = ("normal", "tiny", "ties", "constant", "zeros")
PARTS = ("q", "k", "v")
Entry = tuple[str, dict[str, "Array"]]  # the name of a tensor, and the weights that it holds


def is_instance(subject: object) -> bool:
    """Return whether a subject is a layer with a state, and no class."""
    # Of its class: some objects answer for every attribute, or raise.
    states = all(callable(getattr(type(subject), name, None)) for name in _STATE)
    return states and not isinstance(subject, type) and not inspect.isroutine(subject)


_STATE = ("state_dict", "load_state_dict")


def adopt(bound: Convention, layer: Any) -> None:
    """Let a convention that is bound to the class of a layer judge the layer itself.

    Raises
    ------
    TargetError
        Its weights or its number of heads are not found, or it is of a kind that its class is not
        judged in.

    """
    name = type(layer).__qualname__
    if not isinstance(bound, TorchModule):
        raise TargetError(
            f"got an instance of {name}, called as {bound.convention}, whose weights are not in a "
            "state dict; name the class."
        )
    heads = next((n for n in (getattr(layer, each, None) for each in HEADS) if _counts(n)), None)
    if heads is None:
        raise TargetError(
            f"got an instance of {name}, but none of its attributes {', '.join(HEADS)} is a number "
            "of heads; set one."
        )
    own = _read(bound, layer, int(heads))
    _narrow(bound, layer, own)
    if has_modes(layer):
        layer = set_mode(layer, training=False)
    bound.instance, bound.own_weights = layer, own


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _read(bound: TorchModule, layer: Any, heads: int) -> OwnWeights:
    """Return the weights in the layer's state."""
    state = {name: to_numpy(a, f"`{name}`") for name, a in layer.state_dict().items()}
    found = _of_linears(bound, state, heads) if isinstance(bound, LinearModule) else None
    entries = list(_of_torch(state) if found is None else found)
    arrays = {part: array for _, held in entries for part, array in held.items()}
    if not {"w_q", "w_k", "w_v"} <= arrays.keys():
        raise TargetError(
            f"got {bound.name} with {', '.join(state)}, but should have W_q, W_k, W_v."
        )
    width = arrays["w_q"].shape[0]
    if any(name.startswith("b_") for name in arrays):
        absent = ("b_q", "b_k", "b_v", *["b_out"][: "w_out" in arrays])
        arrays = {name: np.zeros(width, arrays["w_q"].dtype) for name in absent} | arrays
    kdim, vdim = arrays["w_k"].shape[1], arrays["w_v"].shape[1]
    separate = not kdim == vdim == width
    places = {name: tuple(held) for name, held in entries}
    return OwnWeights(
        arrays=arrays,
        features={
            "bias": _yes("b_q" in arrays),
            "bias_kv": _yes("bias_k" in arrays),
            "zero_attn": _yes(bool(getattr(layer, "add_zero_attn", False))),
            "out_proj": "general" if "w_out" in arrays else "identity",
            "projection": "separate" if separate else "packed",
            "dtype": arrays["w_q"].dtype.name,
        },
        sizes={
            "heads_count": heads,
            "head_dim": width // heads,
            "kdim": kdim if separate else 0,
            "vdim": vdim if separate else 0,
        },
        places=places,
        left_over=tuple(name for name in state if name not in places),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _of_torch(state: Mapping[str, Array]) -> Iterator[Entry]:
    """Yield what the tensors of a state hold that has torch's own names."""
    for name, array in state.items():
        kind = "w" if name.endswith("weight") else "b"
        if name.startswith("in_proj_"):
            thirds = np.split(array, 3)
            yield name, {f"{kind}_{part}": each for part, each in zip(PARTS, thirds, strict=True)}
        elif name in {f"{part}_proj_weight" for part in PARTS}:
            yield name, {f"w_{name[0]}": array}
        elif name in {"bias_k", "bias_v"}:
            yield name, {name: array[0, 0]}
        elif name.startswith("out_proj."):
            yield name, {f"{kind}_out": array}


def _of_linears(bound: LinearModule, state: Mapping[str, Array], heads: int) -> Iterator[Entry]:
    """Yield what the Linears of a state hold, as trials of the class showed that it lies."""
    for slot in bound.slots:
        for kind in ("weight", "bias"):
            name = f"{slot.name}.{kind}"
            if name in state:
                parts = parted(slot, state[name], heads)
                yield name, {f"{kind[0]}_{part}": array for part, array in parts.items()}


def _narrow(bound: TorchModule, layer: Any, own: OwnWeights) -> None:
    """Leave of the class's offer what this layer has."""
    heads, width = own.sizes["heads_count"], own.sizes["head_dim"]
    size = ("ones",) if width == 1 else ("medium", "ones", "equal" if heads == width else "small")
    wanted: dict[str, tuple[str, ...]] = {axis: (v,) for axis, v in own.features.items()}
    wanted |= {"heads": ("one" if heads == 1 else "many",), "regime": REGIMES, "size": size}
    if own.features["projection"] == "separate":
        wanted["inputs"] = ("distinct",)
    first = getattr(layer, "batch_first", None)
    if first is not None:
        wanted["layout"] = ("batch_first" if first else "sequence_first", "unbatched")
    for axis, values in wanted.items():
        # One of the four biases may be lacking: of this layer it is 0.
        offered = (*bound.offer[axis], "yes") if axis == "bias" else bound.offer[axis]
        left = tuple(value for value in dict.fromkeys(offered) if value in values)
        if not left:
            raise TargetError(
                f"got an instance with {axis}={values[0]}, but its class is judged only with "
                f"{axis}={' or '.join(bound.offer[axis])}; build one of these."
            )
        bound.offer = bound.offer | {axis: left}
