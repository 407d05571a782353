"""Bugs that show where arguments agree: widths, arrays given twice, masks that fit two readings.

A reshape, a branch or a broadcast goes by the sizes of its arguments; where two are equal it may
take one for the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.cases.generate import query_shared_with
from mha_parity.catalogue.conditional_bugs import Planted, is_not_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.case import Case


def _attn(case: Case, ends: str) -> bool:
    return case.attn.endswith(ends)


def _separate(case: Case) -> bool:
    return case.projection == "separate"


CONDITIONS: Mapping[str, Callable[[Case], bool]] = {
    "kdim == embed_dim": lambda c: _separate(c) and c.kdim == c.embed_dim,
    "vdim == embed_dim": lambda c: _separate(c) and c.vdim == c.embed_dim,
    "kdim == vdim": lambda c: _separate(c) and c.kdim == c.vdim,
    "kdim < embed_dim": lambda c: _separate(c) and c.kdim < c.embed_dim,
    "vdim < embed_dim": lambda c: _separate(c) and c.vdim < c.embed_dim,
    "query is key, not value": lambda c: query_shared_with(c) == "key",
    "query is value, not key": lambda c: query_shared_with(c) == "value",
    "key is value, not query": lambda c: c.form == "mha" and c.inputs == "cross",
    "query is key is value": lambda c: c.form == "mha" and c.inputs == "self",
    "L == S, inputs distinct": lambda c: c.inputs == "distinct" and c.queries == c.keys,
    "N == L, attn_mask (L, S)": lambda c: _attn(c, "2d") and c.batch == c.queries,
    "L == S, attn_mask (L, S)": lambda c: _attn(c, "2d") and c.queries == c.keys,
    "N == S, attn_mask (L, S)": lambda c: _attn(c, "2d") and c.batch == c.keys,
    "N == H, attn_mask (N H, L, S)": lambda c: _attn(c, "3d") and c.batch == c.heads_count,
    "L == S, attn_mask (N H, L, S)": lambda c: _attn(c, "3d") and c.queries == c.keys,
    "N == L, key_padding_mask (N, S)": lambda c: c.padding != "none" and c.batch == c.queries,
    "N == S, key_padding_mask (N, S)": lambda c: c.padding != "none" and c.batch == c.keys,
    "N == H, key_padding_mask (N, S)": lambda c: c.padding != "none" and c.batch == c.heads_count,
}


def planted_arguments() -> tuple[Planted, ...]:
    """Return the planted bugs of this family."""
    return tuple(
        Planted(condition=condition, family="argument", holds=_not_empty(holds))
        for condition, holds in CONDITIONS.items()
    )


def _not_empty(holds: Callable[[Case], bool]) -> Callable[[Case], bool]:
    return lambda case: is_not_empty(case) and holds(case)
