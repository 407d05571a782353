"""The parameters of a layer: drawn as torch draws them, saved and loaded as torch's state dict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array, is_supported


class IncompatibleKeys(NamedTuple):
    """Keys that `load_state_dict` left unread, as torch returns them."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def check_state(
    state: Mapping[str, object], own: Mapping[str, Array], *, strict: bool
) -> tuple[dict[str, Array], IncompatibleKeys]:
    """Return the entries that go into `own` in its dtypes, and the keys that do not match.

    Nothing is written yet: a state dict is taken whole or not at all. Raises ValueError where a
    shape is wrong, a target is read-only and, if `strict`, an entry is missing or unexpected.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            f"`state_dict` is a {type(state).__name__}, but should be a mapping, names to "
            "arrays; pass what state_dict() returns."
        )
    left = IncompatibleKeys(
        [name for name in own if name not in state], [name for name in state if name not in own]
    )
    if strict and (left.missing_keys or left.unexpected_keys):
        raise ValueError(
            f"`state_dict` lacks {left.missing_keys} and has {left.unexpected_keys} beyond "
            f"{list(own)}, but should have exactly these; make the layer with the same options "
            "(bias, add_bias_kv, kdim, vdim), or pass strict=False."
        )
    taken = {}
    for name, target in own.items():
        if name in state:
            array = entry_to_array(state[name], name)
            if array.shape != target.shape:
                raise ValueError(
                    f"`state_dict[{name!r}]` has shape {array.shape}, but should be "
                    f"{target.shape}; make the layer with the sizes the state comes from."
                )
            if not target.flags.writeable:
                raise ValueError(f"`{name}` is read-only, but should take an entry; assign a copy.")
            taken[name] = array.astype(target.dtype)
    return taken, left


def entry_to_array(entry: object, name: str) -> Array:
    """Return one entry as a floating array; torch tensors come in without torch being imported.

    A tensor is detached and fetched from its device first. NumPy cannot read torch's bfloat16, so
    that one comes by way of float32, which holds it exactly.
    """
    for step in ("detach", "cpu"):
        method = getattr(entry, step, None)
        entry = method() if callable(method) else entry
    if str(getattr(entry, "dtype", "")) == "torch.bfloat16":
        entry = entry.float()  # type: ignore[attr-defined]  # a torch tensor, whose type is not known here
    array = np.asarray(entry)
    if not is_supported(array.dtype):
        raise TypeError(
            f"`state_dict[{name!r}]` has dtype {array.dtype}, but should be a floating one; "
            "convert it, nothing is truncated silently."
        )
    return array


def initial_parameter(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator
) -> Array:
    """Draw one parameter as torch does: zero biases, normal bias_k and bias_v, uniform weights.

    Weights of the input projections are U(-a, a) with a = sqrt(6 / (rows + columns)), taken over
    the packed matrix where it is packed (Xavier, so that its bound is smaller than that of three
    separate ones); the output projection has a = 1 / sqrt(E), as every nn.Linear; bias_k and
    bias_v are N(0, 1 / E).
    """
    if name in {"in_proj_bias", "out_proj.bias"}:
        return np.zeros(shape, dtype)
    if name in {"bias_k", "bias_v"}:
        return rng.normal(0, 1 / math.sqrt(shape[-1]), shape).astype(dtype)
    bound = 1 / math.sqrt(shape[-1]) if name == "out_proj.weight" else math.sqrt(6 / sum(shape))
    return rng.uniform(-bound, bound, shape).astype(dtype)
