"""Sizes that all problems have while a target is tried that has no others."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.case import Case

_NONE: Mapping[str, int] = MappingProxyType({})
_sizes: ContextVar[Mapping[str, int]] = ContextVar("sizes", default=_NONE)


@contextmanager
def fixed_sizes(sizes: Mapping[str, int]) -> Iterator[None]:
    """Context: problems have these sizes, by the names of a case's fields, whatever cases say."""
    token = _sizes.set(sizes)
    try:
        yield
    finally:
        _sizes.reset(token)


def at_fixed_sizes(case: Case) -> Case:
    """Return the case at the sizes of the context; the case itself outside of one."""
    sizes = _sizes.get()
    return case.replace(**sizes) if sizes else case
