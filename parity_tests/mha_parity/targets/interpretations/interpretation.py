"""An interpretation: everything that has to be known to call a target with torch's arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.core.features import IN_EVERY_CALL
from mha_parity.targets.calls.problem_weights import bias_values, unbiased
from mha_parity.targets.interpretations.empty_past import state_text
from mha_parity.targets.interpretations.identity_rotations import rotation_text
from mha_parity.targets.layers.weights import width_first
from mha_parity.targets.static import projection_names as names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.targets.interpretations.parameter_assignment import ParameterAssignment
    from mha_parity.targets.layers.constructor_arguments import Construction
    from mha_parity.targets.layers.weights import Slot

FIRST_ROW = (
    "(N, L, E), of which the first row alone is a query, so that each was asked as the first of a "
    "sample of its own"
)
# Tried behind all else: with one head less it is an array of as many samples.
HEADS_OF_ONE = ("unbatched", "heads")
# How the rows of inputs and outputs are given, and what a sentence calls it.
LAYOUTS = {
    ("batch_first", "rows"): "(N, L, E)",
    ("unbatched", "rows"): "(L, E)",
    ("sequence_first", "rows"): "(L, N, E)",
    ("batch_first", "heads"): "(N, H, L, D)",
    ("batch_first", "rows_of_heads"): "(N, L, H, D)",
    ("batch_first", "channels_of_heads"): "(N, D, H, L)",
    ("batch_first", "heads_first"): "(H, N, L, D)",
    ("batch_first", "grid"): "(N, height, width, E)",
    ("batch_first", "stacked"): "(N, rows, L, E)",
    ("batch_first", "second_axis"): "(N, L, columns, E)",
    ("sequence_first", "axial"): "(L, columns, N, E)",
    ("unbatched", "columns"): "(E, L)",
    ("batch_first", "map"): "(N, E, height, width)",
    ("batch_first", "channels"): "(N, E, L)",
    ("batch_first", "first_row"): FIRST_ROW,
    ("sequence_first", "rows_of_heads"): "(L, N, H, D)",
    ("unbatched", "rows_of_heads"): "(L, H, D)",
    HEADS_OF_ONE: "(H, L, D)",
}
# Of heads, only where nothing projects: which axes of (N, L, H, D) change their places, in order.
SWAPPED: dict[str, tuple[tuple[int, int], ...]] = {
    "heads": ((1, 2),), "rows_of_heads": (), "channels_of_heads": ((1, 3),),
    "heads_first": ((1, 2), (0, 1)),
}  # fmt: skip
OF_HEADS = frozenset(SWAPPED)
ALONG_ONE_AXIS = ("stacked", "second_axis")  # of the positions that a grid has
OWN_CHANNELS = {
    "by_head": "each head projects its own D channels, by weights of its own",
    "shared": "each head projects its own D channels, all by the same weights",
}
OF_CONVOLUTIONS = frozenset({"map", "channels"})  # only where convolutions of width 1 project
# Along the rows of a table, and of a first row to all: self-attention.
OF_ONE_INPUT = frozenset({"axial", "first_row"})
_APPLIED = {"e": "applied as X @ W", "h": "with an axis of heads"}
_LIES = {
    "hpd": "head by head", "hdp": "column by column", "dph": "by columns, parts and heads",
    "dhp": "by columns, heads and parts",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interpretation:
    """How a target is built, where its weights live, what its parameters get and return.

    ``norms`` are LayerNorms that are taken out, ``around`` are Linears around an attention of torch
    that are, too; ``residual``: the input is added to the output,
    ``full_width``: each head is as wide as the input, ``convolved``: convolutions project,
    ``one_kv_head``: all heads of queries share one head of keys and values, ``projection``: the
    value of this axis of a case, ``unread``: the parameters that no call reads.
    """

    roles: ParameterAssignment
    layout: str
    arrangement: str
    construction: Construction | None = None
    slots: tuple[Slot, ...] = ()
    norms: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    residual: bool = False
    many_heads: bool = True
    full_width: bool = False
    convolved: bool = False
    one_kv_head: bool = False
    projection: str = "packed"
    unread: tuple[str, ...] = ()

    @property
    def parts(self) -> frozenset[str]:
        """Which of q, k, v and out have weights; none where the output alone has: the identity."""
        held = [slot.parts for slot in self.slots if not slot.bias]
        held += [given.parts for _, given in self.roles.single_weights if not given.bias]
        found = frozenset(part for parts in held for part in parts)
        return found if found & set(names.ROWS) else frozenset()

    @property
    def projection_of_case(self) -> str:
        """The feature of the cases that it is asked: how q, k and v come of the inputs."""
        if self.parts:
            return self.projection
        return "one_array" if self.roles.rows == ("query",) else "none"

    @property
    def is_usual(self) -> bool:
        """Whether inputs lie as most have them; otherwise a wrong answer may be a wrong call."""
        return self.arrangement == "rows"

    def swaps(self, layout: str) -> tuple[tuple[int, int], ...]:
        """Return which axes of (N, L, H, D) change their places, in order, in a case's layout.

        Of a single sample, whose axis is gone then, heads are first in both orders.
        """
        single = layout == "unbatched" and self.arrangement == "heads_first"
        return SWAPPED.get("heads" if single else self.arrangement, ())

    @property
    def of_heads(self) -> bool:
        """Whether inputs have an axis of heads."""
        return self.arrangement in OF_HEADS

    @property
    def may_be_one_query(self) -> bool:
        """Whether the rows of the first input may be queries of a sample each, and not of one."""
        return self.layout == "unbatched" and len(self.roles.rows) > 1

    @property
    def heads(self) -> tuple[str, ...]:
        """How many heads it is judged with; a single one shares its keys with no other."""
        if not self.many_heads:
            return ("one",)
        return ("many",) if self.one_kv_head else ("one", "many")

    @property
    def unnamed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The arrays that are not called after the parts they are taken for, and these parts.

        A layer's array that is left over is the output's, whatever its name, and numbers are names
        where a call takes query, key and value. Where others' say nothing, the target may compute
        something else by right: then it is not judged unless exact.
        """
        kept = [slot for slot in self.slots if not slot.bias and slot.parts != ("out",)]
        if len(self.roles.rows) == len(names.ROWS):
            kept = [slot for slot in kept if not re.search(r"\.\d+(\.|$)", slot.path)]
        called = [(slot.path, slot.parts) for slot in kept]
        called += [(n, given.parts) for n, given in self.roles.single_weights if not given.bias]
        return tuple(each for each in called if not names.parts(each[0]))

    @property
    def width_first(self) -> tuple[str, ...]:
        """The weights of which head h has the rows or columns h, h + H, h + 2H and so on."""
        return width_first(self.slots)

    @property
    def biased(self) -> frozenset[str]:
        """Which of q, k, v and out have biases."""
        held = [slot.parts for slot in self.slots if slot.bias]
        held += [
            given.parts for _, given in self.roles.single_weights if given.bias or given.holds_bias
        ]
        return frozenset(part for parts in held for part in parts)

    @property
    def unbiased(self) -> str:
        """The first of q, v and out that has a weight and no bias; "" if there is none."""
        return unbiased(self.biased, self.parts)

    @property
    def bias_values(self) -> tuple[str, ...]:
        """Values offered on the axis of biases."""
        return bias_values(self.biased, self.parts)

    def __str__(self) -> str:
        """Say it in one line."""
        said = [self._weights(), LAYOUTS[self.layout, self.arrangement]]
        packed = self.roles.packed
        single = [each for each in self.roles.inputs if not packed or each[0] != packed.parameter]
        inputs = [f"`{name}` the {role}" for name, role in single]
        inputs += [str(packed)] if packed else []
        if packed or len(inputs) > 1:
            said.append(", ".join(inputs))
        if self.construction is not None:
            said += self.construction.handed_over
        if self.full_width:
            said.append("each head as wide as the input, and 0 where torch's narrower ones are not")
        if self.roles.always:
            names_of = ", ".join(f"`{name}`" for name in self.roles.always)
            said.append(f"{names_of} passed {IN_EVERY_CALL}")
        said += [f"`{name}` {rotation_text(form)}" for name, form in self.roles.rotations]
        said += [f"`{name}` {state_text(form)}" for name, form in self.roles.states]
        if self.one_kv_head:
            said.append("one head of keys and values for all heads of queries")
        if self.projection in OWN_CHANNELS:
            said.append(OWN_CHANNELS[self.projection])
        if out := (*self.norms, *self.around):
            said.append(f"{', '.join(f'`{path}`' for path in out)} taken out")
        if self.unread:
            said.append(f"no call reads {', '.join(f'`{path}`' for path in _modules(self.unread))}")
        if self.residual:
            said.append("the input that is added to the output taken off")
        return "; ".join(each for each in said if each)

    def _weights(self) -> str:
        held = [slot.path for slot in self.slots if not slot.bias and not slot.head]
        held += [name for name, given in self.roles.single_weights if not given.bias]
        if not held:
            return "no projection weights"
        axes = [s.axes for s in self.slots if not s.bias and s.parts != ("out",)]
        axes += [g.axes for _, g in self.roles.single_weights if not g.bias and g.parts != ("out",)]
        linear = all(name.endswith(".weight") for name in held)
        linear_as = "as convolutions of width 1" if self.convolved else "as Linears"
        last = linear_as if linear else "applied as X @ W.T"
        how = next((_APPLIED[each[0]] for each in axes if each[0] in _APPLIED), last)
        lies = next((_LIES[a] for each in axes for a in each if a in _LIES), "")
        shown = ", ".join(name.removesuffix(".weight") for name in held)
        packed = (s for s in self.slots if len(s.parts) == 3 and s.parts != names.ROWS)
        order = next((s.parts for s in packed if names.parts(s.path) != s.parts), ())
        said = f"in the order {', '.join(order)}" if order else ""
        more = [each for each in (how, f"rows {lies}" if lies else "", said) if each]
        if not self.parts:
            return f"no projection weights but `{shown}`, filled with the identity"
        return f"{shown} {' and '.join(more)}".strip()


def _modules(paths: Sequence[str]) -> dict[str, None]:
    """Return the modules that hold parameters, each once, or the parameters that none holds."""
    return dict.fromkeys(path.rpartition(".")[0] or path for path in paths)
