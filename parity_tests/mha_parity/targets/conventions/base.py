"""What all conventions share: from a problem to a call, and from its result to an answer."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter as Kind
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mha_parity.cases.memory_layout import present
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets import parameters
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.backends.numpy_arrays import NumpyArrays
from mha_parity.targets.conventions.crash_report import crash
from mha_parity.targets.conventions.signatures import forward
from mha_parity.targets.masks.taken import Passed

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.masks.plan import Plan

LEAVES = (
    *("query", "key", "value", "key_padding_mask", "attn_mask"),
    *("w_q", "w_k", "w_v", "w_out", "b_q", "b_k", "b_v", "b_out"),
)
GENERATORS = ("rng", "generator")  # what the argument for a generator of NumPy's is called


def on_call() -> None:
    """Do nothing before a call; a worker puts what says that the last one ended in its place."""


class Arguments:
    """Fresh copies of a problem's arrays in the case's memory layout, in the library's kind.

    ``given`` keeps what was handed out, as NumPy sees it: whoever watches the call looks there.
    ``leaves`` keeps what of it may have a gradient, as the library has it.
    """

    def __init__(self, problem: Problem, library: Library) -> None:
        self.problem = problem
        self.library = library
        self.given: list[tuple[str, Array]] = []
        self.leaves: dict[str, Any] = {}
        self.masks: dict[str, Passed] = {}
        self._rows: dict[int, Any] = {}

    def array(self, name: str, array: Array) -> Any:
        """Return a fresh copy of ``array``."""
        # Lengths and masks of integers have no NaN to put between their elements.
        copy = present(array, "c" if array.dtype.kind in "iu" else self.problem.case.memory)
        self.given.append((name, copy))
        handed = self.library.from_numpy(copy)
        if name in LEAVES and copy.dtype.kind not in "biu":
            self.leaves[name] = handed
        return handed

    def mask(self, name: str, passed: Passed) -> Any:
        """Return what a mask parameter gets; what is added to the scores may have a gradient."""
        if not isinstance(passed.value, np.ndarray):
            return passed.value
        handed = self.array(name, passed.value)
        if passed.masks and passed.value.dtype.kind not in "biu":
            self.leaves[name] = handed
            self.masks[name] = passed
        return handed

    def rows(self, lay: Callable[[Array], Array]) -> tuple[Any, Any, Any]:
        """Return query, key and value laid out by ``lay``; one object stays one object."""
        given = []
        for name in ("query", "key", "value"):
            source = getattr(self.problem, name)
            if id(source) not in self._rows:
                self._rows[id(source)] = self.array(name, lay(source))
            given.append(self._rows[id(source)])
        return given[0], given[1], given[2]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of somebody's attention, ready to be made; ``given``: the arrays it is made on.

    ``pull`` leads from the result to the gradients as an answer has them, where the case asks for
    them; it raises ``CandidateError`` where there are none.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[tuple[str, Array], ...] = ()
    pull: Callable[[Any], dict[str, Array]] | None = None

    def make(self) -> Any:
        """Make the call.

        Raises
        ------
        CandidateError
            The candidate raised, or tried to leave the process.

        """
        on_call()
        with blamed():
            return self.function(*self.args, **self.kwargs)


class blamed:  # noqa: N801  (reads as a statement: `with blamed():`)
    """Within, warnings are the candidate's own affair and every exception is its crash."""

    def __enter__(self) -> None:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._warnings.__exit__(None, None, None)
        if isinstance(error, CandidateError):
            return
        if isinstance(error, Exception | SystemExit):
            raise crash(error) from None


@dataclass(frozen=True, slots=True)
class FeatureProbe:
    """A feature that a call has to prove: the value of an axis, and cases that have it."""

    axis: str
    value: str
    cases: tuple[Case, ...]


class Convention(ABC):
    """One way of being called. A subclass says what it offers and how it calls.

    ``reasons`` says why a feature that was tried is not offered. ``answer_dtypes`` maps dtypes to
    the narrower ones that they are answered in. ``masks`` is what small calls showed of the mask
    parameters, ``meanings`` says it and ``untried`` why nothing is known of one, by key.
    ``hides_future``: it is causal by itself. ``remarks`` is what to know of every answer.
    """

    name: str = ""  # of the class: the convention's; of an instance: the subject's
    call: ClassVar[str]
    states_offer: ClassVar[bool] = False  # by the subject itself: no small call takes it back
    # Whether dropout is torch's: on the weights alone, and the weights are returned dropped.
    drops_as_torch: ClassVar[bool] = False
    # The mask parameters whose meaning the convention knows; all others are searched for.
    own_masks: frozenset[str] = frozenset()

    def __init__(
        self, subject: Any, *, library: Library | None = None, path: str | None = None
    ) -> None:
        self.name = getattr(subject, "__qualname__", None) or type(subject).__qualname__
        self.subject = subject
        self.library: Library = library or NumpyArrays()
        self.path = path
        self.passed: dict[str, bool] = {}
        self.without: tuple[str, ...] = ()
        self.mask_meanings: Mapping[str, str] = {}
        self.masks: Plan | None = None
        self.meanings: dict[str, str] = {}
        self.untried: dict[str, str] = {}
        self.hides_future = False
        self._tried: Mapping[str, Any] | None = None
        self.remarks: tuple[str, ...] = ()
        self.offer: Offer = self.claims()
        self.reasons: dict[tuple[str, str], str] = {}
        self.answer_dtypes: dict[str, str] = {}

    @property
    def convention(self) -> str:
        """The name of the convention, as ``Candidate`` has it."""
        return type(self).name

    def entry(self) -> Any:
        """Return the function whose parameters are those of the call; a class's takes ``self``."""
        return forward(self.subject) if isinstance(self.subject, type) else self.subject

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of constructor and call; ``passed`` says which of them calls passed."""
        made, called = self._named
        listed = (*parameters.listed(made, "constructor"), *parameters.listed(called, "call"))
        return tuple(
            replace(
                p,
                role=Role.MASK if p.role is Role.OTHER and p.key in self.meanings else p.role,
                meaning=self.meanings.get(p.key, ""),
                reason=self.untried.get(p.key, ""),
            )
            for p in listed
        )

    @cached_property
    def _named(self) -> tuple[Sequence[inspect.Parameter], Sequence[inspect.Parameter]]:
        """The parameters of the constructor, none of a function, and of the call."""
        entry = self.entry()
        called = parameters.named(entry, skip_self=isinstance(self.subject, type))
        return () if entry is self.subject else parameters.named(self.subject), called

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Return a new layer, and keep which parameters of the constructor were passed."""
        self._record(parameters.passed(self._named[0], "constructor", args, kwargs))
        return self.subject(*args, **kwargs)

    def masked(self, call: Call, arguments: Arguments) -> Call:
        """Return the call with what its mask parameters get for the problem of ``arguments``."""
        values = self._mask_values(arguments.problem, "call.")
        if not values:
            return call
        named = self._named[1]
        places = {each.name: place for place, each in enumerate(named)}
        args, kwargs = list(call.args), dict(call.kwargs)
        for name, passed in sorted(values.items(), key=lambda each: places[each[0]]):
            array, place = arguments.mask(name, passed), places[name]
            if named[place].kind is Kind.POSITIONAL_ONLY:
                args += [each.default for each in named[len(args) : place + 1]]
            if place < len(args):
                args[place] = array
            else:
                kwargs[name] = array
        return replace(call, args=tuple(args), kwargs=kwargs, given=tuple(arguments.given))

    def switches(self, problem: Problem) -> dict[str, Any]:
        """Return the causal switches that the constructor gets for a problem."""
        return {k: p.value for k, p in self._mask_values(problem, "constructor.").items()}

    def _mask_values(self, problem: Problem, of: str) -> dict[str, Passed]:
        found = None if self._tried is None else {k: Passed(v) for k, v in self._tried.items()}
        if found is None:
            found = {} if self.masks is None else self.masks.passed(problem)
        return {key.removeprefix(of): v for key, v in found.items() if key.startswith(of)}

    def tried_with(self, problem: Problem, given: Mapping[str, Any]) -> Answer:
        """Return the answer when these parameters are passed, by key, and no other mask."""
        self._tried = given
        try:
            return self(problem)
        finally:
            self._tried = None

    def record(self, call: Call) -> None:
        """Keep which parameters a call passes."""
        self._record(parameters.passed(self._named[1], "call", call.args, call.kwargs))

    def _record(self, found: Mapping[str, bool]) -> None:
        if not found.items() <= self.passed.items():  # answers share the mapping: made anew
            true = {key: True for key, other in found.items() if other}
            self.passed = {**found, **self.passed, **true}

    @abstractmethod
    def claims(self) -> Offer:
        """Return what the signature says that the subject offers."""

    @abstractmethod
    def plain_case(self) -> Case:
        """Return a small case of the plainest features that the convention carries."""

    def probes(self) -> Iterator[FeatureProbe]:
        """Yield the features that the subject may have beyond its claims, if a call proves it."""
        yield from ()

    @abstractmethod
    def prepare(self, problem: Problem) -> Call:
        """Return the call that poses ``problem``, on fresh arrays."""

    def reloaded(self, problem: Problem, earlier: Problem) -> Call | None:
        """Return the call of a layer that answered ``earlier`` before it got its weights."""
        del problem, earlier
        return None

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls of one layer with dropout ``p``: in training, or in evaluation.

        None where the subject has no dropout or no modes.
        """
        del problem, p
        return None

    def drawing(self, named: Iterable[str], problem: Problem) -> dict[str, Any]:
        """Return a NumPy generator under the first of the names it usually goes by."""
        if self.library.name != "numpy":
            return {}
        taken = [name for name in GENERATORS if name in set(named)][:1]
        return {name: np.random.default_rng(problem.case.seed) for name in taken}

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Return what came back as an answer in canonical layout."""
        output, weights = split(result)
        wants = problem.case.weights != "none"
        return Answer(
            output=canonical(problem, to_numpy(output, "the output")),
            weights=canonical_weights(problem, weights) if wants else None,
        )

    def answered(self, problem: Problem, call: Call, result: Any) -> Answer:
        """Return what a call came back with, and its gradients where the case asks for them."""
        self.record(call)
        answer = replace(self.answer(problem, result), parameters=self.passed, remarks=self.remarks)
        return answer if call.pull is None else replace(answer, gradients=call.pull(result))

    def __call__(self, problem: Problem) -> Answer:
        """Pose ``problem`` to the subject and return its answer."""
        call = self.prepare(problem)
        return self.answered(problem, call, call.make())

    def many(self, problems: Iterable[Problem]) -> Iterator[Answer | CandidateError]:
        """Yield the answer to each problem in turn, or the error that came instead."""
        for problem in problems:
            try:
                yield self(problem)
            except CandidateError as error:
                yield error


def has_modes(layer: Any) -> bool:
    """Return whether a layer can be switched between training and evaluation."""
    return all(callable(getattr(layer, name, None)) for name in ("train", "eval"))


def turned(layer: Any, training: bool) -> Any:
    """Return the layer in training or evaluation mode; some switch themselves, some return it."""
    with blamed():
        switched = layer.train() if training else layer.eval()
    return layer if switched is None else switched


def split(result: Any) -> tuple[Any, Any]:
    """Return output and weights of a result that is an output, or a pair of both."""
    if not isinstance(result, tuple | list):
        return result, None
    if len(result) != 2 or isinstance(result, list):
        to_numpy(result, "the output")
    return result[0], result[1]


def lay_rows(problem: Problem) -> Callable[[Array], Array]:
    """Return how rows of the canonical (N, L, E) are handed over in the case's layout."""
    layout = problem.case.layout
    if layout == "unbatched":
        return only_sample
    return (lambda rows: rows.swapaxes(0, 1)) if layout == "sequence_first" else (lambda rows: rows)


def only_sample(array: Array) -> Array:
    """Return the one sample of an unbatched case."""
    if array.shape[0] != 1:
        raise ValueError(f"an unbatched case has batch = {array.shape[0]}, but should have 1.")
    sample: Array = array[0]
    return sample


def canonical(problem: Problem, output: Array) -> Array:
    """Return an output as (N, L, H Dv); one of another rank as it came."""
    layout = problem.case.layout
    if layout == "unbatched" and output.ndim == 2:
        return output[None]
    return output.swapaxes(0, 1) if layout == "sequence_first" and output.ndim == 3 else output


def canonical_weights(problem: Problem, weights: Any) -> Array | None:
    """Return weights as (N, L, S') or (N, H, L, S'); a list of heads is stacked."""
    unbatched = problem.case.layout == "unbatched"
    per_head = problem.case.weights == "per_head"
    if weights is None:
        return None
    if isinstance(weights, list | tuple):
        heads = [to_numpy(head, "the weights of a head") for head in weights]
        if not heads or len({head.shape for head in heads}) > 1:
            message = "the weights of the heads have shapes {}, but should be of one shape."
            raise CandidateError("structure", message.format([head.shape for head in heads]))
        array = np.stack(heads, axis=0 if unbatched else 1)
    else:
        array = to_numpy(weights, "the attention weights")
    if unbatched:
        array = array[None] if array.ndim == (3 if per_head else 2) else array
    if per_head and problem.num_heads == 1 and array.ndim == 3:
        return array[:, None]
    # One head, unbatched, as a plain matrix.
    return array[None, None] if per_head and problem.num_heads == 1 and array.ndim == 2 else array
