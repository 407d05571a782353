"""Base of all conventions: from a problem to a call, and from its result to an answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from mha_parity.core.candidate import Answer, without_place
from mha_parity.core.case import Case
from mha_parity.core.features import IN_EVERY_CALL, SQUARE, UNLIKE_LENGTHS
from mha_parity.core.parameters import Role
from mha_parity.core.target_facts import TargetFacts
from mha_parity.targets.backends import library as library_named
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.call_source import python_of_call
from mha_parity.targets.calls.canonical_layout import (
    canonical,
    canonical_weights,
    in_torchs_order,
    split_result,
)
from mha_parity.targets.calls.log_sum_exp import LogSumExp
from mha_parity.targets.calls.mask_format import MaskArgument, MaskFormat
from mha_parity.targets.calls.target_call import Arguments, Call, with_arguments
from mha_parity.targets.interpretations.roles import infer_inputs, is_no_input
from mha_parity.targets.layers.removed_parts import Bypass, bypassed
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.argument_meanings import alike_heads, given_windows, whole_windows
from mha_parity.targets.static.signatures import forward

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.core.features import Offer
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.calls.cache_arguments import CacheUse
    from mha_parity.targets.calls.mask_plan import MaskPlan
    from mha_parity.targets.static.window_arguments import WindowUse

# A small case of a whole layer: conventions begin with it.
PLAIN_LAYER = Case(seed=7, batch=2, queries=5, keys=5, heads_count=2, head_dim=3)
PLAIN_CORE = PLAIN_LAYER.replace(form="qkv", projection="none")
# How the reason begins that an input which may be left out is not judged as the keys.
NEARLY_KEYS = "only correlates with attention over it"


@dataclass(frozen=True, slots=True)
class FeatureProbe:
    """A feature that a call has to prove: the value of an axis, and cases that have it."""

    axis: str
    value: str
    cases: tuple[Case, ...]
    demanded: bool = False  # a name of torch's says that the target has it: then it is judged


class Convention(ABC):
    """One way of being called. A subclass says what it offers and how it calls.

    ``reasons`` says why a feature that was tried is not offered. ``answer_dtypes`` maps dtypes to
    the narrower ones that they are answered in. ``masks`` is what small calls showed of the mask
    parameters, ``meanings`` says it and ``untried`` why nothing is known of one, by key.
    ``hides_future``: it is causal by itself. ``remarks`` is what to know of every answer.
    ``own_weights`` are those that it is judged with over all else. ``cache`` is how a key/value
    cache is passed, None where none is found, and ``windows`` how each window is.
    """

    name: str = ""  # of the class: the convention's; of an instance: the subject's
    call: ClassVar[str]
    states_offer: ClassVar[bool] = False  # by the subject itself: no small call takes it back
    # Whether dropout is torch's: on the weights alone, and the weights are returned dropped.
    drops_as_torch: ClassVar[bool] = False
    # The dtypes in which its calls would not be the target's own arithmetic, each with the reason.
    left_out_dtypes: Mapping[str, str] = MappingProxyType({})
    # The dtype of small calls, where that of the plain case is the reason that they raise.
    trial_dtype = ""
    # The mask parameters whose meaning the convention knows; all others are searched for.
    own_masks: frozenset[str] = frozenset()
    read_beside: tuple[tuple[str, MaskFormat], ...] = ()  # without which others are not read
    in_every_call: tuple[str, ...] = ()  # optional masks without which calls raise
    of_one_length: bool = False  # an object takes calls of the length alone that it was built for
    of_one_batch: bool = False  # the same may hold of the number of samples
    bounds: frozenset[str] = frozenset()  # keys of sizes that are called after a window
    weights_axes: str = ""  # those of returned weights by documentation, as "HNLS"; "" for torch's
    longest: int = 0  # rows that gradients are asked of, 0 for any number
    float32_masks: bool = False  # torch's function gets such masks beside queries of float64
    joins_heads: bool = False  # by a matrix of its own, which is filled with the identity
    # The parameters of the call that inputs, weights and sizes take: no masks.
    filled: frozenset[str] = frozenset()

    def __init__(
        self, subject: Any, *, library: Library | None = None, path: str | None = None
    ) -> None:
        self.name = getattr(subject, "__qualname__", None) or type(subject).__qualname__
        self.subject = subject
        self.library: Library = library or library_named("numpy", "cpu")
        self.path = path
        self.passed: dict[str, bool] = {}
        self.without: tuple[str, ...] = ()
        self.bypass = Bypass(subject)  # a context of all calls
        self.mask_meanings: Mapping[str, str] = {}
        self.masks: MaskPlan | None = None
        self.meanings: dict[str, str] = {}
        self.mask_switches: dict[str, str] = {}  # by key, the mask that they leave unread
        self.untried: dict[str, str] = {}
        self.configured: tuple[Parameter, ...] = ()  # what is read of a configuration
        self.hides_future = False
        self._tried: Mapping[str, Any] | None = None
        self.window_passed: Mapping[str, Any] = {}  # by key, in all calls that are prepared
        self._built_with: tuple[Sequence[Any], Mapping[str, Any]] | None = None
        self.remarks: tuple[str, ...] = ()
        self.own_weights: OwnWeights | None = None
        self.reasons: dict[tuple[str, str], str] = {}
        self.offer: Offer = self.claims()
        self.answer_dtypes: dict[str, str] = {}
        self.cache: CacheUse | None = None
        self.windows: tuple[WindowUse, ...] = ()
        self.log_sum_exp: LogSumExp | None = None

    @property
    def convention(self) -> str:
        """The name of the convention, as ``Candidate`` has it."""
        return type(self).name

    def entry(self) -> Any:
        """Return the function whose parameters are those of the call; a class's takes ``self``."""
        return forward(self.subject) if isinstance(self.subject, type) else self.subject

    def modes(self, *, training: bool) -> dict[str, Any]:
        """Return what the parameters of a call get that say whether it is made in training."""
        return call_parameters.modes_of(self._named[1], training=training)

    @property
    def facts(self) -> TargetFacts:
        """Facts that small calls showed, as ``Candidate`` has them."""
        return TargetFacts(
            reasons=self.reasons,
            parameters=(*self.parameters, *self.bypass.parameters),
            answer_dtypes=self.answer_dtypes,
            own_weights=self.own_weights,
            longest=self.longest,
            float32_masks=self.float32_masks,
            compiles=self.library.name == "jax",
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of constructor and call; ``passed`` says which of them calls passed."""
        made, called = self._named
        listed = (
            *call_parameters.described(made, "constructor"),
            *call_parameters.described(called, "call"),
            *self._unfollowed,
            *self.configured,
        )
        return tuple(
            replace(
                p,
                role=self._role(p),
                meaning=self._meaning(p),
                reason=self.untried.get(p.key, p.reason),
            )
            if p.key != f"call.{self._keys_alike}"
            else replace(p, role=Role.KEYS, reason=without_place(self.reasons["inputs", "cross"]))
            for p in listed
        )

    def _meaning(self, parameter: Parameter) -> str:
        """Return what small calls showed of a parameter; of a mask whether calls need it."""
        found = self.meanings.get(parameter.key, "") or self._of_square_alone(parameter)
        always = f"passed {IN_EVERY_CALL}" if parameter.name in self.in_every_call else ""
        return ", ".join(filter(None, (found, always)))

    def _role(self, parameter: Parameter) -> Role:
        """Return what a parameter is for, as small calls showed where its name does not say it."""
        if parameter.key in {*self.mask_switches, *self.bounds}:
            return Role.OTHER
        found = parameter.role is Role.OTHER and parameter.key in {*self.meanings, *self.untried}
        return Role.MASK if found else parameter.role

    @property
    def _keys_alike(self) -> str:
        """The input of a layer's call for the keys, if it raised on S unlike L or is not that.

        A function of three arrays says nothing of their lengths: a remark is enough.
        """
        reason = self.reasons.get(("inputs", "cross"), "")
        unserved = reason.startswith(("raised ", NEARLY_KEYS))
        if not (unserved and isinstance(self.subject, type) and self.offer["inputs"] == ("self",)):
            return ""
        return self._keys

    @property
    def _keys(self) -> str:
        """The input of the call for the keys, "" if none is."""
        found = infer_inputs([p for p in self._named[1] if not is_no_input(p)])
        return next((name for name, role in found if role == "key"), "")

    def _of_square_alone(self, parameter: Parameter) -> str:
        """Say of the keys that as many as queries alone are taken, where it is so."""
        reason = without_place(self.reasons.get(UNLIKE_LENGTHS, ""))
        if not reason or parameter.key != f"call.{self._keys}":
            return ""
        return f"rows of keys are taken {SQUARE} ({reason})"

    @cached_property
    def _named(self) -> tuple[Sequence[inspect.Parameter], Sequence[inspect.Parameter]]:
        """The parameters of the constructor, none of a function, and of the call."""
        entry = self.entry()
        owner = self.subject if isinstance(self.subject, type) else None
        called = call_parameters.of_callable(entry, skip_self=owner is not None, owner=owner)
        return () if entry is self.subject else call_parameters.of_callable(self.subject), called

    @property
    def call_parameters(self) -> Sequence[inspect.Parameter]:
        """The parameters of the call."""
        return self._named[1]

    @cached_property
    def _unfollowed(self) -> tuple[Parameter, ...]:
        """The ``**kwargs`` of the call, where what is behind them is not known."""
        owner = self.subject if isinstance(self.subject, type) else None
        return call_parameters.unfollowed(self.entry(), owner)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Return a new layer, and keep which parameters of the constructor were passed.

        As many heads of keys as of queries, and value heads as wide, are no trial of either, nor
        are whole windows, nor a switch without a default that has to be on.
        """
        named = self._named[0]
        found = call_parameters.passed_keys(named, "constructor", args, kwargs)
        untried = alike_heads(named, args, kwargs) | whole_windows(named)
        untried |= call_parameters.switched_on(named, kwargs)
        alike = {f"constructor.{name}" for name in untried} - {
            *(self._tried or ()),
            *self.window_passed,
        }
        self._record({key: differs for key, differs in found.items() if key not in alike})
        self._built_with = (args, kwargs)
        return bypassed(self.subject(*args, **kwargs))

    def as_python(self, call: Call) -> str:
        """Return the call that was prepared last as lines of Python."""
        return python_of_call(self.subject, self._built_with, self._named[1], call)

    def with_masks(self, call: Call, arguments: Arguments) -> Call:
        """Return the call with what its mask parameters get for the problem of ``arguments``."""
        values = self._mask_values(arguments.problem, "call.")
        if not values:
            return call
        given = {name: arguments.mask(name, passed) for name, passed in values.items()}
        return replace(with_arguments(call, self._named[1], given), given=tuple(arguments.given))

    def switches(self, problem: Problem) -> dict[str, Any]:
        """Return the causal switches that the constructor gets for a problem."""
        return {k: p.value for k, p in self._mask_values(problem, "constructor.").items()}

    def _mask_values(self, problem: Problem, of: str) -> dict[str, MaskArgument]:
        whole = given_windows(self._named[of == "call."], problem.case).items()
        found = {f"{of}{name}": MaskArgument(size) for name, size in whole}
        if self._tried is not None:
            found |= {key: taken.hiding_nothing(problem) for key, taken in self.read_beside}
            tried = self._tried.items()
            found |= {k: v if isinstance(v, MaskArgument) else MaskArgument(v) for k, v in tried}
        elif (plan := self.masks) is not None:
            # A required mask has a plan before it is known whether the future is hidden.
            if plan.causal_inside != self.hides_future:
                plan = self.masks = replace(plan, causal_inside=self.hides_future)
            found |= plan.passed(problem)
        found |= {key: MaskArgument(size) for key, size in self.window_passed.items()}
        return {key.removeprefix(of): v for key, v in found.items() if key.startswith(of)}

    def answer_with(self, problem: Problem, given: Mapping[str, Any]) -> Answer:
        """Return the answer when these parameters are passed, by key, and no other mask."""
        self._tried = given
        try:
            return self(problem)
        finally:
            self._tried = None

    def record(self, call: Call) -> None:
        """Keep which parameters a call passes, those that are filled up left out."""
        found = call_parameters.passed_keys(self._named[1], "call", call.args, call.kwargs)
        idle = {f"call.{name}" for name in whole_windows(self._named[1])}.difference(
            self.window_passed
        )
        tried = self._understood() | {*(self._tried or ())}
        idle |= {f"call.{name}" for name in self.filled_up} - tried
        self._record({key: differs for key, differs in found.items() if key not in idle})

    def record_cache(self, keys: Sequence[str]) -> None:
        """Keep that these parameters got what an earlier call returned."""
        self._record(dict.fromkeys(keys, True))

    @property
    def filled_up(self) -> tuple[str, ...]:
        """The required parameters of a call that get something without effect."""
        return ()

    def _understood(self) -> set[str]:
        """Return the keys of the parameters that masks, lengths or a causal rule are passed in."""
        plan = self.masks
        found = () if plan is None else chain(*plan.by_layout.values())
        return {each.parameter.key for each in found if each.taken}

    def _record(self, found: Mapping[str, bool]) -> None:
        if not found.items() <= self.passed.items():  # answers share the mapping: made anew
            true = {key: True for key, other in found.items() if other}
            self.passed = {**found, **self.passed, **true}

    @abstractmethod
    def claims(self) -> Offer:
        """Return what the signature says that the subject offers."""

    def settled(self) -> tuple[tuple[str, str], ...]:
        """Return what trials settled of the call beside masks, as ``settle`` reads it."""
        return () if self.log_sum_exp is None else (self.log_sum_exp.settled,)

    def settle(self, found: tuple[tuple[str, str], ...]) -> None:
        """Take what trials in another process settled, where none are made in this one."""
        self.log_sum_exp = LogSumExp.of(found)

    @abstractmethod
    def plain_case(self) -> Case:
        """Return a small case of the plainest features that the convention carries."""

    @property
    def plain_attn(self) -> str:
        """The mask of plain cases: the causal rule where the subject hides the future by itself."""
        return "causal" if self.hides_future else "none"

    def trial_case(self) -> Case:
        """Return the plain case in the dtype in which small calls go through."""
        case = self.plain_case()
        return case.replace(dtype=self.trial_dtype) if self.trial_dtype else case

    def probes(self) -> Iterator[FeatureProbe]:
        """Yield the features that the subject may have beyond its claims, if a call proves it."""
        yield from ()

    @abstractmethod
    def prepare(self, problem: Problem) -> Call:
        """Return the call on ``problem``, with new arrays."""

    def call_after_loading(
        self, problem: Problem, earlier: Problem, ask: Callable[[Call], object] = Call.make
    ) -> Call | None:
        """Return the call of a layer that answered ``earlier`` before it got its weights.

        ``ask`` makes the call for ``earlier``.
        """
        del problem, earlier, ask
        return None

    def not_saved(self, problem: Problem, call: Call) -> str:
        """Name a weight that the layer of a call saves otherwise than it was loaded; "" if none."""
        del problem, call
        return ""

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls of one layer with dropout ``p``: in training, or in evaluation.

        None where the subject has no dropout or no modes.
        """
        del problem, p
        return None

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Return what came back as an answer in canonical layout."""
        output, weights = split_result(result)
        wants = problem.case.weights != "none"
        return Answer(
            output=canonical(problem, to_numpy(output, "the output")),
            weights=canonical_weights(problem, weights) if wants else None,
        )

    def answered(self, problem: Problem, call: Call, result: Any) -> Answer:
        """Return what a call came back with, and its gradients where the case asks for them."""
        self.record(call)
        said = self.remarks = tuple(dict.fromkeys((*self.remarks, *call.remarks)))
        answer = replace(self.answer(problem, result), parameters=self.passed, remarks=said)
        if self.weights_axes:
            answer = in_torchs_order(problem, answer, self.weights_axes)
        if self.log_sum_exp is not None:
            answer = replace(answer, log_sum_exp=self.log_sum_exp.read(problem, result))
        return answer if call.pull is None else replace(answer, gradients=call.pull(result))

    def __call__(self, problem: Problem) -> Answer:
        """Call the subject on ``problem`` and return its answer."""
        call = self.prepare(problem)
        return self.answered(problem, call, call.make())
