"""A layer that is built already is judged with its own weights, in its own sizes.

A function without parameters may build it. Its class is bound as any class is, by trials. Problems
with the layer's own weights then go to the layer itself, and those with others (experiments) to
copies of it: nothing is asked of another layer of its class.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.case import BLOCK
from mha_parity.core.global_state import seeded_generators
from mha_parity.core.own_weights import OwnWeights
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.built_layer import BuiltLayer
from mha_parity.targets.calls.layer_modes import has_modes, set_mode
from mha_parity.targets.calls.problem_weights import KEY_PARTS, arrays_of
from mha_parity.targets.calls.target_call import target_errors
from mha_parity.targets.convention_base.fitted_gradients import parts_of
from mha_parity.targets.convention_base.instance_calls import InstanceCalls
from mha_parity.targets.instances.fixed_switches import settle_switches
from mha_parity.targets.instances.instance_trials import (
    length_limit,
    refuse_left_over,
    without_effect,
)
from mha_parity.targets.interpretations.try_interpretations import SMALL
from mha_parity.targets.layers.sizes_in_code import HEADS
from mha_parity.targets.layers.weight_packing import ProjectionSlot, unpack
from mha_parity.targets.layers.weights import sizes_of, slot_array
from mha_parity.targets.loading.callables import layer_inside
from mha_parity.targets.trials.fitted_target import Fitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.targets.convention_base.convention import Convention

# Regimes of the inputs alone: all others are made by weights.
REGIMES = ("normal", "tiny", "ties", "constant", "zeros")
PARTS = ("q", "k", "v")
SOME = 8  # names that a sentence lists
Entry = tuple[str, dict[str, "Array"]]  # the name of a tensor, and the weights that it holds


def is_instance(subject: object) -> bool:
    """Return whether a subject is a layer with a state, and no class."""
    # Of its class: some objects answer for every attribute, or raise.
    states = all(callable(getattr(type(subject), name, None)) for name in _STATE)
    return states and not isinstance(subject, type) and not inspect.isroutine(subject)


_STATE = ("state_dict", "load_state_dict")


def layer_of(subject: Any) -> Any:
    """Return the layer that a subject is, or that a function without parameters makes, or None.

    Raises
    ------
    TargetError
        The function raised.

    """
    if is_instance(subject):
        return subject
    if not inspect.isfunction(subject) or inspect.signature(subject).parameters:
        return None
    try:
        with seeded_generators(0), target_errors():  # the same weights in every process
            made = subject()
    except CandidateError as error:
        raise TargetError(
            f"got {subject.__qualname__}, which should make a layer, but {error}."
        ) from None
    return made if is_instance(made) else None


def use_layer(bound: Convention, layer: Any) -> None:
    """Let a convention that is bound to the class of a layer judge the layer itself.

    Raises
    ------
    TargetError
        Its weights or its number of heads are not found, or it is of a kind that its class is not
        judged in.

    """
    called, layer = layer, layer_inside(layer)
    name = type(layer).__qualname__
    reason = _not_instances(bound)
    if reason or not isinstance(bound, InstanceCalls):
        raise TargetError(f"got an instance of {name}, {reason}; name the class.")
    own_heads = {} if bound.own_weights is None else bound.own_weights.sizes
    named = (getattr(layer, each, None) for each in HEADS)
    heads = next((n for n in (*named, own_heads.get("heads_count")) if _counts(n)), None)
    if heads is None:
        raise TargetError(
            f"got an instance of {name}, but none of its attributes {', '.join(HEADS)} is a number "
            "of heads; set one."
        )
    state = {name: to_numpy(a, f"`{name}`") for name, a in layer.state_dict().items()}

    def entries(state: Mapping[str, Array]) -> Iterator[Entry]:
        if isinstance(bound, Fitted):
            return fitted_entries(bound, state, int(heads))
        return torch_entries(state)

    own = own_weights(
        entries(state), state, int(heads), bound.name, fewer_kv_heads(bound, state, int(heads))
    )
    zero_attn = _yes(bool(getattr(layer, "add_zero_attn", False)))
    own = replace(own, features=own.features | {"zero_attn": zero_attn}, built=True)
    narrow_offer(bound, own, getattr(layer, "batch_first", None), complete=True)
    if has_modes(called):
        called = set_mode(called, training=False)

    def read(state: Mapping[str, Array]) -> dict[str, Array]:
        """Return the weights of a state, as those of the layer were read."""
        return {name: array for _, held in entries(state) for name, array in held.items()}

    bound.instance, bound.own_weights = BuiltLayer(called, own, read), own
    settle_switches(bound)
    longest, beyond = length_limit(bound)
    bound.own_weights = bound.instance.own = replace(own, longest=longest, beyond=beyond)
    sizes = tuple(size for size in bound.offer["size"] if size != "medium")
    if 0 < longest <= BLOCK and sizes:  # no case is as long
        bound.offer = bound.offer | {"size": sizes}
        bound.reasons["size", "medium"] = beyond
    refuse_left_over(bound)
    bound.instance.inert = without_effect(bound)


def _not_instances(bound: Convention) -> str:
    """Return why a layer that is built already is not judged by a convention; "" where it is."""
    if not isinstance(bound, InstanceCalls) or (isinstance(bound, Fitted) and not bound.how.slots):
        return f"called as {bound.convention}, whose weights are not in a state dict"
    if not isinstance(bound, Fitted):
        return ""
    how = bound.how
    if bound.of_one_length:
        return "which takes calls of one length alone"
    changed = how.norms or how.around or how.residual or how.full_width
    return f"which is judged otherwise than it is built ({how})" if changed else ""


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def own_weights(
    entries: Iterable[Entry], state: Mapping[str, Array], heads: int, name: str, kv_heads: int = 0
) -> OwnWeights:
    """Return the weights that tensors of a state hold; what is no entry is left over.

    ``kv_heads`` is the number of key heads where they are fewer: then those of a group are alike.

    Raises
    ------
    TargetError
        Some are lacking, or are not of one layer with that number of heads.

    """
    places: dict[str, tuple[str, ...]] = {}
    arrays: dict[str, Array] = {}
    for tensor, held in entries:
        places[tensor] = tuple(held)
        arrays |= held
    if not {"w_q", "w_k", "w_v"} <= arrays.keys():
        raise TargetError(f"got {name} with {_few(state)}, but should have W_q, W_k, W_v.")
    width = arrays["w_q"].shape[0]
    if any(each.startswith("b_") for each in arrays):
        absent = ("b_q", "b_k", "b_v", *["b_out"][: "w_out" in arrays])
        arrays = {each: np.zeros(width, arrays["w_q"].dtype) for each in absent} | arrays
    _of_one_layer(arrays, width, heads, name)
    kdim, vdim = arrays["w_k"].shape[1], arrays["w_v"].shape[1]
    separate = not kdim == vdim == width
    return OwnWeights(
        arrays=arrays,
        features={
            "bias": _yes("b_q" in arrays),
            "bias_kv": _yes("bias_k" in arrays),
            "zero_attn": "no",
            "out_proj": "general" if "w_out" in arrays else "identity",
            "projection": "separate" if separate else "packed",
            "dtype": arrays["w_q"].dtype.name,
        },
        sizes={
            "heads_count": heads,
            "kv_heads_count": kv_heads,
            "head_dim": width // heads,
            "kdim": kdim if separate else 0,
            "vdim": vdim if separate else 0,
        },
        places=places,
        left_over=tuple(each for each in state if each not in places),
    )


def _few(names: Iterable[str]) -> str:
    """Return names as a list that fits a sentence."""
    listed = list(names)
    more = f" and {len(listed) - SOME} more" if len(listed) > SOME else ""
    return (", ".join(listed[:SOME]) or "no tensors") + more


def _require_heads(name: str, width: int, heads: int) -> None:
    if not width or width % heads:
        raise TargetError(f"got {name} of width {width}, but should divide into {heads} heads.")


def _of_one_layer(arrays: Mapping[str, Array], width: int, heads: int, name: str) -> None:
    """Refuse weights of other shapes or dtypes than those of queries say."""
    _require_heads(name, width, heads)
    for part, array in arrays.items():
        matrix = part.startswith("w_")
        expected = (width, array.shape[-1] if part in {"w_k", "w_v"} else width)[: 1 + matrix]
        if array.shape != expected or array.dtype != arrays["w_q"].dtype:
            raise TargetError(
                f"got {name} with {part} {array.dtype} {array.shape}, but should have "
                f"{arrays['w_q'].dtype} {expected}."
            )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def torch_entries(state: Mapping[str, Array]) -> Iterator[Entry]:
    """Yield what the tensors of a state hold that has torch's own names."""
    for name, array in state.items():
        kind = "w" if name.endswith("weight") else "b"
        if name.startswith("in_proj_"):
            thirds = unpack(ProjectionSlot(name, PARTS), array, 1)
            yield name, {f"{kind}_{part}": each for part, each in thirds.items()}
        elif name in {f"{part}_proj_weight" for part in PARTS}:
            yield name, {f"w_{name[0]}": array}
        elif name in {"bias_k", "bias_v"}:
            yield name, {name: array.reshape(-1)}
        elif name.startswith("out_proj."):
            yield name, {f"{kind}_out": array}


def fitted_entries(bound: Fitted, state: Mapping[str, Array], heads: int) -> Iterator[Entry]:
    """Yield what the arrays of a state hold, as trials of the class showed that it lies.

    Raises
    ------
    TargetError
        One is of another size than that of the queries says, or these are not square.

    """
    slots = {slot.path: slot for slot in bound.slots_for(heads) if slot.path in state}
    of_queries = [each for each in slots.values() if "q" in each.parts and not each.bias]
    if not of_queries:
        return
    count = sum(state[each.path].size for each in of_queries)
    parts = len(of_queries[0].parts)
    width = math.isqrt(count // parts)
    if width * width * parts != count:
        path = of_queries[0].path
        raise TargetError(
            f"got {path} {state[path].shape}, but should be {parts} square matrices of one width: "
            "fewer key heads are read of arrays of their own; name the class."
        )
    _require_heads(bound.name, width, heads)
    kv_heads = fewer_kv_heads(bound, state, heads)
    case = SMALL.replace(heads_count=heads, kv_heads_count=kv_heads, head_dim=width // heads)
    problem = make_problem(case.replace(batch=1, queries=1, keys=1))
    whole: dict[bool, Mapping[str, Array]] = {}
    for bias in (False, True):
        expected = arrays_of(problem, bias=bias)
        found = [(slot, state[path]) for path, slot in slots.items() if slot.bias is bias]
        for slot, array in found:
            if slot_array(slot, problem, expected, sizes_of(problem)).size != array.size:
                raise TargetError(
                    f"got {slot.path} {array.shape}, but should be of a layer of width {width}."
                )
        whole[bias] = parts_of(problem, found, bias=bias)
    for path in (each for each in state if each in slots):
        slot, kind = slots[path], "b" if slots[path].bias else "w"
        held = {part: whole[slot.bias][part] for part in slot.parts}
        if kv_heads:
            held |= {part: _repeated(held[part], kv_heads, heads) for part in KEY_PARTS & {*held}}
        dtype = state[path].dtype
        yield path, {f"{kind}_{part}": array.astype(dtype) for part, array in held.items()}


def fewer_kv_heads(bound: Convention, state: Mapping[str, Array], heads: int) -> int:
    """Return the number of key heads of a state, by the size of W_k, where it is fewer; else 0."""
    slots = bound.slots_for(heads) if isinstance(bound, Fitted) else ()
    count = {
        part: sum(
            state[s.path].size
            for s in slots
            if s.path in state and s.parts == (part,) and not s.bias
        )
        for part in ("q", "k")
    }
    kv_heads, rest = divmod(count["k"] * heads, count["q"] or 1)
    return 0 if rest or not kv_heads or heads % kv_heads else kv_heads % heads


def _repeated(array: Array, kv_heads: int, heads: int) -> Array:
    """Return rows of all heads from those of the first head of each group, the others unset."""
    groups = array.reshape(kv_heads, heads // kv_heads, -1, *array.shape[1:])
    return np.repeat(groups[:, :1], heads // kv_heads, axis=1).reshape(array.shape)


def narrow_offer(
    bound: Convention, own: OwnWeights, batch_first: bool | None = None, *, complete: bool = False
) -> None:
    """Leave of an offer what serves these weights.

    ``complete``: the biases are all that the class has, and one that it lacks is 0; and so are the
    key heads.

    Raises
    ------
    TargetError
        What they need is not offered.

    """
    heads, width = own.sizes["heads_count"], own.sizes["head_dim"]
    size = ("ones",) if width == 1 else ("medium", "ones", "equal" if heads == width else "small")
    kv_heads = "fewer" if own.sizes["kv_heads_count"] else "equal"
    wanted: dict[str, tuple[str, ...]] = {"form": ("mha",), "kv_heads": (kv_heads,)}
    wanted |= {axis: (value,) for axis, value in own.features.items()}
    wanted |= {"heads": ("one" if heads == 1 else "many",), "regime": REGIMES, "size": size}
    if own.features["projection"] == "separate":
        wanted["inputs"] = ("distinct",)
    held = {"bias": ("yes",), "kv_heads": (kv_heads,)}
    if batch_first is not None:
        wanted["layout"] = ("batch_first" if batch_first else "sequence_first", "unbatched")
    for axis, values in wanted.items():
        offered = bound.offer[axis] + (held.get(axis, ()) if complete else ())
        left = tuple(value for value in dict.fromkeys(offered) if value in values)
        if not left:
            raise TargetError(
                f"got weights of {axis}={values[0]}, but {bound.name} is judged only with "
                f"{axis}={' or '.join(bound.offer[axis])}; give it one of these."
            )
        bound.offer = bound.offer | {axis: left}
