"""Layers that are built by an interpretation, and filled with the weights of a problem."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import NOT_ASKED, CandidateError, without_place
from mha_parity.core.parameters import Parameter, Role, Status
from mha_parity.targets.calls import problem_weights
from mha_parity.targets.calls.error_origin import REFUSES
from mha_parity.targets.calls.problem_weights import KEY_PARTS
from mha_parity.targets.calls.target_call import Arguments, target_errors
from mha_parity.targets.calls.weights_from_torch import take_torch, torch_taker
from mha_parity.targets.convention_base.always_causal import decoder_switches
from mha_parity.targets.convention_base.instance_calls import InstanceCalls
from mha_parity.targets.interpretations import input_wider_than_heads
from mha_parity.targets.layers import full_width_heads, narrow_widths, weights
from mha_parity.targets.layers.build_layer import is_module, move, new_layer, replace_by_identity
from mha_parity.targets.layers.constructor_arguments import Construction
from mha_parity.targets.static.argument_meanings import LayerSizes, is_of_groups, meanings
from mha_parity.targets.static.builtin_windows import own_windows, set_windows
from mha_parity.targets.static.call_parameters import read_of_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.core.target_facts import TargetFacts
    from mha_parity.targets.calls.weights_from_torch import Take
    from mha_parity.targets.interpretations.interpretation import Interpretation

LAYOUT_SWITCH = "batch_first"  # torch's switch of the layout: samples before rows
ZERO_SWITCH = "add_zero_attn"  # torch's, of a further key and value of zeros
REFUSED = f"{NOT_ASKED}: its constructor refuses such sizes"


class InterpretedLayers(InstanceCalls):
    """A layer built as an interpretation says, and filled with a problem's weights."""

    how: Interpretation
    # By how much the last weights are larger, where the input is added to the output.
    above_residual = 1.0
    # A method of its own that takes over torch's weights: whether it is used, and whether it is
    # unknown where it puts them.
    uses_method = True
    converts = True
    # Whether a layer of one head, built with both widths, gets inputs that are wider than the head.
    widens = False
    # The constructor's switch that is on where keys are no queries; "" where none is needed.
    cross_switch = ""
    # What the constructor gets for the width of heads, where it is another in all calls.
    head_widths: Mapping[str, int] = MappingProxyType({})
    # Likewise for the width of the rows that keys and values are made of.
    context_widths: Mapping[str, int] = MappingProxyType({})
    # What raises without biases, and what it raises; "" where layers without them are judged.
    needs_biases = ""
    # The weights of the last call, as the target holds them.
    weight_leaves: list[tuple[weights.Slot, Any]]

    # The windows that a layer keeps as numbers of its own, where trials show what they mean.
    windows_of_itself: frozenset[str] = frozenset()

    def own_windows(self) -> tuple[Parameter, ...]:
        """Return the windows that a layer keeps as numbers of its own, whatever they mean."""
        made = self.how.construction
        if made is None or self.instance is not None or self.config_windows:
            return ()
        with suppress(CandidateError):
            layer = self.new(made, narrow_widths.SMALL)
            return own_windows(layer, self._named[0])
        return ()

    @property
    def kv_heads_parameter(self) -> tuple[str, ...]:
        """The constructor's parameter for the number of key heads, or of query heads for each."""
        return tuple(p.name for p in self._named[0] if is_of_groups(p.name))[:1]

    def key_heads(self, sizes: LayerSizes) -> dict[str, Any]:
        """Return what that parameter gets for a layer of fewer key heads."""
        return {n: sizes.value(meanings(n)[0]) for n in self.kv_heads_parameter if sizes.kv_heads}

    @cached_property
    def head_width_names(self) -> dict[tuple[str, ...], narrow_widths.HeadWidth]:
        """The constructor's parameters for the width of heads that can be another.

        Those too that it reads of its configuration. Not asked of unscaled scores, whose weights
        are scaled by the width of torch's heads.
        """
        made = self.how.construction
        if made is None or self._has_one_width or self.unscaled:
            return {}
        read = read_of_config(self.subject, made.config) if made.config else ()
        named = [*(p.name for p in self._named[0]), *(p.name for p in read)]
        slots, shapes_with = self.how.slots, self._shapes_by_widths
        return narrow_widths.head_widths(named, made.meanings, slots, shapes_with)

    @cached_property
    def context_width_names(self) -> tuple[str, ...]:
        """The constructor's parameters for the width of its context, that can be another."""
        if self.how.construction is None or self._has_one_width:
            return ()
        slots = self.how.slots
        return narrow_widths.context_names(self._named[0], slots, self._shapes_by_widths)

    @property
    def _has_one_width(self) -> bool:
        return self.instance is not None or self.takes_torchs or self.how.full_width

    @cached_property
    def _shapes_by_widths(self) -> Callable[[Mapping[str, int]], dict[str, tuple[int, ...]]]:
        made, known = self.how.construction, dict[frozenset[Any], dict[str, tuple[int, ...]]]()

        def shapes_with(widths: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
            asked, passed = frozenset(widths.items()), self.passed
            if asked not in known:
                known[asked] = {}
                with suppress(CandidateError):
                    layer = self.new(made or Construction(), narrow_widths.SMALL, **widths)
                    known[asked] = weights.shapes_of(layer)
                self.passed = passed  # what was built was no case
            return known[asked]

        return shapes_with

    @property
    def says_batch_first(self) -> bool:
        """Whether constructor or call have torch's switch of the layout: both values are asked."""
        return any(p.name == LAYOUT_SWITCH for named in self._named for p in named)

    @property
    def says_zero_attn(self) -> bool:
        """Whether a constructor has torch's switch of a further key and value of zeros."""
        return self.instance is None and ZERO_SWITCH in {p.name for p in self._named[0]}

    def new(self, construction: Construction, sizes: LayerSizes, **more: Any) -> Any:
        """Return a layer of these sizes."""
        named, given = self._named[0], dict(more)
        own = {name: given.pop(name) for name in self.windows_of_itself if name in given}
        layer = new_layer(self.subject, self.construct, named, construction, sizes, **given)
        set_windows(layer, self.windows_of_itself, sizes, own)
        self._record({p.key: bool(more[p.name]) for p in self.configured if p.name in more})
        return layer

    def build(self, problem: Problem, arguments: Arguments, *, dropout: float = 0.0) -> Any:
        """Return a new layer that holds the problem's weights, or the one that has them."""
        if (built := self.of_instance(arguments)) is not None:
            return built
        construction = self.how.construction or Construction()
        # Of torch's layer it always gets biases, zero where a problem has none.
        bias = problem.case.bias != "no" or not self.how.biased or self.takes_torchs
        length = construction.length_for(problem.case.queries, problem.case.keys)
        kv_heads = problem.case.kv_heads_count
        width = self._sizes(problem)["e"]
        heads = input_wider_than_heads.TIMES if self.is_wider(problem) else problem.num_heads
        sizes = LayerSizes(width, heads, bias, dropout, length, kv_heads, problem.case.batch)
        sizes = replace(sizes, bias=bias or bool(self.needs_biases))
        more = self.key_heads(sizes)
        if LAYOUT_SWITCH in {p.name for p in self._named[0]}:
            more[LAYOUT_SWITCH] = problem.case.layout != "sequence_first"
        more |= {**self.switches(problem), **self.head_widths, **self.context_widths}
        try:
            layer = self._new_with_biases(construction, sizes, more)
        except CandidateError as error:
            raise _refusal(error) from error
        by_method = self.uses_method and self._taker is not None
        if not by_method:  # first: what is replaced need not be converted
            self.load(layer, problem, arguments)
        if self.library.name == "torch" and is_module(layer):
            move(layer, problem.case.dtype, getattr(self.library, "device", "cpu"))
        if by_method:
            self.load(layer, problem, arguments)
        return layer

    def _new_with_biases(
        self, construction: Construction, sizes: LayerSizes, more: dict[str, Any]
    ) -> Any:
        """Return a layer of these sizes; one with biases, to be set to 0, where others raise."""
        try:
            return self.new(construction, sizes, **more)
        except CandidateError as error:
            if sizes.bias or isinstance(error.__context__, REFUSES):
                raise
            with suppress(CandidateError):
                layer = self.new(construction, replace(sizes, bias=True), **more)
                self.needs_biases = f"its constructor {error}"
                return layer
            raise

    def switches(self, problem: Problem) -> dict[str, Any]:
        """Return the causal switches of the constructor, and those of the keys."""
        keys = {self.cross_switch: True} if self.cross_switch else {}
        zeros = {ZERO_SWITCH: True} if problem.case.zero_attn == "yes" else {}
        return super().switches(problem) | zeros | (keys if problem.case.inputs != "self" else {})

    @property
    def config_switches(self) -> tuple[Parameter, ...]:
        """The causal switches that it reads of its configuration, by name or by what they do."""
        others = decoder_switches(self, self._read_of_config(Role.OTHER))
        return (*self._read_of_config(Role.CAUSAL), *others)

    @property
    def config_windows(self) -> tuple[Parameter, ...]:
        """The windows that it reads of its configuration."""
        return self._read_of_config(Role.WINDOW)

    def _read_of_config(self, wanted: Role) -> tuple[Parameter, ...]:
        made = self.how.construction
        named = made is not None and made.config
        return read_of_config(self.subject, named, wanted) if named else ()

    @property
    def bias_values(self) -> tuple[str, ...]:
        """Values offered on the axis of biases; all where the layer takes over torch's."""
        return ("no", "yes") if self.takes_torchs else self.how.bias_values

    @property
    def takes_torchs(self) -> bool:
        """Whether the layer takes over the weights of torch's by a method of its own."""
        return self._taker is not None

    @cached_property
    def _taker(self) -> Take | None:
        """How it takes over torch's layer; asked in every call."""
        return torch_taker(self.subject)

    def load(self, layer: Any, problem: Problem, arguments: Arguments) -> None:
        """Set the layer's arrays to the problem's weights, and take out what has none."""
        self.weight_leaves = []
        if self.uses_method and (take := self._taker):
            take_torch(take, layer, problem, self.library)
            if not self.converts:
                self.weight_leaves = self._leaves_in(layer, problem.num_heads)
            return
        sizes = self._sizes(problem)
        slots = {slot.path: slot for slot in weights.slots_by_head(self.how.slots, sizes)}
        shapes = weights.shapes_of(layer)
        found = [slots[path] for path in shapes if path in slots]
        held = {bias: self._arrays(problem, bias=bias) for bias in {each.bias for each in found}}
        for slot in found:
            array = self._filled(slot, problem, held[slot.bias], sizes)
            if array.size != math.prod(shapes[slot.path]):
                raise CandidateError("structure", f"has not `{slot.path}` as wide as it is asked")
            array = array.reshape(shapes[slot.path]).astype(problem.dtype)
            handed = arguments.array(slot.path, array)
            with target_errors():
                leaf = weights.set_array_of_slot(layer, slot.path, handed)
            self.weight_leaves.append((slot, leaf))
        for path in (*self.how.norms, *self.how.around):
            replace_by_identity(layer, path)

    def _filled(
        self,
        slot: weights.Slot,
        problem: Problem,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
    ) -> Array:
        """Return what a slot holds, of the widths that values or the context have."""
        if self.head_widths:
            found = self.head_width_names[tuple(self.head_widths)]
            width = found.width(next(iter(self.head_widths.values())), problem.num_heads)
            if {*slot.parts} <= found.parts:
                return narrow_widths.with_narrow_heads(width)(slot, problem, arrays, sizes)
        context = next(iter(self.context_widths.values()), 0)
        if context and not slot.bias and {*slot.parts} <= KEY_PARTS:
            sizes = {**sizes, "e": context}
        return weights.slot_array(slot, problem, arrays, sizes)

    def slots_for(self, heads: int) -> list[weights.Slot]:
        """Return where a layer of ``heads`` heads keeps its weights and biases."""
        sizes = {"h": heads, "e": heads}  # the number of arrays does not depend on the width
        return weights.slots_by_head(self.how.slots, sizes)

    def _leaves_in(self, layer: Any, heads: int) -> list[tuple[weights.Slot, Any]]:
        """Return the weights that a module has."""
        held = self.named_parameters(layer)
        return [(s, held[s.path]) for s in self.slots_for(heads) if s.path in held]

    @property
    def facts(self) -> TargetFacts:
        """Facts that small calls showed, and whether its input is wider than its one head."""
        facts, made = super().facts, self.how.construction
        parts = () if made is None else made.positions_left_out
        left_out = (
            Parameter(name=name, of="part", role=Role.PART, status=Status.EXCLUDED)
            for name in parts
        )
        listed = (*facts.parameters, *left_out)
        return replace(facts, wider_input=self.widens, parameters=listed)

    @property
    def may_widen(self) -> bool:
        """Whether it is one head, built with both widths."""
        return input_wider_than_heads.may_widen(self.how, self.subject)

    @staticmethod
    def with_zeros(problem: Problem, rows: Array) -> Array:
        """Return inputs with zeros up to a wider layer's width."""
        return input_wider_than_heads.with_zeros(problem, rows)

    @staticmethod
    def without_zeros(problem: Problem, output: Array) -> Array:
        """Return an output of a wider layer without the columns of those zeros."""
        return input_wider_than_heads.without_zeros(problem, output)

    def is_wider(self, problem: Problem) -> bool:
        """Return whether inputs of a problem are wider than its head: not for gradients."""
        return self.widens and problem.case.gradients == "no"

    def _sizes(self, problem: Problem) -> dict[str, int]:
        if self.is_wider(problem):
            return input_wider_than_heads.wider_sizes(problem)
        sizes_of = full_width_heads.padded_sizes if self.how.full_width else weights.sizes_of
        return sizes_of(problem)

    def _arrays(self, problem: Problem, *, bias: bool) -> dict[str, Array]:
        arrays_of = (
            full_width_heads.spread_arrays if self.how.full_width else problem_weights.arrays_of
        )
        if self.is_wider(problem):
            arrays_of = input_wider_than_heads.wider_arrays
        found = arrays_of(problem, bias=bias)
        if self.unscaled and "q" in found:
            found["q"] = found["q"] * found["q"].dtype.type(problem.head_dim**-0.5)
        if self.how.residual:
            part = "out" if "out" in self.how.parts else "v"
            found[part] = found[part] * found[part].dtype.type(self.above_residual)
        return found


def _refusal(error: CandidateError) -> CandidateError:
    """Return what a layer's constructor raised, as a case that is not asked where it refuses it."""
    if not isinstance(error.__context__, REFUSES):
        return error
    said = re.sub(r"\d+", "…", without_place(str(error)))
    return CandidateError("inconclusive", f"{REFUSED} ({said})", error.detail)
