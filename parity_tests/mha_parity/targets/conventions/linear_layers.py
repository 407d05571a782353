"""Layers of torch as most people write them: Linears for queries, keys, values and output.

A Linear each, or several packed into one; sizes by position, by whatever names, or in a
configuration. A layer that hides the future by itself is judged as causal attention.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import ADAPTER, CandidateError, TargetError
from mha_parity.core.features import make_offer
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.conventions import vjp
from mha_parity.targets.conventions.base import FeatureProbe
from mha_parity.targets.conventions.calls import Arguments, Call, target_errors
from mha_parity.targets.conventions.canonical_layout import lay_rows, split_result
from mha_parity.targets.conventions.constructors import (
    LENGTH,
    LayerSizes,
    SizesConfig,
    counts_heads,
    takes_a_config,
    takes_dropout,
)
from mha_parity.targets.conventions.context_input import (
    OptionalInputs,
    attends,
    inputs_to_try,
    optional_inputs,
)
from mha_parity.targets.conventions.from_torch import take_torch, torch_taker
from mha_parity.targets.conventions.linears import (
    ROWS,
    SMALL,
    behind_rows,
    build_layer,
    input_roles,
    misfit,
)
from mha_parity.targets.conventions.packing import (
    ProjectionSlot,
    infer_packing,
    names_rows,
    projection_slots,
    state_shapes,
)
from mha_parity.targets.conventions.returned_weights import weight_probes, weights_switches
from mha_parity.targets.conventions.self_causal import CAUSAL, HIDES, hides_the_future
from mha_parity.targets.conventions.signatures import ANY, constructor, forward, signature
from mha_parity.targets.conventions.single_sample import takes_single
from mha_parity.targets.conventions.torch_module import PLAIN
from mha_parity.targets.problem_arrays import (
    arrays_of,
    bias_values,
    unbiased,
    with_grouped_heads,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem


class LinearModule(OptionalInputs):
    """Linears for q, k, v and out, separate or packed.

    ``(query, key, value)``, ``(x, y)`` or ``(x)``, batch first. The constructor takes width and
    heads in any order, under many names.
    """

    name = "linear-module"
    own_masks = frozenset()
    drops_as_torch = False  # many drop of the output too, and keep clean weights for the eye
    call = (
        "C(embed_dim, num_heads) or C(config), Linears W_q, W_k, W_v, W_o or packed; "
        "(query, key, value) or (x)"
    )

    def claims(self) -> Offer:
        """Return what the names of the state dict and the call say.

        Raises
        ------
        TargetError
            The layer does not keep its weights in such Linears.

        """
        self._made = constructor(self.subject) or ANY
        if reason := misfit(self.subject):
            raise TargetError(
                f"got {self.name}, but {reason}, and it should have Linears named like W_q, W_k, "
                f"W_v and W_o, or one for all three; rename them, or {ADAPTER}."
            )
        layer = build_layer(self.subject, SMALL)
        state = frozenset(layer.state_dict())
        self._called = signature(forward(layer)) or ANY
        self._slots = projection_slots(state_shapes(layer))
        self._rows = input_roles(self._called)
        self.optional = optional_inputs(forward(layer), self._called.required, self._rows)
        self.unknown = inputs_to_try(forward(layer)) if len(self._rows) == 1 else ()
        biased = {p for s in self._slots if f"{s.name}.bias" in state for p in s.parts}
        parts = frozenset(part for slot in self._slots for part in slot.parts)
        biases = bias_values(biased, parts)
        self._unbiased = "" if "yes" in biases else unbiased(biased, parts)
        heads = ("one", "many") if counts_heads(self._made) else ("one",)
        inputs = {1: ("self",), 2: ("self", "cross"), 3: ("self", "cross", "distinct")}
        return make_offer(
            inputs=inputs[len(self._rows) + len(self.optional)],
            heads=heads,
            bias=biases,
            out_proj=("identity", "general") if self._has("out") else "identity",
            size=("small", "medium", "equal", "ones"),
            memory=self.library.memory,
        )

    @property
    def says_no_roles(self) -> bool:
        """Whether Linears other than the output's are not called after what they project."""
        return not names_rows(self._slots, len(self._rows) + len(self.optional))

    def plain_case(self) -> Case:
        """Two samples, batch first; causal where the layer is, and one head where it has one."""
        return self._plain.replace(attn=self.plain_attn)

    @property
    def _plain(self) -> Case:
        heads, width = (2, 3) if "many" in self.offer["heads"] else (1, 6)
        layout = "batch_first" if "batch_first" in self.offer["layout"] else "sequence_first"
        return PLAIN.replace(layout=layout, heads_count=heads, head_dim=width)

    def probes(self) -> Iterator[FeatureProbe]:
        """Look at what it hides by itself; then one sample, empty axes, and weights unasked."""
        self._look()
        self._look_at_one_head()
        if self._unbiased:
            self.reasons["bias", "yes"] = f"the Linear of {self._unbiased} has no bias"
        case = self.trial_case()
        single = case.replace(layout="unbatched", batch=1)
        if takes_single(self, single):
            yield FeatureProbe("layout", "unbatched", (single,))
        yield FeatureProbe(
            "size", "empty", (case.replace(batch=0), case.replace(queries=0, keys=0))
        )
        yield from weight_probes(case)
        yield from self._grouped(case)
        yield FeatureProbe("gradients", "yes", (case.replace(gradients="yes"),))

    def settled(self) -> tuple[tuple[str, str], ...]:
        """Return how packed rows lie, and the inputs that were found to be keys or values."""
        rows = [(f"rows of {s.name}", s.packing) for s in self._slots]
        return (*rows, *((f"input {name}", role) for name, role in self.optional))

    def settle(self, found: tuple[tuple[str, str], ...]) -> None:
        """Take them from another process, if one could find them."""
        if not found:
            return
        known = dict(found)
        self._slots = tuple(
            replace(s, packing=known.get(f"rows of {s.name}", s.packing)) for s in self._slots
        )
        inputs = ((name.removeprefix("input "), role) for name, role in found)
        self.optional = tuple(each for each in inputs if each[1] in ROWS)

    def _grouped(self, case: Case) -> Iterator[FeatureProbe]:
        """Yield the trial of fewer key heads, if a layer asked for them has smaller keys."""
        grouped = case.replace(heads_count=4, kv_heads_count=2)
        problem = make_problem(grouped)
        whole = [slot for slot in self._slots if slot.head is None and slot.packing != "columns"]
        try:
            shapes = state_shapes(self._new(problem, LayerSizes(grouped.embed_dim, 4, kv_heads=2)))
        except CandidateError:
            return
        weights = with_grouped_heads(arrays_of(problem, bias=False), grouped)
        if any(
            shapes.get(f"{s.name}.weight") == s.pack(weights, 4, 2).shape
            for s in whole
            if "k" in s.parts
        ):
            yield FeatureProbe("kv_heads", "fewer", (grouped,))

    def _look_at_one_head(self) -> None:
        """Take one head back where a layer of one head has other Linears than one of several."""
        if self.offer["heads"] != ("one", "many"):
            return
        problem = make_problem(self._plain.replace(heads_count=1, head_dim=6))
        try:
            held = state_shapes(self._new(problem, LayerSizes(6, 1)))
        except CandidateError as error:
            reason = str(error)
        else:
            owned = (slot.name for slot in self._slots if slot.head is None)
            reason = next((f"with one head it has no `{n}`" for n in owned
                           if f"{n}.weight" not in held), "")  # fmt: skip
        if reason:
            self.offer = self.offer | {"heads": ("many",)}
            self.reasons["heads", "one"] = reason

    def _look(self) -> None:
        """Ask how packed rows lie, and whether the future is hidden."""
        remarks = []
        try:
            self._slots = tuple(self._asked(s) if len(s.parts) > 1 else s for s in self._slots)
            if self.attends_along_samples(make_problem(self._plain)) or self._is_of_one_sample():
                self.offer = self.offer | {"layout": ("sequence_first",)}
                self.reasons["layout", "batch_first"] = "it attends along the first axis"
            self.hides_future = hides_the_future(self, make_problem(self._plain))
            self.look_for_inputs(self._plain)
        except CandidateError:
            return  # the trials say what it raised
        for slot in self._slots:
            if len(slot.parts) > 1 and slot.packing != "parts":
                within = "head by head" if slot.packing == "heads" else "column by column"
                remarks.append(f"the rows of {slot.name} lie {within}, and were filled so.")
        if self.hides_future:
            self.offer = self.offer | {"attn": ("causal",)}
            self.reasons["attn", "none"] = HIDES
            remarks.append(CAUSAL)
        self.remarks = tuple(remarks)

    def _is_of_one_sample(self) -> bool:
        """Return whether one sample is right along the first axis, and several along no axis."""
        single = self._plain.replace(batch=1, layout="sequence_first")
        return attends(self, make_problem(single)) and not attends(self, make_problem(self._plain))

    def _asked(self, slot: ProjectionSlot) -> ProjectionSlot:
        problem = make_problem(self._plain.replace(batch=1))
        width = problem.query.shape[-1]

        def answer(weights: Mapping[str, Array]) -> Array:
            given = Arguments(problem, self.library)
            layer = self._new(problem, LayerSizes(width, problem.num_heads))
            self._fill(layer, given, {"out": np.eye(width)}, {}, packed=weights)
            rows = [given.array(name, np.ones((1, 5, width))) for name in self._rows]
            result = self._called_with(layer, rows, given).make()
            output = to_numpy(split_result(result)[0], "the output")
            return np.asarray(output[0])

        return infer_packing(slot, problem.num_heads, width, answer)

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Return the answer, also out of a tuple of one, and of output, weights and more."""
        if isinstance(result, tuple) and result:
            result = result[:2] if len(result) > 1 else result[0]
        return super().answer(problem, result)

    @cached_property
    def _drops(self) -> bool:
        """Whether the constructor takes a probability of dropout, or asks its configuration."""
        if not takes_a_config(self._made):
            return takes_dropout(self._made)
        config = SizesConfig(SMALL)
        with target_errors():
            self.construct(config)
        return "dropout" in config.asked

    def build(self, problem: Problem, arguments: Arguments, *, dropout: float = 0.0) -> Any:
        """Return a new module that holds the problem's weights, or the one that has them."""
        if (built := self.of_instance(arguments)) is not None:
            return built
        # Of torch's layer it always gets biases, zero where a problem has none.
        bias = problem.case.bias != "no" or bool(torch_taker(self.subject))
        length = max(LENGTH, problem.case.queries, problem.case.keys)
        kv_heads = problem.case.kv_heads_count
        width = problem.query.shape[-1]
        sizes = LayerSizes(width, problem.num_heads, bias, dropout, length, kv_heads)
        module = self._new(problem, sizes)
        self.load(module, problem, arguments)
        return module

    def _new(self, problem: Problem, sizes: LayerSizes) -> Any:
        usual = {"batch_first", "dtype", "device"} & self._made.named
        options = {k: v for k, v in self._shape(problem, sizes.dropout) if k in usual}
        options |= self.built_modes() | self.switches(problem)
        module = build_layer(self.subject, sizes, self.construct, **options)
        if self.library.name == "torch" and not {"dtype", "device"} <= set(options):
            module = self._moved(module, problem)
        return module

    def load(self, module: Any, problem: Problem, arguments: Arguments) -> None:
        """Load the problem's weights, what it has none of written out, or by its own method."""
        if take := torch_taker(self.subject):
            take_torch(take, module, problem, self.library)
            return
        weights, biases = arrays_of(problem, bias=False), arrays_of(problem, bias=True)
        self._fill(module, arguments, weights, biases)

    def _fill(
        self,
        module: Any,
        given: Arguments,
        weights: Mapping[str, Array],
        biases: Mapping[str, Array],
        *,
        packed: Mapping[str, Array] | None = None,
    ) -> None:
        """Load weights by part, or some of them packed already; what is not named is 0."""
        heads, dtype = given.problem.num_heads, given.problem.dtype
        width = given.problem.query.shape[-1]
        with target_errors():
            state = module.state_dict()
        for slot in self._slots_in(module):
            for kind, arrays, shape in (
                ("weight", weights, (width, width)), ("bias", biases, (width,)),
            ):  # fmt: skip
                name = f"{slot.name}.{kind}"
                if name not in state:
                    continue
                whole = {p: arrays.get(p, np.zeros(shape, dtype)) for p in slot.parts}
                held = with_grouped_heads(whole, given.problem.case)
                array = slot.pack(held, heads, given.problem.case.kv_heads_count)
                if kind == "weight" and packed is not None:
                    array = packed.get(slot.name, array)
                state[name] = given.array(name, array.astype(dtype))
        with target_errors():
            module.load_state_dict(state)

    def _slots_in(self, module: Any) -> tuple[ProjectionSlot, ...]:
        """Return where this layer keeps its weights: a list of heads has one entry a head."""
        if all(slot.head is None for slot in self._slots):
            return self._slots
        return projection_slots(state_shapes(module))

    def _layer_call(self, module: Any, arguments: Arguments) -> Call:
        rows = dict(zip(ROWS, arguments.rows(lay_rows(arguments.problem)), strict=True))
        optional = {} if arguments.problem.case.inputs == "self" else dict(self.optional)
        call = self._called_with(module, [rows[name] for name in self._rows], arguments)
        more = {name: rows[role] for name, role in optional.items()}
        call = replace(call, kwargs={**call.kwargs, **more})
        return vjp.with_linear_gradients(call, module, arguments, self._slots_in(module))

    def _called_with(self, module: Any, rows: list[Any], arguments: Arguments) -> Call:
        function = module if callable(module) else forward(module)
        given = [each for each in self.offer["weights"] if each != "none"]
        switches = weights_switches(self._named[1], arguments.problem.case, given)
        switches |= self.modes(training=bool(getattr(module, "training", False)))
        more = behind_rows(self._called, len(self._rows), arguments.problem.case.queries)
        args = (*rows, *more)
        return self.with_masks(Call(function, args, switches, tuple(arguments.given)), arguments)

    @property
    def slots(self) -> tuple[ProjectionSlot, ...]:
        """Where a layer keeps its weights, as far as trials have shown."""
        return self._slots

    def _has(self, part: str) -> bool:
        return any(part in slot.parts for slot in self._slots)
