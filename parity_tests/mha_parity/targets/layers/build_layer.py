"""Build a layer of given sizes, and put it into the state in which cases ask it."""

from __future__ import annotations

import inspect
import math
import sys
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.target_call import SAME_NUMBERS, owner_of, target_errors
from mha_parity.targets.layers.config_objects import with_value
from mha_parity.targets.layers.initial_draws import drawn_by_numpy
from mha_parity.targets.layers.module_constants import globals_read, number_of, set_number
from mha_parity.targets.layers.removed_parts import bypassed
from mha_parity.targets.static.call_parameters import modes_of
from mha_parity.targets.static.projection_names import ROWS, is_weight, parts
from mha_parity.targets.static.signatures import forward
from mha_parity.targets.static.weight_dictionary import WeightsByName, of_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.targets.layers.constructor_arguments import Construction
    from mha_parity.targets.static.argument_meanings import LayerSizes


# What a layer has that stands for a module of flax or haiku.
MAKES_PARAMETERS = "make_parameters_for"


def new_layer(
    kind: type,
    construct: Callable[..., Any],
    named: Sequence[inspect.Parameter],
    construction: Construction,
    sizes: LayerSizes,
    **more: Any,
) -> Any:
    """Return a layer of these sizes made by ``construct``, whose parameters are ``named``.

    One that is built for training or evaluation is built for evaluation.

    Raises
    ------
    CandidateError
        It cannot be built so, or tried to open a connection.

    """
    numbers = with_globals(kind, dict(globals_read(kind)), sizes)
    with target_errors(), offline(), drawn_by_numpy(), groups_of_any_width(), numbers:
        # A mode that the call takes too is passed there: modules of flax refuse it twice.
        at_call = inspect.signature(forward(kind)).parameters
        modes = modes_of((p for p in named if p.name not in at_call), training=False)
        given = construction.arguments(sizes) | modes
        own = {p.name for p in named}
        for name, value in more.items():  # a switch may be one of the configuration
            if construction.config and name not in own:
                given[construction.config] = with_value(given[construction.config], name, value)
            else:
                given[name] = value
        positional = [p.name for p in named if p.kind is p.POSITIONAL_ONLY and p.name in given]
        args = [given.pop(name) for name in positional]
        layer = construct(*args, **given)
        if hasattr(type(layer), MAKES_PARAMETERS):
            getattr(layer, MAKES_PARAMETERS)(sizes)
        # Once more: modules in a plain list of Python's are found now.
        return bypassed(materialised(registered(layer), sizes.width))


@contextmanager
def groups_of_any_width() -> Iterator[None]:
    """Let torch's GroupNorm be built for channels that its groups do not divide.

    One before or behind an attention is taken out, and one within it is refused: their number
    says nothing of the attention, and would leave few widths to judge it at.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    kind = torch.nn.GroupNorm
    built = kind.__init__

    def with_common_groups(
        self: Any, num_groups: int, num_channels: int, *args: Any, **kwargs: Any
    ) -> None:
        built(self, math.gcd(num_groups, num_channels), num_channels, *args, **kwargs)

    kind.__init__ = with_common_groups
    try:
        yield
    finally:
        kind.__init__ = built


def is_module(layer: Any) -> bool:
    """Return whether a layer is one of torch's: others have methods of the same names."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(layer, torch.nn.Module)


def registered(layer: Any) -> Any:
    """Return a layer of torch whose lists of modules are torch's: its parameters are seen then."""
    if not is_module(layer):
        return layer
    import torch

    while plain := _plain_lists(layer):
        for holder, name in plain:
            held = torch.nn.ModuleList(getattr(holder, name))
            vars(held)["was_plain_list"] = True
            setattr(holder, name, held)
    return layer


def _plain_lists(layer: Any) -> list[tuple[Any, str]]:
    """Return the lists of modules that are no torch.nn.ModuleList: module and attribute."""
    return [
        (module, name)
        for module in layer.modules()
        for name, held in vars(module).items()
        if isinstance(held, list | tuple) and held and all(map(is_module, held))
    ]


def plain_lists(layer: Any) -> tuple[str, ...]:
    """Return the paths of the lists of modules that torch did not see before ``registered``."""
    modules = layer.named_modules() if is_module(layer) else ()
    return tuple(path for path, module in modules if hasattr(module, "was_plain_list"))


def materialised(layer: Any, width: int) -> Any:
    """Return a layer whose lazy Linears, or weights that its first call makes, are there."""
    if not is_module(layer):
        _make_weights(layer, width)
        return layer
    for module in list(layer.modules()):
        lazy = getattr(module, "has_uninitialized_params", None)
        if callable(lazy) and lazy():
            import torch

            module(torch.zeros(1, width))
    return layer


def _make_weights(layer: Any, width: int) -> None:
    """Call a layer whose weights are None until its first call, and keep what a second call keeps.

    What the second replaces is of the call: rows, scores, the input.
    """
    held = getattr(layer, "__dict__", {})
    absent = [name for name, value in held.items() if value is None]
    if not set(ROWS) <= {part for name in absent if is_weight(name) for part in parts(name)}:
        _read_weights_by_name(layer, width)
        return
    call = forward(layer)
    required = [p for p in inspect.signature(call).parameters.values() if p.default is p.empty]
    first: dict[str, Any] = {}
    with suppress(CandidateError), target_errors():
        call(*[np.zeros((2, 2, width))] * len(required))
        first = {name: held[name] for name in absent}
        call(*[np.zeros((3, 3, width))] * len(required))
    held.update({name: first.get(name) if held[name] is first.get(name) else None
                 for name in absent})  # fmt: skip


def _copied(layer: Any, dictionaries: Mapping[str, WeightsByName]) -> Any:
    """Return a copy of a layer with dictionaries of its own; what cannot be copied is shared."""
    try:
        return deepcopy(layer)
    except TypeError:
        other = copy(layer)
        for name, each in dictionaries.items():
            assign(other, name, deepcopy(each))
        return other


def _read_weights_by_name(layer: Any, width: int) -> None:
    """Make the weights of a dictionary that a call reads: of a copy, which may keep its rows."""
    dictionaries = of_instance(layer)
    if not dictionaries:
        return
    other = _copied(layer, dictionaries)
    call = forward(other)
    required = [p for p in inspect.signature(call).parameters.values() if p.default is p.empty]
    with suppress(CandidateError), target_errors():
        call(*[np.zeros((2, 2, width))] * len(required))
    for name, read in of_instance(other).items():
        for key in read:
            dictionaries[name].get(key)


def move(layer: Any, dtype: str, device: str) -> None:
    """Put the arrays of a layer of torch in evaluation mode into a dtype on a device."""
    import torch

    kind = getattr(torch, dtype)
    layer.eval()  # dropout that no argument of the constructor reaches
    for held in (*layer.parameters(), *layer.buffers()):
        held.data = held.data.to(device, kind if held.is_floating_point() else held.dtype)


def replace_by_identity(layer: Any, path: str) -> None:
    """Put the identity in the place of one module of a layer, if the layer has it.

    One with fewer heads lacks the modules of the others.
    """
    if not is_module(layer):
        replace_part(layer, path, lambda rows: rows)
        return
    import torch

    class Identity(torch.nn.Identity):
        """The place of a norm: where the weights of one are read without a call, there are none."""

        def __getattr__(self, attribute: str) -> Any:
            raise AttributeError(
                f"`{attribute}` of `{path}` is read, which is taken out: torch's layer has no norm"
            )

    holder, _, name = path.rpartition(".")
    with suppress(AttributeError):
        setattr(layer.get_submodule(holder), name, Identity())


def replace_part(layer: Any, path: str, function: Callable[[Any], Any]) -> None:
    """Put a function of rows in the place of one part of a layer that is no module of torch."""
    if hasattr(layer, "replaced"):
        layer.replaced[path] = function
        return
    *way, name = path.split(".")
    for step in way:
        layer = getattr(layer, step)
    assign(layer, name, FunctionOfRows(function))


def assign(holder: Any, name: str, value: Any) -> None:
    """Set an attribute of a layer that was built to be filled, also of a frozen one."""
    try:
        setattr(holder, name, value)
    except FrozenInstanceError:
        object.__setattr__(holder, name, value)


class FunctionOfRows:
    """A part of a layer that applies a function to rows, however it is called."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, rows: Any, *_args: Any, **_options: Any) -> Any:
        """Return what the function returns."""
        return self._function(rows)

    forward = __call__


@contextmanager
def with_globals(kind: Any, meanings: dict[str, str], sizes: LayerSizes) -> Iterator[None]:
    """Set the numbers of a module that its class or function reads to these sizes."""
    of_class = getattr(getattr(kind, "__init__", None), "__globals__", {})
    scope = of_class if isinstance(kind, type) else inspect.unwrap(kind).__globals__
    held = {name: number_of(scope, name) for name in meanings}
    for name, meaning in meanings.items():
        set_number(scope, name, sizes.value(meaning))
    try:
        yield
    finally:
        for name, number in held.items():
            set_number(scope, name, number)


def called_with_globals(
    function: Callable[..., Any], subject: Any, meanings: dict[str, str], sizes: LayerSizes
) -> Callable[..., Any]:
    """Return a function that is called with the numbers of its subject's module at these sizes.

    That of a layer is one of its object still, as a bound method is, and so are other methods of
    the object that ``method_of`` finds.
    """

    @wraps(function, updated=())  # of a layer its attributes are no function's
    def called(*args: Any, **kwargs: Any) -> Any:
        with with_globals(subject, meanings, sizes):
            return function(*args, **kwargs)

    setattr(called, SAME_NUMBERS, _same_numbers(subject, meanings, sizes))
    if not inspect.isfunction(function):
        vars(called)["__self__"] = owner_of(function)
    return called


def _same_numbers(
    subject: Any, meanings: dict[str, str], sizes: LayerSizes
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what makes a function of one that is called with these numbers."""
    return lambda method: called_with_globals(method, subject, meanings, sizes)


@contextmanager
def offline() -> Iterator[None]:
    """Refuse connections: a constructor that downloads is no layer of given sizes."""
    import socket

    held = socket.socket.connect

    def refused(*_args: object, **_kwargs: object) -> None:
        raise ConnectionError("it tried to open a network connection while it was built")

    socket.socket.connect = refused  # type: ignore[method-assign]
    try:
        yield
    finally:
        socket.socket.connect = held  # type: ignore[method-assign]
