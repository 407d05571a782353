"""Values that the parameters of a call get, by what each is for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mha_parity.targets.calls.mask_format import MaskHolder
from mha_parity.targets.interpretations.empty_past import OBJECT, empty_state
from mha_parity.targets.interpretations.identity_rotations import PREFIX, rotation_by_nothing
from mha_parity.targets.interpretations.placeholder_arguments import filler_mask
from mha_parity.targets.layers.config_objects import RecordingConfig
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.tile_names import TILE, tile_or_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.targets.interpretations.packed_inputs import PackedInput
    from mha_parity.targets.layers.weights import WeightArgument
    from mha_parity.targets.static.argument_meanings import LayerSizes

CONFIGURATION = "configuration"  # what an object with the sizes of a layer by name means
KV_HEADS = ("kv_heads",)


@dataclass(frozen=True, slots=True)
class ParameterAssignment:
    """Values that the parameters of a call get: inputs, weights, the number of heads, sizes, None.

    ``lengths`` get that of the queries, a window twice all keys, and ``ones`` 1, as a map's width.
    ``pairs`` are those among them that are annotated as a tuple, of the keys on both sides.
    ``tiles`` get ``tile``, or twice all keys where that is 0.
    ``always`` are masks that default to None, which no call may be without.
    ``packed`` is the parameter that gets several of the inputs, if one does. ``rotations`` are
    tables of positions, with the form of the rotation by 0 that each gets, and ``states`` keep the
    keys and values of earlier calls: each gets an empty one of its form.
    """

    inputs: tuple[tuple[str, str], ...]
    weights: tuple[tuple[str, WeightArgument], ...] = ()
    heads: str = ""
    none: tuple[str, ...] = ()
    filler: str = "none"
    lengths: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    ones: tuple[str, ...] = ()
    tiles: tuple[str, ...] = ()
    tile: int = TILE
    always: tuple[str, ...] = ()
    sizes: tuple[tuple[str, str], ...] = ()
    packed: PackedInput | None = None
    rotations: tuple[tuple[str, str], ...] = ()
    states: tuple[tuple[str, str], ...] = ()

    @property
    def single_weights(self) -> tuple[tuple[str, WeightArgument], ...]:
        """The weights by name, those in a dictionary one by one."""
        held = (given.entries or ((name, given),) for name, given in self.weights)
        return tuple(each for entries in held for each in entries)

    @property
    def filled(self) -> frozenset[str]:
        """The names of the parameters that inputs, weights and sizes take."""
        tables = (*self.rotations, *self.states)
        named = (n for n, _ in (*self.inputs, *self.weights, *self.sizes, *tables))
        return frozenset((*named, self.heads, *self.lengths, *self.ones, *self.tiles))

    @property
    def has_many_heads(self) -> bool:
        """Whether the number of heads is given, alone or among weights, or their axis shows it."""
        given = (given for _, given in (*self.weights, *self.single_weights))
        configured = any(meaning == CONFIGURATION for _, meaning in self.sizes)
        return (
            bool(self.heads)
            or configured
            or any(each.container == "list" or "h" in each.axes or each.sizes for each in given)
        )

    def sized(self, sizes: LayerSizes) -> dict[str, Any]:
        """Return what the parameters get that want sizes, or an object that has them by name."""
        return {
            name: RecordingConfig(sizes) if meaning == CONFIGURATION else sizes.value(meaning)
            for name, meaning in self.sizes
        }

    def without_effect(
        self, case: Case, dtype: Any, array: Callable[[str, Array], Any]
    ) -> dict[str, Any]:
        """Return masks that hide nothing, rotations by 0 and states of no rows.

        ``array`` makes an array of the target's library.
        """
        sizes = {"N": case.batch, "H": case.heads_count, "L": case.queries, "S": case.keys}
        values = dict[str, Any]()
        for name in self.none:
            mask = filler_mask(self.filler, sizes, dtype)
            given = None if mask is None else array(name, mask)
            values[name] = MaskHolder(given) if self.filler.startswith("object") else given
        for name, form in self.rotations:
            values[name] = rotation_by_nothing(form, case, dtype, partial(array, name))
        for name, form in self.states:
            if form != OBJECT:
                values[name] = empty_state(form, case, dtype, partial(array, name))
        return values

    def of_lengths(self, queries: int, keys: int) -> dict[str, int | tuple[int, int]]:
        """Return what the parameters in ``lengths``, ``ones`` and ``tiles`` get."""
        most = 2 * max(queries, keys)  # half of it may lie on either side
        given: dict[str, int | tuple[int, int]] = {
            name: most if names.WINDOW.search(name.lower()) else queries for name in self.lengths
        }
        given |= dict.fromkeys(self.pairs, (most, most))
        least = min(queries, keys)
        tiles = {name: tile_or_count(name, self.tile, most, least) for name in self.tiles}
        return {**given, **dict.fromkeys(self.ones, 1), **tiles}

    @property
    def turns_pairs(self) -> bool:
        """Whether a table of positions may turn pairs of channels; rows of the width E do not."""
        forms = [form for _, form in self.rotations if not form.startswith(PREFIX)]
        return any(not form.endswith("E") for form in forms)

    @property
    def kv_heads(self) -> tuple[str, ...]:
        """The parameters of a call that get the number of key heads."""
        return tuple(name for name, meaning in self.sizes if (meaning,) == KV_HEADS)

    @property
    def rows(self) -> tuple[str, ...]:
        """Which of query, key and value are arguments of their own."""
        return tuple(dict.fromkeys(role for _, role in self.inputs))

    @property
    def names_keys(self) -> bool:
        """Whether keys and values are arguments of their own, and are called so."""
        held = {role: name for name, role in self.inputs}
        called = [names.parts(held.get(role, "")) for role in ("key", "value")]
        return called == [("k",), ("v",)]
