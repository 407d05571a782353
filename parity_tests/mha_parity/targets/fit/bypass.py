"""Parts of a target that torch's layer lacks, taken out by name: each returns what it is given.

With rotary positions or norms of queries and keys an attention has no counterpart in torch; without
them it has one. ``--without`` names such parts: methods of the class, functions that its module
names, or modules within the layer. A part is called once, with copies, since the shapes of what it
returns say which of its arguments stand for that.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

from mha_parity.core.candidate import TargetError
from mha_parity.core.option_values import hint_of
from mha_parity.core.parameters import Parameter, Role, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

_active: list[Bypass] = []


class Bypass:
    """Context: the named parts of a target return what they are given; left, all is as it was."""

    def __init__(self, subject: Any, names: Iterable[str] = (), layer: Any = None) -> None:
        asked = tuple(names)
        own = _parameter_names(subject) if asked else set()
        self._names = tuple(name for name in asked if name not in own)
        self._subject, self._layer = subject, layer  # one that is built already, if any
        # Names of all parts, and of those that were found.
        self._known = {name for _, name, _ in _functions(subject)} if asked else set()
        self._held: list[tuple[Any, str, Any]] = []
        self._entered = 0
        # By a part and how its arguments are passed, which of them stand for what it returns.
        self._places: dict[tuple[Any, ...], int | tuple[int, ...]] = {}
        self.found: dict[str, None] = {}
        self.unlike: dict[str, None] = {}  # they return arrays of other shapes than they are given

    def __enter__(self) -> Self:
        self._entered += 1
        if self._names and self._entered == 1:
            _active.append(self)
            for holder, name, function in _functions(self._subject, self._names):
                self.found.setdefault(name)
                self._held.append((holder, name, function))
                _assign(holder, name, self.passing_on(function, name))
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

    def _why_not_taken_out(self) -> str:
        """Return what is wrong with a name where a target is refused all the same, or ""."""
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
        self.found |= dict.fromkeys(named)
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
                arrays = [each for each in (*args, *kwargs.values()) if _is_floating(each)]
                part = self.part.to(arrays[0].device, arrays[0].dtype) if arrays else self.part
                return bypass.passed_on(part, self.name, args, kwargs)

            def __getattr__(self, attribute: str) -> Any:
                value = getattr(vars(self)["part"], attribute)
                return bypass.passing_on(value, self.name) if inspect.ismethod(value) else value

        paths = [path for path, _ in layer.named_modules() if path]
        self._known.update(paths)
        taken = [path for path in paths if self.takes_out(path)]
        held = []
        for path in taken:
            holder, _, name = path.rpartition(".")
            within = layer.get_submodule(holder)
            held.append((within, name, getattr(within, name)))
            setattr(within, name, PassingOn(getattr(within, name), path))
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
        key = name, len(args), *kwargs
        if key not in self._places:
            result = function(*map(_copied, args), **{key: _copied(kwargs[key]) for key in kwargs})
            places = _places(result, given)
            if places is None:
                self.unlike.setdefault(name)
                return result
            self._places[key] = places
        places = self._places[key]
        if isinstance(places, int):
            return given[places]
        return tuple(given[place] for place in places)

    def passing_on(self, function: Any, name: str) -> Any:
        """Return a function that calls another one, and returns the arguments in its place."""
        bound_to_no_object = isinstance(function, staticmethod)
        inner = function.__func__ if bound_to_no_object else function

        @wraps(inner)
        def passing_on(*args: Any, **kwargs: Any) -> Any:
            return self.passed_on(inner, name, args, kwargs)

        return staticmethod(passing_on) if bound_to_no_object else passing_on


def bypassed(layer: Any) -> Any:
    """Return a layer whose modules that are taken out pass their arguments on."""
    torch = sys.modules.get("torch")
    for each in _active:
        if torch is not None and isinstance(layer, torch.nn.Module):
            each.take_out_modules(layer)
    return layer


def is_bypassed(path: str) -> bool:
    """Return whether a part of a layer is taken out by its name."""
    return any(each.takes_out(path.removeprefix("params.")) for each in _active)


def parts_taken_out() -> tuple[str, ...]:
    """Return the names of the parts that are taken out now."""
    return tuple(name for each in _active for name in each.found)


def _functions(
    subject: Any, names: Collection[str] | None = None
) -> Iterator[tuple[Any, str, Any]]:
    """Yield methods of a class, and functions that the modules of its methods name, by holder."""
    kinds = [each for each in getattr(subject, "__mro__", ()) if not _is_of_library(each)]
    methods = [inspect.unwrap(each) for kind in kinds for each in vars(kind).values()
               if inspect.isfunction(each)]  # fmt: skip
    scopes = {id(f.__globals__): f.__globals__ for f in (*methods, inspect.unwrap(subject))
              if inspect.isfunction(f)}  # fmt: skip
    for holder, held in (
        *((each, vars(each)) for each in kinds),
        *((s, s) for s in scopes.values()),
    ):
        for name in held if names is None else names:
            if isinstance(held.get(name), FunctionType | staticmethod):
                yield holder, name, held[name]


def _is_of_library(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind is object or file is None or "site-packages" in file


def _assign(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)


def _parameter_names(subject: Any) -> set[str]:
    """Return the parameters of a function, or of a class's constructor and call."""
    entries = {"__init__", "forward", "__call__", "call"}
    methods: Mapping[str, Any] = vars(subject) if inspect.isclass(subject) else {"call": subject}
    found: set[str] = set()
    for name in entries & methods.keys():
        with suppress(TypeError, ValueError):  # in C Python may not know it
            found |= inspect.signature(methods[name]).parameters.keys()
    return found


def _places(result: Any, given: Sequence[Any]) -> int | tuple[int, ...] | None:
    """Return which arguments have the shapes of a result, None where some array has none."""
    left = {i: each.shape for i, each in enumerate(given) if hasattr(each, "shape")}
    places = []
    several = isinstance(result, tuple | list)
    for array in result if several else (result,):
        shape = getattr(array, "shape", None)
        place = next((i for i, own in left.items() if own == shape), None)
        if place is None:
            return None
        del left[place]
        places.append(place)
    return tuple(places) if several else places[0]


def _is_floating(value: Any) -> bool:
    check = getattr(value, "is_floating_point", None)
    return check is not None and bool(check())


def _copied(value: Any) -> Any:
    """Return an array that a part may write into; what has no copy of its own as it is."""
    if hasattr(value, "detach"):
        return value.detach().clone()
    return value.copy() if type(value).__module__ == "numpy" else value
