"""How a layer is built for a width and a number of heads, whatever its constructor calls them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from mha_parity.targets.fit.construct import CONFIG, GIVEN, LENGTH, LayerSizes, meanings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from inspect import Parameter

    from mha_parity.targets.conventions.signatures import Signature

__all__ = ["LENGTH", "LayerSizes", "SizesConfig", "arguments", "counts_heads"]


def _value(sizes: LayerSizes, name: str) -> Any:
    """Return what the argument of a known name gets."""
    return sizes.value(str(_meaning(name)))


@cache
def _meaning(name: str) -> str | None:
    """Return which size a name most likely means; None where it is of none that a layer has."""
    first = next(iter(meanings(name)), None)
    return first if first in GIVEN or counts_kv_heads(name) else None


def counts_kv_heads(name: str) -> bool:
    """Return whether an argument of this name is the number of key and value heads."""
    return meanings(name)[:1] == ("kv_heads",)


def alike_kv_heads(
    named: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> frozenset[str]:
    """Return the arguments for the number of key heads that get as many as the query heads'."""
    given = dict(zip((each.name for each in named), args, strict=False)) | dict(kwargs)
    heads = [value for name, value in given.items() if meanings(name)[:1] == ("heads",)]
    return frozenset(n for n, value in given.items() if counts_kv_heads(n) and value in heads)


def takes_dropout(made: Signature) -> bool:
    """Return whether an argument of a constructor is a probability of dropout."""
    return any(_meaning(name) == "dropout" for name in made.named)


def takes_a_config(made: Signature) -> bool:
    """Return whether a constructor takes a configuration, and nothing else by position."""
    return len(made.required) == 1 and bool(CONFIG.search(made.required[0].lower()))


def counts_heads(made: Signature) -> bool:
    """Return whether a constructor takes the number of heads; else the layer has one."""
    names = (*made.required, *made.optional)
    if takes_a_config(made):
        return True
    by_name = any(_meaning(name) in {"heads", "head_dim"} for name in names)
    return by_name or any(_meaning(name) is None for name in made.required)


class SizesConfig:
    """A configuration whose attributes are the sizes that their names say, and no others."""

    def __init__(self, sizes: LayerSizes) -> None:
        self._sizes = sizes
        self.asked: set[str] = set()  # the meanings so far

    def __getattr__(self, name: str) -> Any:
        """Return the value of an attribute that is known."""
        if name.startswith("__") or _meaning(name) is None:
            raise AttributeError(f"the layer asks its configuration for {name!r}, which is unknown")
        self.asked.add(str(_meaning(name)))
        return _value(self._sizes, name)


def arguments(made: Signature, sizes: LayerSizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what to pass to a constructor, by position and by keyword.

    Two arguments whose names tell nothing are the width and the heads.

    Raises
    ------
    ValueError
        There are others whose meaning is unknown.

    """
    required = made.required
    if takes_a_config(made):
        return (SizesConfig(sizes),), {}
    unknown = [name for name in required if _meaning(name) is None]
    if unknown and len(required) > 2:
        raise ValueError(f"its constructor wants {unknown[0]!r}, whose meaning is unknown")
    if unknown:
        return (sizes.width, sizes.heads)[: len(required)], {}
    known = [name for name in made.optional if _meaning(name) is not None]
    more = [name for name in known if "window" not in name.lower()]  # another attention
    return (), {name: _value(sizes, name) for name in (*required, *more)}
