"""A method of a class as an attention of its own: a layer that has the arrays the method reads."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from mha_parity.targets.caches.step_methods import step_methods
from mha_parity.targets.layers.layer_arrays import READS
from mha_parity.targets.static.names_in_code import names_read
from mha_parity.targets.static.signatures import forward
from mha_parity.targets.trials.refusals import NO_FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable

BY_STEP = "`{}` was called, as it has no `forward` and no `__call__`."
TORCH_CALL = "torch.nn.modules.module"  # where the `__call__` of torch's modules is


def single_step(kind: Any) -> str:
    """Return the method that takes rows of a class that has no call, where it has one; else ""."""
    if not inspect.isclass(kind):
        return ""
    call = forward(kind)
    if call is not kind and getattr(call, "__name__", "") != NO_FORWARD:
        return ""
    found = [name for name, passed in step_methods(kind) if not passed]
    return found[0] if len(found) == 1 else ""


def target_in(holder: Any, name: str) -> Any:
    """Return ``holder.name``, or a layer whose call it is where it is a method of objects.

    Such a layer is built as the class is; only the arrays that the method reads, itself or in
    other methods of the class, are those of an attention: a whole model has more. The method by
    which an object is called is the class itself.
    """
    found = getattr(holder, name)
    if not (inspect.isclass(holder) and _is_of_objects(holder, name)):
        return found
    if found is forward(holder) or found.__module__ == TORCH_CALL:
        return holder
    body = {
        "forward": found,
        "__call__": found,
        "__doc__": found.__doc__ or holder.__doc__,
        "__module__": holder.__module__,
        "__qualname__": holder.__qualname__,  # by which its source is found
        READS: _attributes_read(holder, found),
    }
    metaclass: Any = type(holder)
    return metaclass(name, (holder,), body)


def _is_of_objects(holder: type, name: str) -> bool:
    """Whether an attribute of a class is a function that an object of the class is passed to."""
    held = inspect.getattr_static(holder, name)
    return inspect.isfunction(held) and bool(inspect.signature(held).parameters)


def _attributes_read(holder: type, method: Callable[..., Any]) -> frozenset[str]:
    """Return the names that a method reads, and the methods of its class that it calls."""
    found: set[str] = set()
    todo = [method]
    while todo:
        new = {*names_read(todo.pop())} - found
        found |= new
        todo += [f for each in new if inspect.isfunction(f := getattr(holder, each, None))]
    return frozenset(found)
