"""torch's state dict, both ways: its names, shapes and order, nothing to convert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy._dtypes import is_supported

if TYPE_CHECKING:
    from numpy.typing import NDArray


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` left unread, as torch returns it."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def check_state(
    state: Mapping[str, object], own: Mapping[str, NDArray[Any]], *, strict: bool
) -> tuple[dict[str, NDArray[Any]], IncompatibleKeys]:
    """Return the entries that go into `own` in its dtypes, and the keys that do not match.

    Nothing is written yet: a state dict is taken whole or not at all. Raises ValueError where a
    shape is wrong and, if `strict`, where an entry is missing or unexpected.
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
            taken[name] = array.astype(target.dtype)
    return taken, left


def entry_to_array(entry: object, name: str) -> NDArray[Any]:
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
