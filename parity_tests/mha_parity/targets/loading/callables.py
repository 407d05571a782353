"""Functions that a library holds in an object of its own, as functions with a readable signature.

JAX holds those with their own derivative in objects. torch calls the ``forward`` of an autograd
function by ``apply``, whose parameters are ``*args``, and a script by a schema of its own. What
``torch.compile`` makes of a layer stands for the layer.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def as_function(subject: Any) -> Any:
    """Return a function that an object of torch or JAX holds as a function; another as it is.

    Those are autograd functions, their ``apply``, scripts, and functions with their own derivative.

    Raises
    ------
    TargetError
        It is a layer that was traced or scripted, of which no class is left.

    """
    torch = sys.modules.get("torch")
    held = getattr(subject, "__wrapped__", None)
    if type(subject).__module__.startswith("jax.") and inspect.isfunction(held):
        return _of_jax(subject, held)
    if torch is None:
        return subject
    if isinstance(subject, torch.jit.ScriptModule):
        raise TargetError(
            f"got {_name(subject)}, which was traced or scripted and cannot be built in other "
            "sizes; name the class that it was made of."
        )
    if isinstance(subject, torch.jit.ScriptFunction):
        return _with_signature(subject, _of_schema(subject), subject.name)
    kind = _autograd_function(subject, torch)
    if kind is None:
        return subject
    forward = inspect.signature(kind.forward)
    named = list(forward.parameters.values())
    # With a ``setup_context`` of its own, ``forward`` does not take the context.
    if kind.setup_context is torch.autograd.Function.setup_context:
        named = named[1:]
    named = [each.replace(kind=POSITIONAL) for each in named if each.kind in {POSITIONAL, EITHER}]
    function = _with_signature(kind.apply, named, kind.__qualname__)
    function.__wrapped__ = kind.forward  # whose source it is
    return function


def _autograd_function(subject: Any, torch: Any) -> Any:
    """Return the autograd function that a subject is, or whose ``apply`` it is, or None."""
    kind = subject if isinstance(subject, type) else getattr(subject, "__self__", None)
    if not isinstance(kind, type) or not issubclass(kind, torch.autograd.Function):
        return None
    return kind if subject is kind or getattr(subject, "__name__", "") == "apply" else None


def _name(subject: object) -> str:
    return type(subject).__qualname__


def _with_signature(call: Callable[..., Any], named: list[inspect.Parameter], name: str) -> Any:
    def function(*args: Any) -> Any:
        return call(*args)

    function.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # is read by inspect
    function.__name__ = function.__qualname__ = name
    function.__module__ = "torch"  # whose arrays it takes
    return function


def _of_jax(subject: Any, held: Callable[..., Any]) -> Any:
    """Return a function that calls what JAX holds; its code, and its source, are the held one's."""

    @functools.wraps(held)
    def function(*args: Any, **kwargs: Any) -> Any:
        return subject(*args, **kwargs)

    function.held_by_jax = subject  # type: ignore[attr-defined]  # says whether it has a derivative
    return function


def _of_schema(script: Any) -> list[inspect.Parameter]:
    """Return the parameters of a script."""
    return [
        inspect.Parameter(
            each.name, POSITIONAL,
            default=each.default_value if each.has_default_value() else inspect.Parameter.empty,
        )
        for each in script.schema.arguments
    ]  # fmt: skip


def layer_inside(layer: Any) -> Any:
    """Return the layer that ``torch.compile`` compiled, any other as it is."""
    return getattr(layer, "_orig_mod", layer) if _name(layer) == "OptimizedModule" else layer


def is_function(subject: Any) -> bool:
    """Return whether a subject is a function, a method, a partial, or an object that is called."""
    if inspect.isclass(subject):
        return False
    return inspect.isroutine(subject) or isinstance(subject, functools.partial)
