"""One call of a target: the arrays it is handed, the call itself, what it raises."""

from __future__ import annotations

import copy
import warnings
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from inspect import Parameter as Kind
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.memory_layout import copy_in_layout
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.backends.list_arrays import ListArrays, of_lists
from mha_parity.targets.calls.crash_report import crash
from mha_parity.targets.calls.jax_compiled import call_compiled
from mha_parity.targets.calls.jax_vjp import JaxVJP
from mha_parity.targets.calls.mask_format import MaskObject

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.calls.mask_format import MaskArgument

LEAVES = (
    *("query", "key", "value", "packed", "key_padding_mask", "attn_mask"),
    *("w_q", "w_k", "w_v", "w_out", "b_q", "b_k", "b_v", "b_out"),
)


def before_call_hook(call: Call) -> None:
    """Do nothing before a call; a worker puts what says that one begins in its place."""


# torch's flex_attention raises it on a CPU where any of its inputs may have a gradient.
NO_BACKWARD = "does not support backward on CPU"
NO_AUTOGRAD = "called under torch.no_grad(): it raises on a CPU where an input may have a gradient."
# The attribute of a function that is called with other numbers of its module than it has: what
# makes such a function of another one.
SAME_NUMBERS = "with_same_numbers"
# Whether calls of JAX's arrays are made operation by operation.
_as_they_stand: ContextVar[bool] = ContextVar("as_they_stand", default=False)


@contextmanager
def as_they_stand(*, on: bool) -> Iterator[None]:
    """Have all calls within made as they stand: nothing that is compiled is compared with them."""
    token = _as_they_stand.set(on)
    try:
        yield
    finally:
        _as_they_stand.reset(token)


def owner_of(function: Callable[..., Any]) -> Any:
    """Return the object that a call's function is a method of, or is itself."""
    return getattr(function, "__self__", function)


def method_of(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a method of the object of a call's function, with the same numbers of its module.

    Raises
    ------
    AttributeError
        The object has none of this name.

    """
    return with_same_numbers(function, getattr(owner_of(function), name))


def with_same_numbers(
    function: Callable[..., Any], other: Callable[..., Any]
) -> Callable[..., Any]:
    """Return another function that is called with the numbers of its module that a call's is."""
    with_same = getattr(function, SAME_NUMBERS, None)
    same: Callable[..., Any] = other if with_same is None else with_same(other)
    return same


def asked_of(call: Call, function: Callable[..., Any]) -> Call:
    """Return a call of the object or function of an earlier one, with its own module numbers."""
    numbered = hasattr(function, SAME_NUMBERS)
    held = getattr(function, "__wrapped__", function) if numbered else function
    return replace(call, function=with_same_numbers(call.function, held))


def with_arguments(
    call: Call, named: Sequence[inspect.Parameter], given: Mapping[str, Any]
) -> Call:
    """Return the call with other or further arguments, by the names of its parameters ``named``."""
    places = {each.name: place for place, each in enumerate(named)}
    args, kwargs = list(call.args), dict(call.kwargs)
    for name, value in sorted(given.items(), key=lambda each: places[each[0]]):
        place = places[name]
        if named[place].kind is Kind.POSITIONAL_ONLY:
            args += [each.default for each in named[len(args) : place + 1]]
        if place < len(args) and named[place].kind is not Kind.KEYWORD_ONLY:
            args[place] = value
        else:
            kwargs[name] = value
    return replace(call, args=tuple(args), kwargs=kwargs)


class Arguments:
    """Fresh copies of a problem's arrays in the case's memory layout, in the library's kind.

    ``given`` keeps what was handed out, as NumPy sees it: whoever watches the call looks there.
    ``leaves`` keeps what of it may have a gradient, as the library has it. ``lists`` keeps what is
    handed out as lists, behind their arrays.
    """

    def __init__(self, problem: Problem, library: Library) -> None:
        self.problem = problem
        self.library = library
        self.given: list[tuple[str, Array]] = []
        self.leaves: dict[str, Any] = {}
        self.lists: list[tuple[Array, list[Any]]] = []
        self.masks: dict[str, MaskArgument] = {}
        self._rows: dict[int, Any] = {}

    def read_back(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function; one that gets lists with arrays in the place of lists it returns."""
        return of_lists(function, self.lists) if isinstance(self.library, ListArrays) else function

    @property
    def of_jax(self) -> bool:
        """Whether they are JAX's, whose functions are compiled."""
        return self.library.name == "jax"

    def array(self, name: str, array: Array) -> Any:
        """Return a fresh copy of ``array``."""
        # Lengths and masks of integers have no NaN to put between their elements.
        copy = copy_in_layout(array, "c" if array.dtype.kind in "iu" else self.problem.case.memory)
        self.given.append((name, copy))
        handed = self.library.from_numpy(copy)
        if isinstance(handed, list):
            self.lists.append((copy, handed))
        if name in LEAVES and copy.dtype.kind not in "biu":
            self.leaves[name] = handed
        return handed

    def mask(self, name: str, passed: MaskArgument) -> Any:
        """Return what a mask parameter gets; what is added to the scores may have a gradient."""
        if isinstance(passed.value, MaskObject):
            return passed.value.made(self.array(name, passed.value.array))
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
    """One call of a target, ready to be made; ``given``: the arrays it is made on.

    ``pull`` leads from the result to the gradients as an answer has them, where the case asks for
    them; it raises ``CandidateError`` where there are none. ``compiles``: it is of JAX's arrays.
    ``remarks``: what is to be said of it once it was made. ``reset`` is the method of the target by
    which it forgets what earlier calls left. ``filled`` are the arguments that it fills: each time
    that it is made, it gets copies of these.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[tuple[str, Array], ...] = ()
    pull: Callable[[Any], dict[str, Array]] | None = None
    compiles: bool = False
    remarks: list[str] = field(default_factory=list)
    reset: str = ""
    filled: tuple[Any, ...] = ()

    @property
    def passed(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments that the function gets, by position and by name."""
        if not self.filled:
            return self.args, self.kwargs

        def given(value: Any) -> Any:
            return copy.deepcopy(value) if any(value is each for each in self.filled) else value

        return tuple(map(given, self.args)), {n: given(each) for n, each in self.kwargs.items()}

    def make(self) -> Any:
        """Make the call; of JAX's arrays compiled as one program, where it can be traced.

        Raises
        ------
        CandidateError
            The candidate raised, or tried to leave the process.

        """
        before_call_hook(self)
        narrow = (x.dtype for _, x in self.given if x.itemsize == 2)
        with target_errors(bfloat16=any(dtype.name == "bfloat16" for dtype in narrow)):
            if self.reset:
                method_of(self.function, self.reset)()
            args, kwargs = self.passed
            if self.compiles and not _as_they_stand.get():
                with suppress(Exception):  # then it is made as it stands
                    if isinstance(self.function, JaxVJP):
                        return self.function.compiled(*args, **kwargs)
                    return call_compiled(self.function, args, kwargs)
            try:
                return self.function(*args, **kwargs)
            except NotImplementedError as error:
                if self.pull is not None or NO_BACKWARD not in str(error):
                    raise
                self.remarks.append(NO_AUTOGRAD)
                return _without_autograd(self)


def _without_autograd(call: Call) -> Any:
    """Make a call of torch's arrays as an inference that tracks no gradients."""
    import torch

    args, kwargs = call.passed
    with torch.no_grad():
        return call.function(*args, **kwargs)


class target_errors:  # noqa: N801  (reads as a statement: `with target_errors():`)
    """Context: ignore warnings; report every exception as a crash of the candidate."""

    def __init__(self, *, bfloat16: bool = False) -> None:
        self._bfloat16 = bfloat16

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
            raise crash(error, bfloat16=self._bfloat16) from None


def positional_and_keyword(
    named: Sequence[inspect.Parameter], values: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return values by position as far as they go without a gap, and by keyword."""
    args: list[Any] = []
    left = dict(values)
    for each in named:
        if each.kind is each.KEYWORD_ONLY or each.name not in left:
            break
        args.append(left.pop(each.name))
    return tuple(args), left
