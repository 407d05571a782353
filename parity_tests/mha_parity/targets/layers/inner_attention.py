"""The attention that a layer is built with: a class or function of the layer's own module."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import ADAPTER, TargetError
from mha_parity.targets.layers.constructor_arguments import InnerAttention, constructions
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.signatures import forward

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.targets.layers.constructor_arguments import Construction

# What a constructor calls it, and what it is not where its annotation says one of these.
NAME = re.compile(
    r"^((self|inner|base|core|dot_product|multi_?head)_)?(attention|attn|att)"
    r"(_?(fn|func|function|layer|module|mechanism|op|impl|cls|class|type))?$"
)
PLAIN = frozenset({int, float, bool, str, "int", "float", "bool", "str"})
# What torch's attention is called: these come first where a module has several.
FULL = re.compile(r"full|vanilla|standard|scaled|dot", re.IGNORECASE)
MAX_WAYS = 3  # in which one of them is built
ROWS = 3  # query, key and value


def all_constructions(kind: type, named: Sequence[inspect.Parameter]) -> Iterator[Construction]:
    """Yield how a constructor may be meant, with the attention of its module if it wants one."""
    wants = wanted(named)
    found = () if wants is None else inner_attentions(kind, wants)
    if wants is None or not found:
        yield from constructions(kind, named)
        return
    rest = [each for each in named if each is not wants]
    for subject in found:
        for inner in _ways(wants.name, subject):
            for each in constructions(kind, rest):
                yield replace(each, inner=inner)


def wanted(named: Sequence[inspect.Parameter]) -> inspect.Parameter | None:
    """Return the required parameter of a constructor that an attention is meant for, if any."""
    required = (each for each in named if each.default is each.empty)
    may = (each for each in required if each.annotation not in PLAIN)
    return next((each for each in may if NAME.search(each.name.lower())), None)


def inner_attentions(kind: type, wants: inspect.Parameter) -> tuple[Any, ...]:
    """Return the classes and functions of a class's module that it may be built with."""
    scope = getattr(getattr(kind, "__init__", None), "__globals__", {})
    said = scope.get(wants.annotation) if isinstance(wants.annotation, str) else wants.annotation
    own = [each for each in scope.values() if getattr(each, "__module__", "") == kind.__module__]
    if any(said is each for each in own):
        return (said,)
    found = (each for each in dict.fromkeys(filter(callable, own)) if _is_inner(each, kind))
    return tuple(sorted(found, key=lambda each: FULL.search(each.__name__) is None))


def refuse_undecided(name: str, kind: type) -> None:
    """Refuse a class that wants an attention where its module has several, of which none fits.

    Raises
    ------
    TargetError
        What differs may be the layer or any of them; the sentence names them.

    """
    wants = wanted(call_parameters.of_callable(kind))
    found = [] if wants is None else [each.__name__ for each in inner_attentions(kind, wants)]
    if wants is None or len(found) < 2:
        return
    raise TargetError(
        f"got {name}, but its constructor wants `{wants.name}`, and built with none of "
        f"{', '.join(found[:-1])} and {found[-1]} of its module it computes attention; annotate "
        f"`{wants.name}` with the one that is meant, or {ADAPTER}."
    )


def _is_inner(subject: Any, kind: type) -> bool:
    """Return whether something may be the attention in a layer: it takes queries, keys, values."""
    if not re.search(r"att", getattr(subject, "__name__", ""), re.IGNORECASE):
        return False
    if inspect.isfunction(subject):
        return len(_required(subject)) >= ROWS
    if not isinstance(subject, type) or issubclass(subject, kind) or issubclass(kind, subject):
        return False
    if wanted(call_parameters.of_callable(subject)) is not None:
        return False
    return len(_required(forward(subject))) > ROWS  # with `self`


def _required(call: Any) -> list[inspect.Parameter]:
    return [
        each
        for each in inspect.signature(call).parameters.values()
        if each.default is each.empty and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    ]


def _ways(name: str, subject: Any) -> Iterator[InnerAttention]:
    """Yield how a constructor may be given an attention: an instance, or what it is itself."""
    if isinstance(subject, type):
        found = constructions(subject, call_parameters.of_callable(subject))
        for construction in islice(found, MAX_WAYS):
            yield InnerAttention(name, subject, construction)
    yield InnerAttention(name, subject)
