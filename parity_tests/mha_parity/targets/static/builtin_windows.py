"""Windows that a layer keeps as numbers of its own, which no argument of its constructor says.

``self.window_size = 256``: the number is set anew where a layer is built, to a window of all keys
where none is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mha_parity.core.parameters import Parameter, Role
from mha_parity.targets.static.projection_names import WINDOW

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterable, Mapping

    from mha_parity.targets.static.argument_meanings import LayerSizes


def own_windows(layer: Any, named: Iterable[inspect.Parameter]) -> tuple[Parameter, ...]:
    """Return the windows among the numbers of a layer whose constructor has these parameters."""
    if any(WINDOW.search(each.name.lower()) for each in named):
        return ()
    held = {**vars(type(layer)), **getattr(layer, "__dict__", {})}
    found = {n: v for n, v in held.items() if type(v) is int and v > 1 and WINDOW.search(n.lower())}
    return tuple(
        Parameter(name=name, of="constructor", role=Role.WINDOW, default=str(value))
        for name, value in found.items()
    )


def set_windows(
    layer: Any, names: Iterable[str], sizes: LayerSizes, given: Mapping[str, Any]
) -> None:
    """Set the windows of these names to those that are given, or to all keys."""
    for name in names:
        setattr(layer, name, given.get(name, sizes.value("odd_window")))
