"""Whether a class is a layer of such Linears: a small one is built, and looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.conventions.calls import target_errors
from mha_parity.targets.conventions.constructors import arguments
from mha_parity.targets.conventions.packing import projection_slots, state_shapes
from mha_parity.targets.conventions.signatures import ANY, by_letter, constructor
from mha_parity.targets.fit.construct import LayerSizes
from mha_parity.targets.fit.map_sizes import map_sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.targets.conventions.signatures import Signature

SMALL = LayerSizes(6, 2)
ROWS = ("query", "key", "value")
CONTEXTS = frozenset(
    ("k", "key", "keys", "kv", "context", "ctx", "memory", "mem", "source", "src", "y", "enc")
)


def build_layer(
    kind: Any, sizes: LayerSizes, construct: Callable[..., Any] | None = None, **more: Any
) -> Any:
    """Return a layer of these sizes, made by ``construct`` (default: the class itself).

    Raises
    ------
    CandidateError
        It cannot be built so.

    """
    try:
        args, options = arguments(constructor(kind) or ANY, sizes)
    except ValueError as unknown:
        raise CandidateError("crash", str(unknown)) from None
    with target_errors():
        return (construct or kind)(*args, **options, **more)


def misfit(kind: Any) -> str:
    """Return why a class is not of this convention, "" where it is: a small one is built."""
    try:
        layer = build_layer(kind, SMALL)
        with target_errors():
            shapes = state_shapes(layer)
            named = {name for name, _ in getattr(layer, "named_parameters", tuple)()}
    except CandidateError as error:
        known = str(error).startswith("raised")
        return f"building one of width 6 with 2 heads {error}" if known else str(error)
    found = projection_slots(shapes)
    owned = {f"{slot.name}.{each}" for slot in found for each in ("weight", "bias")}
    if found and named <= owned:
        return ""
    kept = ", ".join(f"{name} {shapes.get(name, ())}" for name in sorted(named or shapes))
    return f"it keeps {kept or 'no weights'}"


def input_roles(called: Signature) -> tuple[str, ...]:
    """Return which of query, key and value the call takes, in its order."""
    sizes = map_sizes(called.required)
    required = [name for name in called.required if name not in sizes]
    if len(required) >= len(ROWS):
        return tuple(ROWS[place] for place in by_letter(required[: len(ROWS)]))
    if len(required) == len("qk") and required[1].lower() in CONTEXTS:
        return ROWS[:2]
    return ROWS[:1]


def behind_rows(called: Signature, rows: int, length: int) -> tuple[int | None, ...]:
    """Return what the required parameters behind the rows get: sizes of a map, or None."""
    height, width = map_sizes(called.required)
    sizes = {height: length, width: 1}
    return tuple(sizes.get(name) for name in called.required[rows:])
