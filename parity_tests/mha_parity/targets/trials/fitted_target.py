"""A target called as experiments showed that it is meant: layers and functions of any style."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.features import AXES, UNLIKE_LENGTHS, make_offer
from mha_parity.core.problem import INPUTS
from mha_parity.targets.convention_base.always_causal import (
    CAUSAL,
    HIDES,
    UNEQUAL,
    as_said,
    hides_the_future,
)
from mha_parity.targets.convention_base.convention import FeatureProbe
from mha_parity.targets.convention_base.dropout_argument import (
    with_dropout_passed,
    with_layer_dropout,
)
from mha_parity.targets.convention_base.fitted_gradients import no_gradients
from mha_parity.targets.convention_base.grouped_heads import (
    grouped,
    grouped_probes,
    groups_heads,
    look_at_one_head,
)
from mha_parity.targets.convention_base.norm_positions import inner_norms, norm_remarks
from mha_parity.targets.convention_base.optional_arguments import (
    left_out_in_self,
    single_sample,
    switch_of_keys,
    takes_scale,
    takes_single,
)
from mha_parity.targets.convention_base.returned_weights import weight_probes
from mha_parity.targets.interpretations.try_interpretations import SMALL, Search, trial_problem
from mha_parity.targets.static import documented_layout
from mha_parity.targets.static.argument_meanings import meanings
from mha_parity.targets.trials.call_search import SearchedCalls
from mha_parity.targets.trials.one_length import inputs_of_one_length
from mha_parity.targets.trials.refinements import built_remarks
from mha_parity.targets.trials.refusals import (
    refusal_without_counterpart,
    refuse_around_unapplied,
    refuse_output_unapplied,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Call


# Why float16 is left out.
FULL_WIDTH_OVERFLOWS = "heads as wide as the input divide larger products, which leave its range"
RESIDUAL_OVERFLOWS = (
    "the input that is added to the output rounds it, and larger weights leave its range"
)


OF_KEYS = "True where keys are another input than the queries"
WIDER = (
    "its input is twice as wide as its one head: E = 2 D, with zeros behind the rows of a problem."
)
# How an input is settled that calls are made without, and a switch of keys of their own.
LEFT_OUT, SWITCHED_ON = "left out", "on where keys are no queries"
PLANES = frozenset({"map", "grid"})  # arrangements in which rows have a height and a width


class Fitted(SearchedCalls):
    """Layers and functions that are called as small problems showed."""

    name = "fitted"
    call = "whatever small problems show: weights by their names, inputs and layouts by trial"

    norm_remarks: tuple[str, ...] = ()

    def claims(self) -> Offer:
        """Search the interpretation, and offer what it can be asked for.

        Raises
        ------
        TargetError
            None computes attention, or comes near.

        """
        self.hides_future = False
        self.fit = self.search()
        self.how = self.fit.interpretation
        self.filled, self.in_every_call = self.how.roles.filled, self.how.roles.always
        self.joins_heads = bool(self.how.slots) and not self.how.parts
        self.place = self._place()
        made = self.how.construction
        self.of_one_length = made is not None and made.longer_by is not None
        self.of_one_batch = self._is_built_with("samples")
        if self.how.norms and self.fit.exact:
            self._refuse_inner_norms()
        if self.how.around:
            refuse_around_unapplied(self, self.small_dtype, causal=self.fit.causal)
        if self.joins_heads and self.fit.exact:
            refuse_output_unapplied(self, self.ask, self.small_dtype)
        # An inexact one is judged as it is: what is added may depend on the size of the rest.
        if self.how.residual and self.fit.exact and self.how.parts & {"out", "v"}:
            self.keep_above_residual()
        if self.how.full_width or self.how.residual:
            why = FULL_WIDTH_OVERFLOWS if self.how.full_width else RESIDUAL_OVERFLOWS
            self.left_out_dtypes = {"float16": why}
        self._give_biases()
        self.widens = self._answers_wider()
        return self._offered()

    def _answers_wider(self) -> bool:
        """Return whether one head of both widths answers where its input is wider."""
        if not self.fit.exact or self.layers is None or self.takes_torchs:
            return False
        if not self.may_widen:
            return False
        problem = trial_problem(self.how, "self", self.small_dtype)
        self.widens = True
        try:
            return bool(self.ask(self.how, problem).output.shape == problem.output_shape)
        except CandidateError:  # its arrays follow one of both widths, or it refuses others
            return False
        finally:
            self.widens = False

    def _give_biases(self) -> None:
        """Build layers with biases of 0 where calls of one without them raise.

        One that is built without by default is judged as it is built.
        """
        optional = {"no", "yes"} <= {*self.bias_values} and not self.takes_torchs
        switches = (p for p in self._named[0] if meanings(p.name)[:1] == ("bias",))
        optional = optional and not any(p.default is False for p in switches)
        if self.layers is None or self.needs_biases or not optional:
            return
        case = trial_problem(self.how, "self", self.small_dtype).case.replace(bias="no")
        try:
            self.ask(self.how, make_problem(case))
        except CandidateError as error:
            self.needs_biases = f"its call {error}"
            try:
                self.ask(self.how, make_problem(case))
            except CandidateError:
                self.needs_biases = ""

    @property
    def takes_dropout(self) -> bool:
        """Whether the constructor takes a probability of dropout, or asks its configuration."""
        return self._is_built_with("dropout")

    def _is_built_with(self, meaning: str) -> bool:
        """Return whether an argument has a meaning, or what is read of a configuration."""
        made = self.how.construction
        if made is None or self.layers is None or not made.has(meaning):
            return False
        return self.layers.asks_for(made, meaning)

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls of one layer in train() and in eval() mode, or with dropout."""
        if self.how.construction is None:
            return with_dropout_passed(self, problem, p)
        return with_layer_dropout(self, problem, p)

    def _place(self) -> int | None:
        """Return where the output stands, by a problem in which no two sizes are equal."""
        problem = trial_problem(self.how, "self", self.small_dtype)
        with suppress(CandidateError):  # then shapes have to tell
            several = self.returned(problem)
            return self.output_of(problem, several)[0] if len(several) > 1 else None
        return None

    def _refuse_inner_norms(self) -> None:
        """Refuse norms between the projections, and keep which rows the others are applied to.

        Raises
        ------
        TargetError
            A norm gets projected rows, or heads.

        """
        problem = trial_problem(self.how, "self", self.small_dtype)
        if inner := inner_norms(self, problem):
            parts = [path.removeprefix("params.") for path in inner]
            raise TargetError(refusal_without_counterpart(self.name, inner, parts=parts))
        self.norm_remarks = tuple(norm_remarks(self, problem, causal=self.fit.causal))

    def _offered(self) -> Offer:
        how = self.how
        rows = {1: ("self",), 2: ("self", "cross"), 3: ("self", "cross", "distinct")}
        inputs = rows[len(how.roles.rows)]
        inputs = ("self", "cross") if not how.parts and len(inputs) == 3 else inputs
        if how.slots and (part := how.unbiased):
            self.reasons["bias", "yes"] = f"the projection of {part} has no bias"
        if how.layout == "sequence_first" and not self.says_batch_first:
            self.reasons["layout", "batch_first"] = "it attends along the first axis"
        packed = how.roles.packed
        if packed is not None and packed.not_cross:
            inputs = ("self",)
            self.reasons["inputs", "cross"] = packed.not_cross
        if how.construction and (switch := how.construction.for_self_attention):
            inputs = ("self",)
            self.reasons["inputs", "cross"] = f"it is not built without `{switch}`"
        regimes = tuple(AXES["regime"])
        if self.above_residual > 1:
            self.reasons["regime", "largest_value"] = RESIDUAL_OVERFLOWS
            regimes = tuple(each for each in regimes if each != "largest_value")
        return make_offer(
            form="mha" if how.parts else "qkv",
            projection=how.projection_of_case,
            inputs=inputs,
            regime=regimes,
            layout=how.layout,
            heads=how.heads,
            kv_heads="fewer" if how.one_kv_head else "equal",
            bias=self.bias_values,
            out_proj=("identity", "general") if "out" in how.parts else "identity",
            size=("small", "medium", "equal", "ones"),
            memory=self.library.memory,
        )

    def settled(self) -> tuple[tuple[str, str], ...]:
        """Return the inputs that self-attention is asked without, and the switch of keys, too."""
        left_out = ((name, LEFT_OUT) for name in sorted(self.left_out))
        switch = [(self.cross_switch, SWITCHED_ON)] if self.cross_switch else []
        return (*super().settled(), *left_out, *switch)

    def settle(self, found: tuple[tuple[str, str], ...]) -> None:
        """Take them from another process."""
        super().settle(found)
        self.left_out = frozenset(name for name, text in found if text == LEFT_OUT)
        self.cross_switch = next((name for name, text in found if text == SWITCHED_ON), "")

    def plain_case(self) -> Case:
        """Two samples and two heads, or what the target takes."""
        heads, width = (2, 3) if "many" in self.offer["heads"] else (1, 6)
        width += width % 2 if self.how.roles.turns_pairs else 0
        unbatched = self.offer["layout"][0] == "unbatched"
        # Rows of a plane of a prime number would be one of a width of 1.
        length = 6 if self.how.arrangement in PLANES else 5
        plain = SMALL.replace(
            batch=1 if unbatched else 2, queries=length, keys=length,
            heads_count=heads, head_dim=width,
            layout=self.offer["layout"][0], attn=self.plain_attn,
            kv_heads_count=int(self.how.one_kv_head),
            form=self.offer["form"][0], projection=self.offer["projection"][0],
        )  # fmt: skip
        return plain if self.own_weights is None else self.own_weights.in_its_sizes(plain)

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; other layouts, empty axes, weights, wider values."""
        self._look()
        case = self.trial_case()
        self.settle_backward(case)
        self._narrow(case)
        look_at_one_head(self)
        yield from self._other_layout()
        packed = self.how.roles.packed
        if self.how.projection_of_case == "none" and self.how.of_heads:
            if packed is None or packed.container != "array":
                yield FeatureProbe("v_dim", "other", (case.replace(v_head_dim=4),))
            square = packed is not None and packed.is_square
            asked = "many" in self.offer["heads"] and not square and not self.how.roles.kv_heads
            if asked and groups_heads(self, case):
                yield FeatureProbe("kv_heads", "fewer", (grouped(case),))
        default = {p.name: p.default for p in self._named[1]}.get(self.scale_parameter)
        if not self.how.parts and takes_scale(self, case.replace(scale="given"), default):
            yield FeatureProbe("scale", "given", (case.replace(scale="given"),))
        empty = [case.replace(queries=0, keys=0)]
        if "cross" in self.offer["inputs"] and UNLIKE_LENGTHS not in self.reasons:
            empty.append(case.replace(inputs="cross", keys=0))
        empty += [case.replace(batch=0)] if case.layout != "unbatched" else []
        yield FeatureProbe("size", "empty", tuple(empty))
        if reason := no_gradients(self.subject, self.how, self.library, **self.gradient_facts):
            self.reasons["gradients", "yes"] = reason
        else:
            several = [case.replace(gradients="yes", inputs=each) for each in self.offer["inputs"]]
            yield FeatureProbe("gradients", "yes", tuple(several))
        yield from self._zeros_appended()
        yield from weight_probes(case)
        if case.layout == "batch_first" and (self.how.is_usual or self.how.of_heads):
            single = single_sample(case, self.offer)
            weights = [each for each in self.offer["weights"] if each != "none"]
            if takes_single(self, single):
                cases = (single, *(single.replace(weights=each) for each in weights))
                yield FeatureProbe("layout", "unbatched", cases)
        if "many" in self.offer["heads"]:
            yield from grouped_probes(self, case)

    def _zeros_appended(self) -> Iterator[FeatureProbe]:
        """Yield the trial of a key of zeros, where the constructor has torch's switch of it."""
        if self.says_zero_attn:
            case = self.trial_case().replace(zero_attn="yes")
            yield FeatureProbe("zero_attn", "yes", (case,), demanded=True)

    def _other_layout(self) -> Iterator[FeatureProbe]:
        """Yield the trial of the layout that it was not found in, where it says it has both."""
        case = self.trial_case()
        if self.how.of_heads and self.how.arrangement != "rows_of_heads":
            return  # samples and rows are no neighbours there
        for layout in ("batch_first", "sequence_first"):
            if self.says_batch_first and layout not in self.offer["layout"]:
                yield FeatureProbe("layout", layout, (case.replace(layout=layout),), demanded=True)

    def _look(self) -> None:
        """Find whether the future is hidden, and say how the target is called."""
        remarks = [f"called with {self.how}.", *self.scale_remarks]
        self.hides_future = self.fit.causal if self.fit.exact else self._hides_the_future()
        if self.hides_future:
            inputs: tuple[str, ...] = ("self",)
            if "cross" in self.offer["inputs"]:
                self.reasons["inputs", "cross"] = UNEQUAL
                inputs = inputs_of_one_length(self)
            self.offer = self.offer | {"attn": ("causal",), "inputs": inputs}
            self.reasons["attn", "none"] = HIDES
            remarks.append(CAUSAL)
        else:
            config = getattr(self.how.construction, "config", "")
            remarks += as_said(self, config, departs=not self.fit.exact)
        causal = () if self.hides_future else self.config_switches
        self.configured = (*causal, *self.config_windows)
        switches = [each.name for each in self.configured]
        if not self.fit.exact and documented_layout.documents_samples_first(self.subject):
            remarks.append(documented_layout.SAMPLES_FIRST)
        if sizes := self.sizes_of_module:
            named = ", ".join(f"`{name}`" for name in sizes)
            verb = "is" if len(sizes) == 1 else "are"
            remarks.append(f"{named} of its module {verb} set to the sizes of each call.")
        if self.widens:
            remarks.append(WIDER)
        if self.needs_biases:
            remarks.append(f"without biases {self.needs_biases}; it gets those of 0.")
        self.remarks = (
            *remarks,
            *self.norm_remarks,
            *built_remarks(self.how, self.new, switches),
        )

    def _hides_the_future(self) -> bool:
        try:
            return hides_the_future(self, trial_problem(self.how, "self", self.small_dtype))
        except CandidateError:
            return False

    def _narrow(self, case: Case) -> None:
        """Take back keys of another number than the queries where such calls are not right."""
        offered = self.offer["inputs"]
        own = "cross" in offered
        self.cross_switch = switch_of_keys(self, self.ask, self.small_dtype) if own else ""
        if self.cross_switch:
            self.meanings[f"constructor.{self.cross_switch}"] = OF_KEYS
        if UNLIKE_LENGTHS not in self.reasons:
            kept = tuple(each for each in offered if each == "self" or self._takes(case, each))
            if kept != ("self",) and (reason := self.one_shape()):
                kept, self.reasons["inputs", "cross"] = ("self",), reason
            # One of two inputs is a context of any length: to raise at others is no limit of it.
            alone = kept == ("self",) and len(self.how.roles.rows) == len(INPUTS)
            self.offer = self.offer | {"inputs": inputs_of_one_length(self) if alone else kept}
        self.left_out = left_out_in_self(self, case)

    def _takes(self, case: Case, inputs: str) -> bool:
        problem = make_problem(case.replace(inputs=inputs, keys=7))
        try:
            output = self(problem).output
        except CandidateError as error:
            self.reasons["inputs", inputs] = str(error)
            return False
        if output.shape == problem.output_shape:
            if not documented_layout.documents_one_length(self.subject):
                return True
            self.reasons["inputs", inputs] = documented_layout.ONE_LENGTH
            return Search(self.ask, self.small_dtype, SMALL).tried_with(self.how, inputs).exact
        self.reasons["inputs", inputs] = f"the output has shape {output.shape}"
        return False
