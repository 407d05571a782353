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
_sizes: ContextVar[tuple[Mapping[str, int], int]] = ContextVar("sizes", default=(_NONE, 1))


@contextmanager
def fixed_sizes(sizes: Mapping[str, int], multiple: int = 1) -> Iterator[None]:
    """Context: problems have these sizes, by the names of a case's fields, whatever cases say.

    Their lengths are multiples of a number.
    """
    token = _sizes.set((sizes, multiple))
    try:
        yield
    finally:
        _sizes.reset(token)


def at_fixed_sizes(case: Case) -> Case:
    """Return the case at the sizes of the context; the case itself outside of one."""
    sizes, multiple = _sizes.get()
    case = case.replace(**sizes) if sizes else case
    return case.in_multiples(multiple) if multiple > 1 else case
