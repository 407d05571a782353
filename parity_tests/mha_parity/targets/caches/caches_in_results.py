"""Where a key/value cache stands in what a call returned."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.caches.cache_objects import BEGUN, stays_empty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.calls.cache_arguments import CacheUse


def placed(
    use: CacheUse, beside: tuple[Any, ...], cache: tuple[Any, ...], rows: int
) -> Iterator[CacheUse]:
    """Yield where in what a call on some rows returned the cache may stand.

    ``beside`` is what it returned beside the output, and ``cache`` what it was passed.
    """
    if use.begun and use.begun not in BEGUN:
        alike = (at for at, each in enumerate(beside) if type(each) is type(cache[0]))
        yield from (replace(use, places=(at,)) for at in alike)
    if not use.parameters or use.begun:
        if not use.begun or not stays_empty(use.begun, cache[0]):
            yield use
        return
    count = len(use.parameters)
    places = [place for place, each in enumerate(beside) if _may_be_cache(each, rows)]
    if count == 1:
        yield from (replace(use, places=(place,)) for place in places)
        if len(places) > 1:
            yield replace(use, places=tuple(places))
    elif len(places) >= count:
        yield replace(use, places=tuple(places[:count]))


def taken_from(beside: tuple[Any, ...], use: CacheUse) -> tuple[Any, ...]:
    """Return what the parameters of the cache get; one parameter gets several arrays together."""
    found = tuple(beside[place] for place in use.places)
    return (found,) if len(use.parameters) == 1 < len(found) else found


def _may_be_cache(each: Any, rows: int) -> bool:
    """Return whether something returned may be a cache; weights of these rows are none."""
    if each is None or isinstance(each, bool | int | float | str):
        return False
    with suppress(CandidateError, TypeError, ValueError):
        return bool(to_numpy(each, "the cache").shape[-2:] != (rows, rows))
    return True
