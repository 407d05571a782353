"""Whether a target decides its own gradients, which no judgement of outputs sees."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType


CUTS = ("no_grad", "inference_mode", "set_grad_enabled", "detach", "detach_", "data")


def own_backward(subject: object) -> str:
    """Return by what a target's module decides its own gradients; "" if by nothing.

    That is a layer's own method ``backward``, a ``torch.autograd.Function`` or a ``jax.custom_vjp``
    of that module, or what takes numbers out of autograd's graph, such as ``no_grad``. Counted is
    what the target's code names, directly or through functions and classes of that module.
    """
    if callable(getattr(subject, "backward", None)):
        return f"`{getattr(subject, '__name__', type(subject).__name__)}` has its own `backward`"
    module = sys.modules.get(getattr(subject, "__module__", None) or "")
    torch = sys.modules.get("torch")
    if module is None:
        return ""
    if _has_vjp(getattr(subject, "held_by_jax", None)):
        return f"`{subject.__name__}` has its own derivative"  # type: ignore[attr-defined]  # is a function
    function = torch.autograd.Function if torch is not None else ()
    scope, seen, waiting, cut = vars(module), {id(subject)}, [subject], ""
    while waiting:
        each = waiting.pop()
        if inspect.isclass(each) and issubclass(each, function):
            return f"`{each.__name__}` has its own backward pass"
        for name in (getattr(each, "__name__", ""), *_names(each)):
            if _has_vjp(scope.get(name)):
                return f"`{name}` has its own derivative"
            if torch is not None and name in CUTS:
                cut = cut or f"`{name}` takes numbers out of autograd's graph"
            found = scope.get(name)
            own = getattr(found, "__module__", None) == module.__name__
            if own and (inspect.isclass(found) or inspect.isfunction(found)):
                waiting += [found] if id(found) not in seen else []
                seen.add(id(found))
    return cut


def _has_vjp(value: object) -> bool:
    return type(value).__module__.startswith("jax.") and hasattr(value, "defvjp")


def _names(subject: Any) -> Iterator[str]:
    """Yield the global names and attributes that a function, or a class's methods, refer to."""
    members = vars(subject).values() if inspect.isclass(subject) else (subject,)
    for each in members:
        function = getattr(each, "__func__", each)
        if inspect.isfunction(function):
            yield from _of_decorator(function)
            # What is wrapped may be an object that is called, and has no code of its own.
            if (code := getattr(inspect.unwrap(function), "__code__", None)) is not None:
                yield from _of_code(code)
    if inspect.isclass(subject):
        yield from (base.__name__ for base in subject.__mro__[1:])


def _of_decorator(function: Any) -> Iterator[str]:
    """Yield the classes of what a wrapper holds: `no_grad` of what `@no_grad()` wraps."""
    held = function.__closure__ if hasattr(function, "__wrapped__") else None
    for cell in held or ():
        value = cell.cell_contents
        yield type(getattr(value, "__self__", value)).__name__


def _of_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if inspect.iscode(each):
            yield from _of_code(each)
