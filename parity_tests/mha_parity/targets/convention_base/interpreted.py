"""Calls of a target by an interpretation: what it is passed, and how its answer is read."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import NOT_ASKED, Answer, CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls import problem_weights
from mha_parity.targets.calls.canonical_layout import (
    BACK,
    LAID,
    canonical,
    canonical_weights,
    first_rows,
    lay_rows,
    merge_output,
    one_by_one,
    split_output,
    swap_axes,
)
from mha_parity.targets.calls.target_call import Arguments, Call, positional_and_keyword
from mha_parity.targets.convention_base.fitted_gradients import with_fitted_gradients
from mha_parity.targets.convention_base.interpreted_layers import LAYOUT_SWITCH, InterpretedLayers
from mha_parity.targets.convention_base.returned_weights import weights_switches
from mha_parity.targets.interpretations.identity_rotations import ODD_WIDTH, rotation_by_nothing
from mha_parity.targets.interpretations.interpretation import OF_HEADS
from mha_parity.targets.interpretations.packed_inputs import CONTAINERS
from mha_parity.targets.interpretations.roles import INVERSE, ROWS
from mha_parity.targets.layers import full_width_heads, weights
from mha_parity.targets.layers.build_layer import called_with_globals
from mha_parity.targets.layers.module_constants import lengths_in_calls, numbers_read, sizes_read
from mha_parity.targets.static.argument_meanings import LayerSizes
from mha_parity.targets.static.call_parameters import role
from mha_parity.targets.static.signatures import forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.fitted_gradients import Pull
    from mha_parity.targets.layers.weights import WeightArgument

# An input that is added to the output rounds it. So the last weights are this much larger, which
# rounds nothing, and the output is divided by it again. What is added is then below the rounding:
# it is judged by a second call, with last weights of 0.
ABOVE_RESIDUAL = 2.0**30


class InterpretedCalls(InterpretedLayers):
    """A layer or function called as an interpretation says, and its answer read."""

    # Where the output stands in what is returned; elsewhere sizes may agree, and shapes not tell.
    place: int | None = None
    left_out: frozenset[str] = frozenset()  # inputs that calls of self-attention are made without
    keeps_numbers = False  # of its module, which are no sizes of the arrays
    reset = ""  # the method of a layer that is called before each call

    @property
    def filled_up(self) -> tuple[str, ...]:
        """The required parameters that are neither inputs nor weights, tables of positions too."""
        roles = self.how.roles
        return (*roles.none, *dict((*roles.rotations, *roles.states)))

    def tables_of_positions(self, problem: Problem, rows: int) -> dict[str, Any]:
        """Return the tables of positions of a call for as many rows, which turn nothing."""
        case = problem.case.replace(queries=rows)
        array = self.library.from_numpy
        return {
            name: rotation_by_nothing(form, case, problem.dtype, array)
            for name, form in self.how.roles.rotations
        }

    @property
    def sizes_of_module(self) -> dict[str, str]:
        """The numbers of its module that it reads in place of sizes of its own, by meaning."""
        made = self.how.construction
        if made is None:
            return {} if self.keeps_numbers else numbers_read(self.subject)
        if made.has("heads", "head_dim"):
            return {}
        return sizes_read(self.subject, of_heads=made.has("width"))

    @cached_property
    def _lengths_of_module(self) -> dict[str, str]:
        """The lengths of its module that a class is built by and reads in its calls."""
        made = self.how.construction
        return {} if made is None else lengths_in_calls(self.subject)

    def prepare(self, problem: Problem) -> Call:
        """Return the call with everything where the interpretation has it.

        Raises
        ------
        CandidateError
            Query, key and value differ, of which the target takes one array; or pairs of
            channels are rotated, and the width of a head is odd; or it has sizes of its own.

        """
        alike = problem.query is problem.key is problem.value
        if self.how.projection_of_case == "one_array" and not alike:
            raise CandidateError("inconclusive", f"{NOT_ASKED}: it takes one array for all three")
        if self.how.roles.turns_pairs and problem.case.head_dim % 2:
            raise CandidateError("inconclusive", f"{NOT_ASKED}: {ODD_WIDTH}")
        if self.own_weights is not None and (other := self.own_weights.other_size(problem)):
            raise CandidateError("inconclusive", f"{NOT_ASKED}: {other}")
        arguments = Arguments(problem, self.library)
        layer = None
        if self.how.construction is not None:
            layer = self.build(problem, arguments)
        return self.layer_call(layer, arguments)

    @property
    def scale_parameter(self) -> str:
        """The call's parameter that the scores are multiplied by, "" where its name says of none.

        Where one has to be given, trials have shown whether scores are multiplied or divided by it.
        """
        given = dict(self.how.roles.sizes)
        named = [p.name for p in self._named[1] if role(p.name, "call", p.default) is Role.SCALE]
        return next((name for name in named if given.get(name, INVERSE) == INVERSE), "")

    def _layout_switch(self, layout: str) -> dict[str, bool]:
        """Return the switch of the layout that a call has, and no constructor, as a case asks."""
        built, called = ({p.name for p in named} & {LAYOUT_SWITCH} for named in self._named)
        return dict.fromkeys(called - built, layout != "sequence_first")

    def layer_call(self, layer: Any, arguments: Arguments, *, training: bool = False) -> Call:
        """Return the call of a layer, or of the function."""
        problem, roles = arguments.problem, self.how.roles
        values = self._inputs(problem, arguments)
        if layer is None:
            self.weight_leaves = []
        elif self.instance is not None:
            self.weight_leaves = self._leaves_in(layer, problem.num_heads)
        for name, each in roles.weights:
            if not (
                each.optional and problem_weights.has_none(problem, each.parts, bias=each.bias)
            ):
                values[name] = self._weight(each, problem, arguments)
        case = problem.case
        values |= roles.without_effect(case, problem.dtype, arguments.array)
        values |= roles.of_lengths(case.queries, case.keys)
        values |= self.modes(training=training)
        offered = [e for e in vars(self).get("offer", {}).get("weights", ()) if e != "none"]
        values |= weights_switches(self._named[1], case, offered)
        values |= self._layout_switch(case.layout)
        kv_heads = case.kv_heads_count
        width, samples = problem.query.shape[-1], case.batch
        made = self.how.construction
        length = case.queries if made is None else made.length_for(case.queries, case.keys)
        sizes = LayerSizes(
            width, problem.num_heads, kv_heads=kv_heads, samples=samples, length=length
        )
        values |= roles.sized(sizes)
        if problem.given_scale is not None:
            values[self.scale_parameter] = problem.given_scale
        if roles.heads:
            values[roles.heads] = problem.num_heads
        function = self.subject
        if layer is not None:
            function = layer if callable(layer) else forward(layer)
        if numbers := self.sizes_of_module | self._lengths_of_module:
            function = called_with_globals(function, self.subject, numbers, sizes)
        function = arguments.read_back(function)
        args, kwargs = positional_and_keyword(self._named[1], values)
        given = tuple(arguments.given)
        call = Call(function, args, kwargs, given, compiles=arguments.of_jax, reset=self.reset)
        call = self.with_masks(call, arguments)
        return with_fitted_gradients(
            call, arguments, self.weight_leaves, self._lay(problem),
            partial(self._canonical, problem), partial(self._output_tensor, problem),
            roles.packed, layer, [role for name, role in roles.inputs if name in values],
            self.pull_of(problem),
        )  # fmt: skip

    def pull_of(self, problem: Problem) -> Callable[[Call, Any], Pull] | None:
        """Return what a function beside the target computes gradients by; None without one."""
        del problem
        return None

    def _inputs(self, problem: Problem, arguments: Arguments) -> dict[str, Any]:
        """Return what the parameters of the inputs get."""
        inputs, packed = self.how.roles.inputs, self.how.roles.packed
        lay = self._lay(problem)
        if packed is None or packed.container != "array":
            rows = dict(zip(ROWS, arguments.rows(lay), strict=True))
            left_out = self.left_out if problem.case.inputs == "self" else ()
            values = {name: rows[role] for name, role in inputs if name not in left_out}
            if packed is not None:
                kind = CONTAINERS[packed.container]
                values[packed.parameter] = kind(rows[role] for role in packed.roles)
            return values
        single = [each for each in inputs if each[0] != packed.parameter]
        values = {n: arguments.array(role, lay(getattr(problem, role))) for n, role in single}
        return values | {packed.parameter: arguments.array("packed", packed.pack(problem))}

    def _output_tensor(self, problem: Problem, result: Any) -> Any:
        """Return the output among what came back, as the target's library has it."""
        several = one_by_one(result)
        if len(several) == 1:
            place = 0
        elif self.place is not None and self.place < len(several):
            place = self.place
        else:
            place = self.output_of(problem, several)[0]
        if self.how.arrangement not in OF_HEADS:
            return several[place]
        return split_output(problem, several[place], self.how.swaps(problem.case.layout))

    def _together(self, given: WeightArgument, problem: Problem, arguments: Arguments) -> Any:
        """Return all weights in one argument: a dictionary, tuple or record."""
        held = {key: self._weight(each, problem, arguments) for key, each in given.entries}
        numbers = LayerSizes(problem.query.shape[-1], problem.num_heads)
        held |= {key: numbers.value(meaning) for key, meaning in given.sizes}
        if given.made_by is not None:
            return given.made_by(**held)
        if given.container == "tuple":
            return tuple(held.values())
        return {given.within: held} if given.within else held

    def _weight(self, given: WeightArgument, problem: Problem, arguments: Arguments) -> Any:
        if given.entries:
            return self._together(given, problem, arguments)
        sizes = weights.sizes_of(problem)
        arrays = problem_weights.arrays_of(problem, bias=given.bias)
        slot = weights.Slot("", given.parts, given.axes, given.bias)

        def made(slot: weights.Slot) -> Any:
            array = weights.slot_array(slot, problem, arrays, sizes)
            handed = arguments.array(f"w_{slot.parts[0]}", array)
            self.weight_leaves.append((slot, handed))
            return handed

        if given.container == "list":
            count = sizes["g" if {*given.parts} <= problem_weights.KEY_PARTS else "h"]
            return [made(replace(slot, head=head)) for head in range(count)]
        if given.holds_bias:
            bias = given.bias_slot
            biases = problem_weights.arrays_of(problem, bias=True)
            filled = weights.slot_array(bias, problem, biases, sizes)
            w, b = given.leaves
            handed = arguments.array("bias", filled)
            self.weight_leaves.append((bias, handed))
            both = {w: made(slot), b: handed}
            if given.container == "pair":
                return tuple(both.values())
            return both if arguments.of_jax else weights.WeightAndBias(both)
        return made(slot)

    def _lay(self, problem: Problem) -> Callable[[Array], Array]:
        """Return how canonical rows (N, L, E) are handed over."""
        arrangement = self.how.arrangement
        if arrangement in LAID:
            return LAID[arrangement]
        if arrangement in OF_HEADS:

            def heads(rows: Array) -> Array:
                of_keys = any(rows is each for each in (problem.key, problem.value))
                count = problem.num_kv_heads if of_keys else problem.num_heads
                split = rows.reshape(*rows.shape[:2], count, rows.shape[2] // count)
                return lay_rows(problem)(swap_axes(split, self.how.swaps(problem.case.layout)))

            return heads
        lay = lay_rows(problem)
        if self.is_wider(problem):
            return lambda rows: lay(self.with_zeros(problem, rows))
        return (lambda r: lay(full_width_heads.padded(problem, r))) if self.how.full_width else lay

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Return the array that has the output's shape, in canonical layout, and the weights."""
        several = one_by_one(result)
        if self.place is not None and self.place < len(several):
            place = self.place
            output = self._canonical(problem, to_numpy(several[place], "the output"))
        else:
            place, output = self.output_of(problem, several)
        if self.how.residual and output.shape == problem.output_shape:
            whole, added = (np.asarray(a, np.float64) for a in (output, problem.query))
            attention = (whole.astype(np.longdouble) - added) / self.above_residual
            if self.above_residual > 1:
                attention = attention + self._added_amiss(problem)
            output = attention.astype(np.float64).astype(output.dtype)
        wants = problem.case.weights != "none"
        others = [each for at, each in enumerate(several) if at != place]
        held = canonical_weights(problem, others[0]) if wants and others else None
        return Answer(output=output, weights=held)

    def keep_above_residual(self) -> None:
        """Fill output weights so large that the input which is added is lost in the output."""
        self.above_residual = ABOVE_RESIDUAL

    def _added_amiss(self, problem: Problem) -> Array:
        """Return what a layer whose last weights are 0 gives beyond its input: 0, to the bit."""
        scale, self.above_residual = self.above_residual, 0.0
        try:
            several = self.returned(problem)
        finally:
            self.above_residual = scale
        alone = self.output_of(problem, several)[1]
        if alone.shape != problem.output_shape:
            raise CandidateError(
                "structure", f"with last weights of 0, the output has shape {alone.shape}."
            )
        amiss = alone.astype(np.float64) - problem.query.astype(alone.dtype).astype(np.float64)
        # 0 times what is not finite is NaN: of such numbers the first call alone tells.
        return np.where(np.isfinite(amiss), amiss, 0)

    def returned(self, problem: Problem) -> list[Any]:
        """Return what a call of a problem returns, one by one."""
        return one_by_one(self.prepare(problem).make())

    def output_of(self, problem: Problem, several: list[Any]) -> tuple[int, Array]:
        """Return the first array of the output's shape, or else the first of all."""
        first: tuple[int, Array] | None = None
        for place, each in enumerate(several):
            try:
                array = self._canonical(problem, to_numpy(each, "the output"))
            except CandidateError:
                if place == 0 and len(several) == 1:
                    raise
                continue
            first = first or (place, array)
            if array.shape == problem.output_shape:
                return place, array
        if first is None:
            to_numpy(several, "the output")
            raise CandidateError("structure", "returned no array.")
        return first

    def _canonical(self, problem: Problem, array: Array) -> Array:
        arrangement, unbatched = self.how.arrangement, problem.case.layout == "unbatched"
        if arrangement == "first_row":
            return first_rows(problem, array)
        axes, back = BACK.get(arrangement, (0, None))
        if back is not None and array.ndim == axes:
            return back(array)
        if arrangement in OF_HEADS and array.ndim == (3 if unbatched else 4):
            return merge_output(problem, array, self.how.swaps(problem.case.layout))
        whole = canonical(problem, array)
        if self.is_wider(problem):
            return self.without_zeros(problem, whole)
        return full_width_heads.narrowed(problem, whole) if self.how.full_width else whole

    def call_after_loading(
        self, problem: Problem, earlier: Problem, ask: Callable[[Call], object] = Call.make
    ) -> Call | None:
        """Return the call of a layer that answered ``earlier`` before it got its weights."""
        if self.how.construction is None or not self.how.parts:
            return None
        return super().call_after_loading(problem, earlier, ask)
