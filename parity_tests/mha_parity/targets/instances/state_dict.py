"""The weights in a .safetensors file as those that a target is judged with, over all else.

Names are torch's, or whatever else says which projection a tensor belongs to.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import TargetError
from mha_parity.core.safetensors import FormatError, load_tensors
from mha_parity.targets.instances.instance import (
    fewer_kv_heads,
    fitted_entries,
    narrow_offer,
    own_weights,
    torch_entries,
)
from mha_parity.targets.layers.weight_packing import ProjectionSlot, names_output, unpack
from mha_parity.targets.static.projection_names import bias_parts, parts
from mha_parity.targets.trials.fitted_target import Fitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.instances.instance import Entry

SUFFIX = ".safetensors"
TORCHS = ("in_proj_weight", "q_proj_weight")
SOME = 3  # layers that a sentence names


def give_weights(bound: Convention, text: str | None, num_heads: int | None) -> None:
    """Judge a target with the weights in a file, ``FILE.safetensors`` or ``FILE:PREFIX``.

    Raises
    ------
    TargetError
        The file is no safetensors or has no weights of one layer, or the target has weights of its
        own, or takes none.

    """
    own = bound.own_weights
    if own is not None and (own.arrays or not isinstance(bound, Fitted)):
        raise TargetError(
            f"got --state-dict or --num-heads for {bound.name}, which has weights of its own; "
            "leave them out, or name its class."
        )
    if text is None or num_heads is None:
        raise TargetError(
            "got one of --state-dict and --num-heads, but should get both: a file of weights does "
            "not say how many heads they have."
        )
    state = _of_layer(text, _read(text))
    slots, found = [], []
    if isinstance(bound, Fitted):
        slots = [slot for slot in bound.slots_for(num_heads) if not slot.bias]
        found = list(fitted_entries(bound, state, num_heads))
    # Whether the file is one of this class.
    complete = bool(slots) and all(slot.path in state for slot in slots)
    if not complete:  # the usual names fill what is lacking
        torchs = any(name in state for name in TORCHS)
        usual = torch_entries(state) if torchs else _by_names(state, num_heads)
        held = {part[2:] for _, arrays in found for part in arrays}
        found += [each for each in usual if held.isdisjoint(part[2:] for part in each[1])]
    _finite(text, state, found)
    kv_heads = fewer_kv_heads(bound, state, num_heads) if complete else 0
    own = own_weights(found, state, num_heads, text, kv_heads)
    projects = any("out" in slot.parts for slot in slots) and "w_out" not in own.arrays
    matrices = [name for name in own.left_over if state[name].ndim == 2]
    if projects and matrices:
        raise TargetError(
            f"got the state dict {text}, in which no name tells the weight of {bound.name}'s "
            f"output, but {', '.join(matrices[:SOME])} left over; name it out_proj.weight."
        )
    narrow_offer(bound, own, complete=complete)
    bound.own_weights = own


def _finite(text: str, state: Mapping[str, Array], found: Iterable[Entry]) -> None:
    """Refuse weights with which every output is NaN."""
    for name, _ in found:
        if not np.isfinite(state[name]).all():
            raise TargetError(
                f"got the state dict {text}, but {name} has NaN or infinity, and so has every "
                "output; give finite weights."
            )


def _read(text: str) -> dict[str, Array]:
    """Return the tensors of the file."""
    path = Path(text.partition(f"{SUFFIX}:")[0] + SUFFIX * (f"{SUFFIX}:" in text)).expanduser()
    try:
        return load_tensors(path.read_bytes())[0]
    except OSError as error:
        raise TargetError(
            f"got the state dict {text}, but {path} cannot be read ({error.strerror}); check the "
            "path."
        ) from None
    except FormatError as error:
        raise TargetError(
            f"got the state dict {text}, but the file {error}; write it with "
            "safetensors.torch.save_file."
        ) from None


def _of_layer(text: str, state: dict[str, Array]) -> dict[str, Array]:
    """Return the tensors below the prefix; there is one layer of attention among them."""
    prefix = text.partition(f"{SUFFIX}:")[2]
    if prefix:
        state = {
            name.removeprefix(f"{prefix}."): array
            for name, array in state.items()
            if name.startswith(f"{prefix}.")
        }
    layers = [name for name in state if "q" in _held(name, state[name])]
    if len(layers) > 1:
        raise TargetError(
            f"got the state dict {text} of {len(layers)} layers, with {', '.join(layers[:SOME])}, "
            f"but should be of one; name it as FILE{SUFFIX}:PREFIX."
        )
    return state


def _held(name: str, array: Array) -> tuple[str, ...]:
    """Return the projections whose weights a tensor holds by its name, in order."""
    if array.ndim != 2:
        return ()
    return parts(name) or (("out",) if names_output(name) else ())


def _by_names(state: Mapping[str, Array], heads: int) -> Iterator[Entry]:
    """Yield what the tensors hold by their names; of two for the same, that next to the queries'.

    Packed rows lie part by part; a packed weight (in, out) is transposed, and so is its companion.
    """
    weights = {name: held for name, array in state.items() if (held := _held(name, array))}
    query = next((name for name, held in weights.items() if "q" in held), "")
    transposed = (
        bool(query) and len(weights[query]) > 1 and state[query].shape[0] < max(state[query].shape)
    )
    found: set[str] = set()
    for name in sorted(weights, key=lambda each: -_shared(each, query)):
        if found.isdisjoint(weights[name]):
            found |= {*weights[name]}
            slot = ProjectionSlot(name, weights[name], transposed=transposed)
            yield name, {f"w_{part}": a for part, a in unpack(slot, state[name], heads).items()}
            yield from _bias(slot, state, heads)


def _shared(name: str, other: str) -> int:
    """Return how many modules two names have in common."""
    pairs = zip(name.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _bias(slot: ProjectionSlot, state: Mapping[str, Array], heads: int) -> Iterator[Entry]:
    """Yield the bias that goes with a weight."""
    stem = slot.name.removesuffix("weight")
    for name, array in state.items():
        belongs = name == f"{stem}bias" if stem != slot.name else bias_parts(name) == slot.parts
        if array.ndim == 1 and belongs:
            yield name, {f"b_{part}": a for part, a in unpack(slot, array, heads).items()}
