"""Weights as expressions of an adapter's call, in the layout of the target's arrays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from mha_parity.targets.layers import weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.targets.interpretations.packed_inputs import PackedInput
    from mha_parity.targets.layers.weights import Slot, WeightArgument

EXTENTS = {"h": "call.num_heads", "d": "call.head_dim", "e": "call.embed_dim"}
NUMBERS = {"heads": "call.num_heads", "head_dim": "call.head_dim"}
PLAIN = {("hd", "e"): "{}", ("e", "hd"): "{}.T", ("hd",): "{}", ("e",): "{}"}
PACKED = {("phd", "e"): "{}", ("e", "phd"): "{}.T", ("phd",): "{}"}


class Expressions:
    """Expressions in one library."""

    def __init__(self, library: str) -> None:
        module = {"torch": "torch", "jax": "jnp"}.get(library, "np")
        self.stack = f"{module}.stack"
        self._join = f"{module}.{'cat' if library == 'torch' else 'concatenate'}"
        self._permute = "permute" if library == "torch" else "transpose"

    def assignments(self, slots: Sequence[Slot], form: str) -> Iterator[str]:
        """Yield lines that put every slot's array at its path; ``form`` takes path and array."""
        for slot in slots:
            if slot.head is None:
                yield "    " + form.format(json.dumps(slot.path), self.whole(slot))
        by_head = [slot for slot in slots if slot.head in {0, 1}]
        if not by_head:
            return
        yield "    for head in range(call.num_heads):"
        yield "        rows = slice(head * call.head_dim, (head + 1) * call.head_dim)"
        for first in (slot for slot in by_head if slot.head == 0):
            paths = [s.path for s in by_head if s.head == 1 and same_place(s, first)]
            path = (
                f"f{json.dumps(_counted(first.path, paths[0]))}"
                if paths
                else json.dumps(first.path)
            )
            yield "        " + form.format(path, self.of_head(first))

    def whole(self, slot: Slot) -> str:
        """Return the expression of an array of all heads."""
        named = [_named(part, bias=slot.bias) for part in slot.parts]
        axes = tuple("e" if slot.parts == ("out",) and slot.bias else each for each in slot.axes)
        if len(named) == 1 and axes in PLAIN:
            transposed = slot.parts == ("out",) and not slot.bias
            return PLAIN[axes[::-1] if transposed else axes].format(named[0])
        if axes in PACKED:
            return PACKED[axes].format(f"{self._join}(({', '.join(named)}))")
        own = "ehd" if slot.parts == ("out",) else ("hd" if slot.bias else "hde")
        source = "p" + own
        sizes = [str(len(named)) if axis == "p" else EXTENTS[axis] for axis in source]
        order = "".join(axes)
        missing = [axis for axis in source if axis not in order]
        moved = ", ".join(str(source.index(axis)) for axis in (*missing, *order))
        ends = ", ".join(_extent(group, len(named)) for group in axes)
        stacked = f"{self.stack}(({', '.join(named)},))"
        return f"{stacked}.reshape({', '.join(sizes)}).{self._permute}({moved}).reshape({ends})"

    def of_head(self, slot: Slot) -> str:
        """Return the expression of an array of one head, whose rows are ``rows``."""
        if slot.parts == ("out",):
            transposed = slot.axes[0] != "e"
            return f"call.out_proj_weight[:, rows]{'.T' if transposed else ''}"
        named = [f"{_named(part, bias=slot.bias)}[rows]" for part in slot.parts]
        whole = named[0] if len(named) == 1 else f"{self._join}(({', '.join(named)}))"
        return f"{whole}.T" if slot.axes[0] == "e" else whole

    def of_argument(self, given: WeightArgument) -> str:
        """Return the expression of what a function takes."""
        if given.container == "params":
            held = [f"{json.dumps(key)}: {self.of_argument(each)}" for key, each in given.entries]
            held += [f"{json.dumps(key)}: {NUMBERS[meaning]}" for key, meaning in given.sizes]
            whole = f"{{{', '.join(held)}}}"
            return f"{{{json.dumps(given.within)}: {whole}}}" if given.within else whole
        if given.made_by is not None:
            held = [f"{name}={self.of_argument(each)}" for name, each in given.entries]
            return f"{given.made_by.__name__}({', '.join(held)})"
        if given.container == "tuple":
            return f"({', '.join(self.of_argument(each) for _, each in given.entries)},)"
        slot = weights.Slot("", given.parts, given.axes, given.bias)
        if given.container == "list":
            rows = "head * call.head_dim : (head + 1) * call.head_dim"
            one = self.of_head(slot).replace("rows", rows)
            return f"[{one} for head in range(call.num_heads)]"
        if given.holds_bias:
            weight, bias = self.whole(slot), self.whole(given.bias_slot)
            w, b = given.leaves
            pair = given.container == "pair"
            return f"({weight}, {bias})" if pair else f'{{"{w}": {weight}, "{b}": {bias}}}'
        return self.whole(slot)

    def of_inputs(self, given: PackedInput, *, batched: bool) -> str:
        """Return the expression of an array that holds several inputs; a sample's without batch."""
        call, axes = ("call.", "pnlhd") if batched else ("", "plhd")
        first = f"{call}{given.roles[0]}"
        heads = "call.num_heads" if "q" in given.parts else "call.num_kv_heads"
        rows = f"*{first}.shape[:{2 if batched else 1}]"
        width = f"{first}.shape[-1]"
        sizes = {
            "p": str(len(given.parts)), "n": f"{first}.shape[0]", "h": heads,
            "l": f"{first}.shape[{int(batched)}]", "d": f"{width} // {heads}",
        }  # fmt: skip
        held = ", ".join(f"{call}{role}" for role in given.roles)
        split = f"{self.stack}(({held})).reshape({sizes['p']}, {rows}, {heads}, -1)"
        order = ", ".join(str(axes.index(axis)) for axis in "".join(given.axes))
        ends = ", ".join(_product([sizes[axis] for axis in group]) for group in given.axes)
        return f"{split}.{self._permute}({order}).reshape({ends})"


def _product(sizes: Sequence[str]) -> str:
    """Return the product of sizes; the width of a head is a quotient."""
    if len(sizes) == 1:
        return sizes[0]
    return " * ".join(f"({each})" if "//" in each else each for each in sizes)


def same_place(one: Slot, other: Slot) -> bool:
    """Return whether two arrays are the same of two heads."""
    plain = (re.sub(r"\d+", "", each.path) for each in (one, other))
    return (one.parts, one.bias) == (other.parts, other.bias) and len(set(plain)) == 1


def _counted(first: str, second: str) -> str:
    """Return a path with {head} where the paths of heads 0 and 1 differ."""
    pairs = zip(first.split("."), second.split("."), strict=True)
    return ".".join(a if a == b else re.sub(r"\d+", "{head}", a, count=1) for a, b in pairs)


def _extent(group: str, parts: int) -> str:
    sizes = [str(parts) if axis == "p" else EXTENTS[axis] for axis in group]
    if not group:
        return "1"
    return "call.embed_dim" if group == "hd" else " * ".join(sizes)


def _named(part: str, *, bias: bool) -> str:
    return f"call.{part}_proj_{'bias' if bias else 'weight'}"
