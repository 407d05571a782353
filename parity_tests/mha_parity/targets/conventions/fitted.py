"""A target called as experiments showed that it is meant: layers and functions of any style."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer, CandidateError, TargetError
from mha_parity.core.features import AXES, make_offer
from mha_parity.targets.conventions.base import NEARLY_KEYS, FeatureProbe
from mha_parity.targets.conventions.dropout_argument import (
    with_dropout_passed,
    with_layer_dropout,
)
from mha_parity.targets.conventions.fitted_gradients import no_gradients
from mha_parity.targets.conventions.grouped_heads import (
    grouped,
    grouped_probes,
    groups_heads,
    look_at_one_head,
)
from mha_parity.targets.conventions.interpreted import ABOVE_RESIDUAL, InterpretedCalls
from mha_parity.targets.conventions.norm_places import inner_norms, norm_remarks
from mha_parity.targets.conventions.optional_arguments import (
    left_out_in_self,
    single_sample,
    takes_scale,
    takes_single,
    without_unread_pair,
)
from mha_parity.targets.conventions.returned_weights import weight_probes
from mha_parity.targets.conventions.self_causal import CAUSAL, HIDES, UNEQUAL, hides_the_future
from mha_parity.targets.fit.bent_scores import bends_scores
from mha_parity.targets.fit.candidates import Layers, function_interpretations
from mha_parity.targets.fit.refine import (
    built_remarks,
    with_channels_permuted,
    with_keys,
    with_lengths,
    with_one_stack,
    with_optional,
    with_samples,
)
from mha_parity.targets.fit.refusals import (
    may_be_another,
    refusal_without_counterpart,
    refuse_around_unapplied,
    refuse_lengths,
    refuse_output_unapplied,
    refuse_own_heads,
    why_refused,
)
from mha_parity.targets.fit.search import (
    MIN_CORRELATION,
    SMALL,
    InterpretationResult,
    Search,
    trial_problem,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.calls import Call
    from mha_parity.targets.fit.interpretation import Interpretation


# Why float16 is left out.
FULL_WIDTH_OVERFLOWS = "heads as wide as the input divide larger products, which leave its range"
RESIDUAL_OVERFLOWS = (
    "the input that is added to the output rounds it, and larger weights leave its range"
)
DTYPES = ("float64", "float32")  # of the small problems, the second for what takes no other
HALF = ("float16", "bfloat16")  # for what raises in both


class Fitted(InterpretedCalls):
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
        self.fit = self._found()
        self.how = self.fit.interpretation
        self.filled = self.how.roles.filled
        self.joins_heads = bool(self.how.slots) and not self.how.parts
        self.place = self._place()
        made = self.how.construction
        self.of_one_length = made is not None and made.longer_by is not None
        if self.how.norms and self.fit.exact:
            self._refuse_inner_norms()
        if self.how.around:
            refuse_around_unapplied(self, self._dtype, causal=self.fit.causal)
        if self.joins_heads and self.fit.exact:
            refuse_output_unapplied(self._ask, self.name, self.how, self._dtype)
        # An inexact one is judged as it is: what is added may depend on the size of the rest.
        if self.how.residual and self.fit.exact and self.how.parts & {"out", "v"}:
            self.above_residual = ABOVE_RESIDUAL
        if self.how.full_width or self.how.residual:
            why = FULL_WIDTH_OVERFLOWS if self.how.full_width else RESIDUAL_OVERFLOWS
            self.left_out_dtypes = {"float16": why}
        return self._offered()

    @property
    def takes_dropout(self) -> bool:
        """Whether the constructor takes a probability of dropout, or asks its configuration."""
        made = self.how.construction
        if made is None or self._layers is None or not made.has("dropout"):
            return False
        return self._layers.asks_for(made, "dropout")

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls of one layer in train() and in eval() mode, or with dropout."""
        if self.how.construction is None:
            return with_dropout_passed(self, problem, p)
        return with_layer_dropout(self, problem, p)

    def _place(self) -> int | None:
        """Return where the output stands, by a problem in which no two sizes are equal."""
        problem = trial_problem(self.how, "self", self._dtype)
        with suppress(CandidateError):  # then shapes have to tell
            several = self.several(self.prepare(problem).make())
            return self.output_of(problem, several)[0] if len(several) > 1 else None
        return None

    @property
    def _dtype(self) -> str:
        """The dtype of small problems."""
        return self.trial_dtype or DTYPES[0]

    def _refuse_inner_norms(self) -> None:
        """Refuse norms between the projections, and keep which rows the others are applied to.

        Raises
        ------
        TargetError
            A norm gets projected rows, or heads.

        """
        problem = trial_problem(self.how, "self", self._dtype)
        if inner := inner_norms(self, problem):
            raise TargetError(refusal_without_counterpart(self.name, inner))
        self.norm_remarks = tuple(norm_remarks(self, problem, causal=self.fit.causal))

    def _found(self) -> InterpretationResult:
        self._layers = Layers(self.subject, self.new) if isinstance(self.subject, type) else None
        trials: list[InterpretationResult] = []
        for dtype in self._searched_dtypes(trials):
            candidates = self._layers or function_interpretations(self.subject)
            search = Search(self._ask, dtype)
            best = search.run(candidates) if dtype in self.library.dtypes else None
            trials += search.trials
            if best is None:
                continue
            best = with_samples(with_one_stack(best, search), search)
            best = with_channels_permuted(best, self.subject, Search(self._ask, dtype))
            if self._layers is not None and not best.exact:
                self._layers.refuse_undecided(self.name)
            taken = self._is_taken(best)
            if not best.exact and (taken or may_be_another(best)):
                refuse_lengths(self._ask, self.name, trials, DTYPES[0])
                if self._layers is not None:
                    refuse_own_heads(self._ask, self.name, trials, dtype, self._layers)
            if taken:
                self.trial_dtype = dtype
                best = self._with_places(best, dtype)
                self._look_for_keys(best, search.trials)
                search = Search(self._ask, dtype)
                read = without_unread_pair(best.interpretation, self._ask, dtype)
                best = with_keys(replace(best, interpretation=read), self._named[1], search)
                return with_optional(
                    with_lengths(best, self._named[0], self._ask, dtype), self._named[1], search
                )
        refuse_lengths(self._ask, self.name, trials, DTYPES[0])
        raise TargetError(why_refused(self.name, self._layers, trials, self.subject))

    def _with_places(self, best: InterpretationResult, dtype: str) -> InterpretationResult:
        """Return the fit with the places of the weights that a method of its own takes over.

        They are those in which the weights themselves, set there, make it compute attention.
        """
        of_module = hasattr(self.subject, "named_parameters")
        if self._layers is None or not (self.takes_torchs and of_module):
            return best
        self.uses_method = False
        found = Search(self._ask, dtype).run(self._layers)
        self.uses_method = True
        self.converts = found is None or not found.exact
        slots = best.interpretation.slots if found is None else found.interpretation.slots
        how = best.interpretation if self.converts else replace(best.interpretation, slots=slots)
        return replace(best, interpretation=how)

    def _look_for_keys(
        self, best: InterpretationResult, trials: Sequence[InterpretationResult]
    ) -> None:
        """Keep why an input that may be left out is not judged as the keys, if it nearly is them.

        Attention over these alone is right; a mistake may hide where they are passed. Of values
        with which calls raise, what they raise is kept.
        """
        how = best.interpretation
        alike = [
            each
            for each in trials
            if (each.interpretation.slots, each.interpretation.layout) == (how.slots, how.layout)
        ]
        by_rows = {rows: [each for each in alike if len(each.interpretation.roles.rows) == rows]
                   for rows in (2, 3)}  # fmt: skip
        if len(how.roles.rows) == 2 and by_rows[3] and by_rows[3][0].raised:
            self.reasons["inputs", "distinct"] = by_rows[3][0].missed
        correlation = max((each.correlation for each in by_rows[2]), default=0.0)
        if best.exact and len(how.roles.rows) == 1 and correlation >= MIN_CORRELATION:
            self.reasons["inputs", "cross"] = f"{NEARLY_KEYS} by {correlation:.2f}"

    def _searched_dtypes(self, trials: list[InterpretationResult]) -> Iterator[str]:
        """Yield the dtypes of small problems: narrow ones where every call in others raised."""
        yield from DTYPES
        if all(each.raised for each in trials):
            yield from HALF

    def _is_taken(self, trial: InterpretationResult) -> bool:
        """Return whether a target is judged by its best interpretation.

        It computes attention; or the names of its weights leave nothing open, or it has none and
        comes near; and it has nothing without a counterpart, which may be neutral as it is built.
        """
        if self._layers is not None and self._layers.offenders:
            return False
        how = trial.interpretation
        if trial.exact or how.around:
            return trial.exact
        if how.unnamed:
            return may_be_another(trial) and self._bends_scores(how)
        if how.may_be_one_query and self._layers is not None:
            return not Search(self._ask, self._dtype).tried_with(how, "cross").raised
        named = frozenset("qkv") <= how.parts and how.is_usual
        return trial.correlation >= (-1.0 if named else MIN_CORRELATION)

    def _bends_scores(self, how: Interpretation) -> bool:
        """Return whether an interpretation is attention but for a function of its scores."""
        inputs = ("self", "cross", "distinct")[len(how.roles.rows) - 1]
        problem = trial_problem(how, inputs, self._dtype)
        return bends_scores(lambda other: self._ask(how, other).output, problem)

    def _ask(self, how: Interpretation, problem: Problem) -> Answer:
        self.how = how
        result = self.prepare(problem).make()
        if self._layers is not None:
            self._layers.answered = True
        return self.answer(problem, result)

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
        regimes = tuple(AXES["regime"])
        if self.above_residual > 1:
            self.reasons["regime", "largest_value"] = RESIDUAL_OVERFLOWS
            regimes = tuple(each for each in regimes if each != "largest_value")
        return make_offer(
            form="mha" if how.parts else "qkv",
            projection=how.projection if how.parts else "none",
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
        """Return the inputs that calls of self-attention are made without."""
        return tuple((name, "left out") for name in sorted(self.left_out))

    def settle(self, found: tuple[tuple[str, str], ...]) -> None:
        """Take them from another process."""
        self.left_out = frozenset(name for name, _ in found)

    def plain_case(self) -> Case:
        """Two samples and two heads, or what the target takes."""
        heads, width = (2, 3) if "many" in self.offer["heads"] else (1, 6)
        unbatched = self.offer["layout"][0] == "unbatched"
        return SMALL.replace(
            batch=1 if unbatched else 2, queries=5, keys=5, heads_count=heads, head_dim=width,
            layout=self.offer["layout"][0], attn=self.plain_attn,
            kv_heads_count=int(self.how.one_kv_head),
            form=self.offer["form"][0], projection=self.offer["projection"][0],
        )  # fmt: skip

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; other layouts, empty axes, weights, wider values."""
        self._look()
        case = self.trial_case()
        self._narrow(case)
        look_at_one_head(self)
        if case.layout == "batch_first" and (self.how.is_usual or self.how.of_heads):
            single = single_sample(case, self.offer)
            if takes_single(self, single):
                yield FeatureProbe("layout", "unbatched", (single,))
        yield from self._other_layout()
        packed = self.how.roles.packed
        if not self.how.parts and self.how.of_heads:
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
        if "cross" in self.offer["inputs"]:
            empty.append(case.replace(inputs="cross", keys=0))
        empty += [case.replace(batch=0)] if case.layout != "unbatched" else []
        yield FeatureProbe("size", "empty", tuple(empty))
        converted = self.takes_torchs and self.converts
        if reason := no_gradients(self.subject, self.how, self.library, converted=converted):
            self.reasons["gradients", "yes"] = reason
        else:
            several = [case.replace(gradients="yes", inputs=each) for each in self.offer["inputs"]]
            yield FeatureProbe("gradients", "yes", tuple(several))
        yield from weight_probes(case)
        if "many" in self.offer["heads"]:
            yield from grouped_probes(self, case)

    def _other_layout(self) -> Iterator[FeatureProbe]:
        """Yield the trial of the layout that it was not found in, where it says it has both."""
        case = self.trial_case()
        for layout in ("batch_first", "sequence_first"):
            if self.says_batch_first and layout not in self.offer["layout"]:
                yield FeatureProbe("layout", layout, (case.replace(layout=layout),))

    def _look(self) -> None:
        """Find whether the future is hidden, and say how the target is called."""
        remarks = [f"called with {self.how}."]
        self.hides_future = self.fit.causal if self.fit.exact else self._hides_the_future()
        if self.hides_future:
            if "cross" in self.offer["inputs"]:
                self.reasons["inputs", "cross"] = UNEQUAL
            self.offer = self.offer | {"attn": ("causal",), "inputs": ("self",)}
            self.reasons["attn", "none"] = HIDES
            remarks.append(CAUSAL)
        self.configured = () if self.hides_future else self.config_switches
        switches = [each.name for each in self.configured]
        self.remarks = (*remarks, *self.norm_remarks, *built_remarks(self.how, self.new, switches))

    def _hides_the_future(self) -> bool:
        try:
            return hides_the_future(self, trial_problem(self.how, "self", self._dtype))
        except CandidateError:
            return False

    def _narrow(self, case: Case) -> None:
        """Take back keys of another number than the queries where such calls are not right."""
        kept = [each for each in self.offer["inputs"] if each == "self" or self._takes(case, each)]
        self.offer = self.offer | {"inputs": tuple(kept)}
        self.left_out = left_out_in_self(self, case)

    def _takes(self, case: Case, inputs: str) -> bool:
        problem = make_problem(case.replace(inputs=inputs, keys=7))
        try:
            output = self(problem).output
        except CandidateError as error:
            self.reasons["inputs", inputs] = str(error)
            return False
        if output.shape == problem.output_shape:
            return True
        self.reasons["inputs", inputs] = f"the output has shape {output.shape}"
        return False
