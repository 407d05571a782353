"""Masks of keys that are read beside a mask of queries alone, as their outer product is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.calls.mask_format import VALUES, MaskFormat, MaskSearchResult
from mha_parity.targets.masks.query_masks import QUERIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.parameters import Parameter
    from mha_parity.targets.convention_base.convention import Convention

    Found = Callable[[Parameter], MaskSearchResult]

BESIDE = "`{}` is read beside `{}` alone, which was passed with all queries kept."


def beside_queries(
    convention: Convention, results: tuple[MaskSearchResult, ...], found: Found
) -> tuple[MaskSearchResult, ...]:
    """Return what masks take that have no effect without a mask (N, L) of queries.

    ``found`` searches a parameter. The mask of queries keeps all of them, in each kind of values
    and each meaning, until one with which a mask of keys has an effect; it is passed in all calls.
    """
    unread = [r for r in results if not r.taken and r.parameter.role in {Role.MASK, Role.OTHER}]
    queries = [r for r in unread if QUERIES.search(r.parameter.name.lower())]
    others = [r for r in unread if r not in queries]
    if len(queries) != 1 or len(others) != 1:
        return results
    (of_queries,), (of_keys,) = queries, others
    needed = replace(of_queries.parameter, required=True)
    for kind, hides in itertools.product(VALUES, (False, True)):
        taken = (MaskFormat(("N", "L"), kind, hides=hides),)
        kept = replace(of_queries, parameter=needed, taken=taken, reason="")
        convention.read_beside = ((needed.key, *taken),)
        seen = found(of_keys.parameter)
        if seen.taken:
            said = BESIDE.format(of_keys.parameter.name, of_queries.parameter.name)
            convention.remarks = tuple(dict.fromkeys((*convention.remarks, said)))
            new = {of_queries.parameter.key: kept, of_keys.parameter.key: seen}
            return tuple(new.get(each.parameter.key, each) for each in results)
    convention.read_beside = ()
    return results
