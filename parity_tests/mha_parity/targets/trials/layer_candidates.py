"""The interpretations of a layer that names leave open, likeliest first."""

from __future__ import annotations

import itertools
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.interpretations import roles as call_roles
from mha_parity.targets.interpretations.interpretation import (
    OF_CONVOLUTIONS,
    OF_HEADS,
    OF_ONE_INPUT,
    OWN_CHANNELS,
    Interpretation,
)
from mha_parity.targets.interpretations.layouts import layouts_of
from mha_parity.targets.interpretations.packed_roles import in_containers, packed
from mha_parity.targets.interpretations.try_interpretations import SMALL, small_case
from mha_parity.targets.layers import layer_arrays, weights
from mha_parity.targets.layers.build_layer import is_module
from mha_parity.targets.layers.config_objects import UNKNOWN_NAME, RecordingConfig
from mha_parity.targets.layers.inner_attention import all_constructions, refuse_undecided
from mha_parity.targets.layers.module_constants import globals_read
from mha_parity.targets.layers.weight_assignment import (
    around_torchs,
    further_attentions,
    rows_prefix,
    sorted_by_name,
    weightless_norms,
)
from mha_parity.targets.libraries.first_call_weights import HoldsParameters
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.argument_meanings import LayerSizes
from mha_parity.targets.static.code_syntax import strings_compared
from mha_parity.targets.static.signatures import forward
from mha_parity.targets.trials.unread_parameters import spare_parameters, unread_parameters

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.case import Case
    from mha_parity.targets.layers.constructor_arguments import Construction
    from mha_parity.targets.layers.weight_assignment import SortedLeaves

# How the heads of a layer differ from torch's, by the sizes of its weights.
FULL_WIDTH, ONE_KV_HEAD = "each as wide as the input", "one of keys and values for all"
LISTS = frozenset({"ModuleList", "ModuleDict", "Sequential"})  # hold the heads of an attention
# Arrangements in which the input may be added to the output.
ADDED_TO = frozenset({"rows", *OF_CONVOLUTIONS})


@dataclass(eq=False)
class Layers:
    """The candidates of a class, and what was found to be in the way of them.

    ``answered`` is set by whoever tries them, when a call went through.
    """

    kind: type
    new: Callable[..., Any]
    answered: bool = False
    offenders: tuple[str, ...] = ()
    inner: str = ""  # the part of it that is an attention, where offenders lie outside of that
    is_built: bool = False
    obstacles: list[str] = field(default_factory=list)
    small: Case = field(default_factory=small_case)

    def __iter__(self) -> Iterator[Interpretation]:
        """Yield how the class may be built, filled and called."""
        for how in all_constructions(self.kind, call_parameters.of_callable(self.kind)):
            sizes = LayerSizes(self.small.embed_dim, self.small.heads_count)
            if self.is_built and how.last_resort and not how.positions_left_out:
                continue
            try:
                construction, layer = self._built(how, sizes)
            except CandidateError as error:
                made = f"{self.kind.__name__}({how.text(sizes)})"
                size = f"width {sizes.width} with {sizes.heads} heads"
                self.obstacles.append(f"building one of {size} {error} by {made}")
                self.offenders = self.offenders or call_roles.of_positions(
                    call_parameters.of_callable(self.kind), "constructor"
                )
                continue
            yield from self._of(construction, layer)
            if self._is_of_one_head(construction, layer):
                yield from self._of_one_head(construction, layer)

    def _built(self, how: Construction, sizes: LayerSizes) -> tuple[Construction, Any]:
        """Return a layer and how it was built.

        Where its configuration is asked for what is unknown: with a string that the code compares
        that with, or with configurations in its own.
        """
        try:
            return how, self.new(how, sizes)
        except CandidateError as error:
            unknown = re.search(rf"'(\w+)', {UNKNOWN_NAME}", str(error))
            if unknown is None:
                raise
            said = [] if how.nested else strings_compared(self.kind).get(unknown[1], ())
            others = [replace(how, words=(*how.words, (unknown[1], w)), asked={}) for w in said]
            for other in others:
                with suppress(CandidateError):  # the first error names what is unknown
                    return self._built(other, sizes)
            nested = replace(how, nested=True, asked={})
            if not how.nested:
                with suppress(CandidateError):
                    return nested, self.new(nested, sizes)
            raise

    def asks_for(self, construction: Construction, *wanted: str) -> bool:
        """Return whether a layer reads a number of one of these meanings from its configuration."""
        sizes = LayerSizes(self.small.embed_dim, self.small.heads_count)
        config = construction.arguments(sizes).get(construction.config)
        if not isinstance(config, RecordingConfig):
            return True
        self.new(construction, sizes, **{construction.config: config})
        return bool({*wanted} & config.meanings())

    def refuse_undecided(self, name: str) -> None:
        """Refuse a class of which nothing fits, where it may be built with several attentions."""
        refuse_undecided(name, self.kind)

    def _is_of_one_head(self, construction: Construction, layer: Any) -> bool:
        """Return whether a constructor, or its configuration, sets the width of a head alone."""
        if not construction.config:
            return construction.has("head_dim") and not construction.has("heads")
        kept = sorted_by_name(layer_arrays.leaves(layer))
        return bool(kept.weights) and not self._slots(kept, self.small.heads_count)[1]

    def _of_one_head(self, construction: Construction, several: Any) -> Iterator[Interpretation]:
        """Yield readings as one head of a layer that takes the width of a head, not how many.

        One that holds more where it is built for ``several`` heads has as many.
        """
        try:
            layer = self.new(construction, LayerSizes(self.small.embed_dim, 1))
        except CandidateError:
            return
        kept = (layer_arrays.leaves(each) for each in (layer, several))
        one, more = (sum(math.prod(leaf.shape) for leaf in leaves) for leaves in kept)
        if more <= one:
            yield from self._of(construction, layer, one_head=True)

    def _of(
        self, construction: Construction, layer: Any, *, one_head: bool = False
    ) -> Iterator[Interpretation]:
        self.is_built = True
        named = call_parameters.of_callable(forward(layer))
        around, leaves = around_torchs(layer_arrays.leaves(layer))
        kept = _sorted(layer, leaves)
        with_heads = not construction.has("heads", "head_dim")
        in_call = any(r.heads for r in call_roles.of_layer(named, with_heads=with_heads))
        by_name = construction.has("heads", "head_dim") or bool(globals_read(self.kind)) or in_call
        by_name = (by_name or self.small is not SMALL) and not one_head
        number = self._heads(one_head=one_head, known=by_name or not kept.weights)
        unread: frozenset[str] = frozenset()
        if kept.others or not any(self._slots(kept, heads)[1] for heads in number):
            unread = unread_parameters(layer, LayerSizes(self.small.embed_dim, number[0]))
            unread = spare_parameters(unread, leaves)
            leaves = [leaf for leaf in leaves if leaf.path not in unread]
            kept = _sorted(layer, leaves)
        for heads in number:
            projected = any(parts != ("out",) for _, parts, _ in kept.weights)
            kind, found = self._slots(kept, heads)
            self._find_offenders(kept, named, heads, fits=bool(found))
            if self.offenders or not found:
                self._find_inner(layer, leaves, heads)
            norms = tuple(dict.fromkeys(leaf.path.rpartition(".")[0] for leaf in kept.norms))
            # A norm without weights is left where the layer is an attention with it.
            weightless = weightless_norms(layer) if projected else ()
            taken_out = (norms, (*norms, *weightless)) if weightless else (norms,)
            rest = [
                *call_roles.with_optional_masks(named),
                *call_roles.with_random_keys(named),
                *call_roles.with_optional_rotations(named),
                *(each for roles in call_roles.of_layer(named) for each in in_containers(roles)),
                *(call_roles.of_layer(named) if in_call else ()),
            ]  # tried where no other call is answered
            answering: list[Any] = []  # the roles by which calls are answered
            for roles, (layout, arrangement), slots in itertools.product(
                [*call_roles.of_layer(named, with_heads=with_heads), *rest],
                self._layouts(kept, projected=projected, full_width=kind == FULL_WIDTH),
                found,
            ):
                spare = roles in rest and roles not in answering
                if spare if answering else arrangement == "first_row":
                    continue
                if arrangement in OF_ONE_INPUT and len(roles.inputs) > 1:
                    continue
                many = by_name and heads > 1
                if not projected:
                    by_rows = (construction.has("heads") or in_call) and arrangement == "rows"
                    many = arrangement in OF_HEADS or by_rows
                how = Interpretation(
                    roles, layout, arrangement, construction, slots, norms, around, many_heads=many,
                    full_width=kind == FULL_WIDTH, convolved=kept.convolves,
                    one_kv_head=kind == ONE_KV_HEAD,
                    projection=kind if kind in OWN_CHANNELS else "packed",
                    unread=tuple(sorted(unread)),
                )  # fmt: skip
                for how in (replace(how, norms=taken) for taken in taken_out):
                    self.answered = False
                    yield how
                    answering += [roles] * self.answered
                    yield from self._near(how, projected=projected)
            if not kept.weights:
                yield from self._of_packed(named, construction, heads)

    def _heads(self, *, one_head: bool, known: bool) -> tuple[int, ...]:
        """Return how many heads are tried: a constructor without any has one, or its own number."""
        if one_head:
            return (1,)
        return (self.small.heads_count,) if known else (self.small.heads_count, 1)

    def _layouts(
        self, kept: SortedLeaves, *, projected: bool, full_width: bool
    ) -> list[tuple[str, str]]:
        """Return the layouts and arrangements that a layer of these weights may take."""
        by_width = sorted(
            layouts_of(self.kind), key=lambda each: (each[1] in OF_CONVOLUTIONS) != kept.convolves
        )
        return [
            (layout, arrangement)
            for layout, arrangement in by_width
            if not (arrangement in OF_HEADS and kept.weights)
            and not (arrangement in OF_CONVOLUTIONS and not projected)
            and not (full_width and arrangement != "rows")
            and not (arrangement == "first_row" and not projected)
        ]

    def _of_packed(
        self, named: Sequence[inspect.Parameter], construction: Construction, heads: int
    ) -> Iterator[Interpretation]:
        """Yield readings of a layer without weights whose last input holds several."""
        calls = itertools.product(call_roles.of_layer(named), layouts_of(self.kind))
        for roles, (layout, arrangement) in calls:
            # Judged as a single head, a layer that forgets its number of heads would be right.
            many = arrangement in OF_HEADS or (construction.has("heads") and heads > 1)
            for each in packed(roles, layout, arrangement, many_heads=many):
                yield Interpretation(each, layout, arrangement, construction, many_heads=many)

    def _near(self, how: Interpretation, *, projected: bool) -> Iterator[Interpretation]:
        """Yield readings that differ in one point from the one that was tried last."""
        layout, arrangement = how.layout, how.arrangement
        if not self.answered and (layout, arrangement) == ("batch_first", "rows"):
            yield from _of_one_length(how)
        single = layout == "unbatched" and arrangement == "rows"
        if self.answered and (single or (layout == "batch_first" and arrangement in ADDED_TO)):
            yield replace(how, residual=True)
        if how.many_heads and not (projected or how.roles.heads) and arrangement == "rows":
            yield replace(how, many_heads=False)

    def _slots(self, kept: SortedLeaves, heads: int) -> tuple[str, list[tuple[weights.Slot, ...]]]:
        """Return how heads differ from torch's, "" where they do not, and the weights' slots."""
        if not kept.weights:
            return "", [()]
        width = self.small.embed_dim
        kinds = {
            "": {"d": width // heads},
            FULL_WIDTH: {"d": width},
            ONE_KV_HEAD: {"d": width // heads, "g": 1},
            **{
                each: {"d": width // heads} | weights.own_channels(each, width // heads)
                for each in OWN_CHANNELS
            },
        }
        for kind, sizes in kinds.items():
            if found := weights.candidate_slots(kept, {"h": heads, "e": width, **sizes}):
                return kind if heads > 1 else "", found
        return "", []

    def _find_inner(self, layer: Any, leaves: Sequence[layer_arrays.Leaf], heads: int) -> None:
        """Name the part of a module that alone fits, where the module has offenders besides."""
        if not is_module(layer):
            return
        found = rows_prefix(leaves)
        while found and type(layer.get_submodule(found)).__name__ in LISTS:
            found = found.rpartition(".")[0]
        if not found:
            return
        inside = [leaf for leaf in leaves if leaf.path.startswith(f"{found}.")]
        kept = sorted_by_name(inside)
        outside = {leaf.path.rpartition(".")[0]: leaf for leaf in leaves if leaf not in inside}
        left = tuple(path for path, leaf in outside.items() if "norm" not in leaf.owner.lower())
        if left and not kept.others and self._slots(kept, heads)[1]:
            self.offenders = left
            self.inner = f"`{found}`, of the class {type(layer.get_submodule(found)).__name__}"

    def _find_offenders(
        self,
        kept: SortedLeaves,
        named: Sequence[inspect.Parameter],
        heads: int,
        *,
        fits: bool,
    ) -> None:
        """Keep what has no counterpart, and why arrays are not those of an attention."""
        others = (leaf.path for leaf in kept.others)
        self.offenders = (
            *others,
            *further_attentions(kept),
            *call_roles.of_positions(named, "call"),
        )
        if not fits:
            unfit = weights.unfit(kept, {"h": heads, "d": self.small.embed_dim // heads})
            shown = ", ".join(f"{leaf.path} {leaf.shape}" for leaf in unfit)
            verb = "does" if len(unfit) == 1 else "do"
            size = f"a width of {self.small.embed_dim} in {self.small.heads_count} heads"
            self.obstacles.insert(0, f"it keeps {shown}, which {verb} not fit {size}")


def _sorted(layer: Any, found: Sequence[layer_arrays.Leaf]) -> SortedLeaves:
    """Return the arrays of a layer by what they hold; norms that cannot be taken out as others."""
    kept = sorted_by_name(found).in_orders_of(type(layer))
    whole = not isinstance(layer, HoldsParameters) or layer.replaces_modules
    parts = tuple(leaf for leaf in kept.norms if whole and "." in leaf.path)
    rest = (leaf for leaf in kept.norms if leaf not in parts)
    return replace(kept, norms=parts, others=(*kept.others, *rest))


def _of_one_length(how: Interpretation) -> Iterator[Interpretation]:
    """Yield readings as a layer that takes the length alone that it is built for, or one more.

    Vision layers are built for a number of patches, and called with one more token.
    """
    construction = how.construction
    if construction is not None and construction.has("length"):
        for more in (0, 1):
            yield replace(how, construction=replace(construction, longer_by=more))
