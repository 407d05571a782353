"""Parts of a target that torch's layer lacks, taken out by name: each returns what it is given.

With rotary positions or norms of queries and keys an attention has no counterpart in torch; without
them it has one. ``--without`` names such parts: methods of the class, functions that its module
names, or modules within the layer. A part is called once for each way in which its arguments are
passed, with copies, since the shapes of what it returns say which of its arguments stand for that.
Zeros stand for what is added to the scores, by its name.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from copy import deepcopy
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mha_parity.core.candidate import TargetError
from mha_parity.core.option_values import hint_of
from mha_parity.core.parameters import Parameter, Role, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

PASSING_ON = "PassingOn"  # the class of what stands in the place of a module
_active: list[Bypass] = []
_ENTRIES = ("__init__", "forward", "__call__", "call")
_LIBRARIES = re.compile(r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3")
# Names of what turns or shifts rows, beside the rows; it may have the shape of one sample's rows.
_TABLE = re.compile(r"cos|sin|freq|angle|theta|pos|table|emb", re.IGNORECASE)


ADDED = -1  # in the place of an argument: zeros stand for what the part makes
# Names of what is added to the scores.
_ADDED = re.compile(r"alibi|bias|slopes", re.IGNORECASE)


class Bypass:
    """Context: the named parts of a target return what they are given; left, all is as it was."""

    def __init__(self, subject: Any, names: Iterable[str] = (), layer: Any = None) -> None:
        asked = tuple(names)
        own = _parameter_names(subject) if asked else set()
        self._names = tuple(name for name in asked if name not in own)
        self._functions = [*_functions(subject)] if self._names else []
        self._layer = layer if _is_module(layer) else None  # one that is built already
        self._known = {name for _, name, _ in self._functions}  # names of all parts
        self._held: list[tuple[Any, str, Any]] = []
        self._entered = 0
        # By a part and how its arguments are passed, which of them stand for what it returns.
        self._places: dict[tuple[Any, ...], int | tuple[int, ...]] = {}
        self.found: dict[str, None] = {}
        self.used: set[str] = set()  # those that a call ran
        self.unlike: dict[str, None] = {}  # they return arrays of other shapes than they are given

    def __enter__(self) -> Self:
        self._entered += 1
        if not self._names or self._entered > 1:
            return self
        _active.append(self)
        if not self._places:
            _forget_traces()
        for holder, name, function in self._functions:
            if name in self._names:
                self.found.setdefault(name)
                self._held.append((holder, name, function))
                _assign(holder, name, self._passing_on(function, name))
        if self._layer is not None:
            self._held += self.take_out_modules(self._layer)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered -= 1
        if self._names and self._entered == 0:
            _active.remove(self)
            while self._held:
                _assign(*self._held.pop())
            if isinstance(error, TargetError) and (said := self._why_not_taken_out()):
                raise TargetError(said) from None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parts that were found, as entries beside the target's parameters."""
        return tuple(
            Parameter(name=name, of="part", role=Role.PART, status=Status.EXCLUDED)
            for name in self.found
        )

    def require_taken_out(self) -> None:
        """Refuse a part that calls ran as it is, or did not run.

        Raises
        ------
        TargetError
            There is one: the verdict would say that the target was judged without it.

        """
        if said := self._why_not_taken_out():
            raise TargetError(said)
        if idle := [name for name in self.found if name not in self.used]:
            raise TargetError(
                f"got --without {','.join(idle)}, but no call runs `{idle[0]}`; leave it out."
            )

    def _why_not_taken_out(self) -> str:
        """Return what is wrong with a name of a part, or ""."""
        if self.unlike:
            said = " and ".join(f"`{name}`" for name in self.unlike)
            return (
                f"got --without {','.join(self.unlike)}, but what {said} returns has other shapes "
                "than what it is given, which cannot stand for it; name the part that applies it "
                "to the queries and keys."
            )
        for name in self._names:
            hint = "" if name in self.found else hint_of(name, self._known)
            if hint:
                return f"got --without {name}, but the target has no part of that name; {hint}"
        return ""

    def takes_out(self, path: str) -> bool:
        """Return whether a module within the layer is one of the parts, and keep that it is."""
        named = {path, path.rpartition(".")[2]} & {*self._names}
        self.found |= dict.fromkeys(sorted(named))
        return bool(named)

    def take_out_modules(self, layer: Any) -> list[tuple[Any, str, Any]]:
        """Put what passes its arguments on in the place of modules within a layer of torch.

        Returns the module that holds each, its name there, and the module that was there.
        """
        import torch

        bypass = self

        class PassingOn(torch.nn.Module):
            """The place of a part that is taken out; its weights are none of the layer's."""

            def __init__(self, part: Any, name: str) -> None:
                super().__init__()
                vars(self).update(part=part, name=name)

            def forward(self, *args: Any, **kwargs: Any) -> Any:
                called = wraps(self.part.forward)(_of_copy(self.part, "__call__"))
                return bypass.passed_on(called, self.name, args, kwargs)

            def __getattr__(self, attribute: str) -> Any:
                part = vars(self)["part"]
                value = getattr(part, attribute)
                if not inspect.ismethod(value):
                    return value
                function = wraps(value)(_of_copy(part, attribute))
                return bypass._passing_on(function, self.name)

        paths = [path for path, _ in layer.named_modules(remove_duplicate=False) if path]
        self._known.update(paths)
        held = []
        for path in [path for path in paths if self.takes_out(path)]:
            holder, _, name = path.rpartition(".")
            within = layer.get_submodule(holder)
            part = getattr(within, name)
            if type(part).__name__ != PASSING_ON:
                held.append((within, name, part))
                setattr(within, name, PassingOn(part, path))
        return held

    def passed_on(
        self,
        function: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return the arguments that have the shapes of what a function returns, in its order."""
        given = [*args, *kwargs.values()]
        key = name, getattr(function, "__qualname__", ""), len(args), *kwargs
        if key not in self._places:
            named = _names_of(function, len(args), kwargs)
            try:
                result = function(*map(_copied, args), **{k: _copied(kwargs[k]) for k in kwargs})
            except Exception:
                # A table of positions that a call lacks is None: what is rotated is passed on.
                rows = _rows(given, named)
                if not rows or all(each is not None for each in given):
                    raise
                self.used |= {name, name.rpartition(".")[2]}
                return rows[0] if len(rows) == 1 else tuple(rows)
            places = _places(result, given, named)
            if places is None and _is_added(name, result):
                places = ADDED
            if places is None:
                self.unlike.setdefault(name)
                return function(*args, **kwargs)
            self._places[key] = places
        self.used |= {name, name.rpartition(".")[2]}
        places = self._places[key]
        if places == ADDED:
            return _zeros_like(function(*args, **kwargs))
        if isinstance(places, int):
            return given[places]
        return tuple(given[place] for place in places)

    def _passing_on(self, function: Any, name: str) -> Any:
        """Return a function that calls another one, and returns the arguments in its place."""
        unbound = isinstance(function, staticmethod | classmethod)
        inner = function.__func__ if unbound else function

        @wraps(inner)
        def passing_on(*args: Any, **kwargs: Any) -> Any:
            return self.passed_on(inner, name, args, kwargs)

        return type(function)(passing_on) if unbound else passing_on


def bypassed(layer: Any) -> Any:
    """Return a layer whose modules that are taken out pass their arguments on."""
    if _is_module(layer):
        for each in _active:
            each.take_out_modules(layer)
    return layer


def is_bypassed(path: str) -> bool:
    """Return whether a part of a layer is taken out by its name."""
    plain = path.removeprefix("params.")
    taken = [each for each in _active if each.takes_out(plain)]
    for each in taken:
        each.used |= {plain, plain.rpartition(".")[2]}
    return bool(taken)


def parts_taken_out() -> tuple[str, ...]:
    """Return the names of the parts that are taken out now."""
    return tuple(name for each in _active for name in each.found)


def _forget_traces() -> None:
    """Have JAX trace functions anew: a part runs where they are traced, and not in their calls."""
    if jax := sys.modules.get("jax"):
        jax.clear_caches()


def _is_module(layer: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(layer, torch.nn.Module)


def _of_copy(part: Any, attribute: str) -> Callable[..., Any]:
    """Return a method of a copy of a module, in the dtype and on the device of its arguments."""

    def called(*args: Any, **kwargs: Any) -> Any:
        arrays = [each for each in (*args, *kwargs.values()) if _is_floating(each)]
        copied = deepcopy(part)
        copied = copied.to(arrays[0].device, arrays[0].dtype) if arrays else copied
        return getattr(copied, attribute)(*args, **kwargs)

    called.__qualname__ = attribute
    return called


def _functions(subject: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield methods of a class, and functions that the modules of its methods name, by holder."""
    subject = getattr(subject, "func", subject)  # of a partial
    own = str(getattr(subject, "__module__", "")).partition(".")[0]
    kinds = [each for each in getattr(subject, "__mro__", ()) if not _is_of_library(each, own)]
    methods = [inspect.unwrap(each) for kind in kinds for each in vars(kind).values()
               if inspect.isfunction(each)]  # fmt: skip
    scopes = {id(f.__globals__): f.__globals__ for f in (*methods, inspect.unwrap(subject))
              if inspect.isfunction(f)}  # fmt: skip
    by_holder: list[tuple[Any, Mapping[str, Any]]] = [(kind, vars(kind)) for kind in kinds]
    by_holder += [(scope, scope) for scope in scopes.values()]
    for holder, held in by_holder:
        for name, value in [*held.items()]:
            of_class = isinstance(value, staticmethod | classmethod)
            if of_class or (callable(value) and not inspect.isclass(value)):
                yield holder, name, value


def _is_of_library(kind: type, own: str) -> bool:
    """Return whether a class is none of the target's package, and of an installed one."""
    if kind.__module__.partition(".")[0] == own:
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is None or _LIBRARIES.search(file) is not None


def _assign(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)


def _parameter_names(subject: Any) -> set[str]:
    """Return the parameters of a function, or of a class's constructor and call."""
    of_class = inspect.isclass(subject)
    calls = [getattr(subject, each, None) for each in _ENTRIES] if of_class else [subject]
    found: set[str] = set()
    for each in filter(None, calls):
        with suppress(TypeError, ValueError):  # in C Python may not know it
            found |= inspect.signature(each).parameters.keys()
    return found


def _names_of(function: Any, count: int, kwargs: Mapping[str, Any]) -> list[str]:
    """Return the names of ``count`` arguments by position, and of those by keyword."""
    named: list[str] = []
    with suppress(TypeError, ValueError):
        named = [*inspect.signature(function).parameters][:count]
    return [*named, *[""] * (count - len(named)), *kwargs]


def _places(
    result: Any, given: Sequence[Any], names: Sequence[str]
) -> int | tuple[int, ...] | None:
    """Return which arguments have the shapes of a result, None where some array has none.

    Of several of one shape it is the first that is not named after a table of positions.
    """
    left = [i for i, each in enumerate(given) if hasattr(each, "shape")]
    left.sort(key=lambda i: bool(_TABLE.search(names[i])))
    places = []
    several = isinstance(result, tuple | list)
    for array in result if several else (result,):
        shape = getattr(array, "shape", None)
        place = next((i for i in left if given[i].shape == shape), None)
        if place is None:
            return None
        left.remove(place)
        places.append(place)
    return tuple(places) if several else places[0]


def _rows(given: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Return the arrays among arguments that are no tables of positions."""
    return [
        each
        for each, name in zip(given, names, strict=True)
        if hasattr(each, "shape") and not _TABLE.search(name)
    ]


def _is_added(name: str, result: Any) -> bool:
    """Return whether a part makes floats of several axes that are added to the scores, by its name.

    Zeros stand for them. Where they are not added, the cases show it.
    """
    axes, kind = len(getattr(result, "shape", ())), str(getattr(result, "dtype", ""))
    return _ADDED.search(name) is not None and axes > 1 and "float" in kind


def _zeros_like(array: Any) -> Any:
    if hasattr(array, "new_zeros"):
        return array.new_zeros(array.shape)
    library: Any = np if isinstance(array, np.ndarray) else sys.modules["jax.numpy"]
    return library.zeros_like(array)


def _is_floating(value: Any) -> bool:
    check = getattr(value, "is_floating_point", None)
    return check is not None and bool(check())


def _copied(value: Any) -> Any:
    """Return an array that a part may write into; what has no copy of its own as it is."""
    if hasattr(value, "detach"):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value
