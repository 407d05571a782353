"""Parameters of a callable, by order and by kind."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a callable, ``self`` left out.

    ``required`` are positional and have no default, ``optional`` are positional with a default,
    ``named`` can be given by keyword; ``open`` says that it takes any keyword besides.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    named: frozenset[str]
    open: bool
    annotations: tuple[tuple[str, Any], ...] = ()

    def takes(self, name: str) -> bool:
        """Return whether ``name`` can be passed by keyword."""
        return self.open or name in self.named

    def __str__(self) -> str:
        """Show the parameters as one would write them."""
        words = [*self.required, *(f"{name}=..." for name in self.optional)]
        words += [f"*, {', '.join(more)}" for more in [sorted(self._keyword_only())] if more]
        return f"({', '.join(words + ['**'] * self.open)})"

    def _keyword_only(self) -> set[str]:
        return set(self.named) - set(self.required) - set(self.optional)


ANY = Signature((), (), frozenset(), open=True)
"""Of what Python cannot look into."""


def signature(function: Any) -> Signature | None:
    """Return the signature of a callable, or None where Python cannot know it (in C)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return _of(parameters)


def constructor(kind: Any) -> Signature | None:
    """Return the signature of a class's constructor; one of ``**kwargs`` is its base's as well."""
    own = signature(kind)
    if own is None or not own.open:
        return own
    for base in getattr(kind, "__mro__", ())[1:]:
        above = signature(base) if base is not object else None
        if above is not None and not above.open:
            named = own.named | above.named
            return Signature(own.required or above.required, own.optional, named, open=False)
    return own


def _of(parameters: Iterable[inspect.Parameter]) -> Signature:
    listed = list(parameters)
    positional = [p for p in listed if p.kind in _POSITIONAL]
    named = [p for p in listed if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}]
    return Signature(
        required=tuple(p.name for p in positional if p.default is p.empty),
        optional=tuple(p.name for p in positional if p.default is not p.empty),
        named=frozenset(p.name for p in named),
        open=any(p.kind is p.VAR_KEYWORD for p in listed),
        annotations=tuple((p.name, p.annotation) for p in listed if p.annotation is not p.empty),
    )


_OF_ROWS = re.compile(r"q|quer(y|ies)|k|keys?|v|val|values?")


def by_letter(names: Sequence[str]) -> tuple[int, int, int]:
    """Return which of query, key and value three parameters are, by a letter of their names.

    It is the one that they begin with, or their last word does. Where whole names tell two, the
    third is what is left (`inputs, k, q`); in this order where nothing tells.
    """
    first = "".join(name.lower().lstrip("x_")[:1] for name in names)
    last = "".join(name.lower().rpartition("_")[2][:1] for name in names)
    whole = [name.lower()[:1] if _OF_ROWS.fullmatch(name.lower()) else "" for name in names]
    left = {*"qkv"}.difference(whole)
    if len(left) == 1 and whole.count("") == 1:
        whole[whole.index("")] = left.pop()
    read = (first, last, "".join(whole))
    letters = next((each for each in read if sorted(each) == sorted("qkv")), "qkv")
    q, k, v = (letters.find(letter) for letter in "qkv")
    places = {q: 0, k: 1, v: 2}
    return places[0], places[1], places[2]


def forward(instance: Any) -> Any:
    """Return what calling a module comes down to: its ``forward`` or ``call``, or the call.

    It is that of the class nearest to the instance: a layer of Keras may have a call of its own.
    Of a class it is the function that takes ``self`` first.
    """
    called, of_class = ("forward", "call"), isinstance(instance, type)
    own = {} if of_class else getattr(instance, "__dict__", {})
    for name in called:
        if callable(own.get(name)):
            return own[name]
    for base in (instance if of_class else type(instance)).__mro__:
        for name in called:
            if name in vars(base) and callable(getattr(base, name, None)):
                return getattr(instance, name)
        if "__call__" in vars(base):
            return vars(base)["__call__"] if of_class else instance
    # What no class has may be one of a metaclass, or of `__getattr__`.
    others = (getattr(instance, name, None) for name in called)
    return next(filter(callable, others), instance)
