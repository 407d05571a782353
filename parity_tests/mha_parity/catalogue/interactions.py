"""Bugs that show where three properties of a problem meet: features, and how sizes compare.

A causal triangle that is counted from the last key is right where there are as many queries as
keys; which path computes it depends on the other masks, on the heads and on the lengths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.catalogue.conditional_bugs import LastRowScaled, Planted, is_not_empty
from mha_parity.catalogue.plain_attention import Attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

    Condition = Callable[[Case], bool]

# Where a path of the causal rule may be another one.
PATHS: Mapping[str, Condition] = {
    "no other mask": lambda c: c.padding == "none",
    "padding": lambda c: c.padding != "none",
    "grouped heads": lambda c: c.kv_heads == "fewer",
    "bias_kv": lambda c: c.bias_kv == "yes",
    "zero_attn": lambda c: c.zero_attn == "yes",
    "L > 64, S > 64": lambda c: min(c.queries, c.keys) > 64,
}
# Where the bug lies in a mask of one kind.
MASKS: Mapping[str, Condition] = {
    "boolean attn_mask (L, S), N == L": lambda c: c.attn == "bool2d" and c.batch == c.queries,
    "float attn_mask (L, S), N == L": lambda c: c.attn == "float2d" and c.batch == c.queries,
    "boolean attn_mask (N H, L, S), N == H": (
        lambda c: c.attn == "bool3d" and c.batch == c.heads_count
    ),
    "float attn_mask (N H, L, S), N == H": (
        lambda c: c.attn == "float3d" and c.batch == c.heads_count
    ),
    "boolean key_padding_mask, N == L": lambda c: c.padding == "bool" and c.batch == c.queries,
    "float key_padding_mask, N == L": lambda c: c.padding == "float" and c.batch == c.queries,
    "boolean key_padding_mask, S > 64": lambda c: c.padding == "bool" and c.keys > 64,
    "float key_padding_mask, S > 64": lambda c: c.padding == "float" and c.keys > 64,
    "valid lengths, S > 64": lambda c: c.padding == "lengths" and c.keys > 64,
}


class CausalFromLastKey(Attention):
    """Let the last query see all keys, and each one before it a key less."""

    def causal_mask(self) -> Array | None:
        """Return the causal mask counted from the last key."""
        keys = self.problem.key.shape[1]
        return self.future_mask(1 + keys - self.case.queries) if self.problem.is_causal else None


def planted_interactions() -> tuple[Planted, ...]:
    """Return the planted bugs of this family."""
    return (*_causal(), *_masks())


def _causal() -> Iterator[Planted]:
    """Yield triangles counted from the last key, on each path, below and above the square."""
    for name, on_path in PATHS.items():
        for order, compares in (("L < S", _has_fewer), ("L > S", _has_more)):
            yield Planted(
                condition=f"causal from the last key, {order}, {name}", family="interaction",
                holds=_all(_is_causal, on_path, compares, is_not_empty), kind=CausalFromLastKey,
            )  # fmt: skip


def _masks() -> Iterator[Planted]:
    for condition, holds in MASKS.items():
        yield Planted(
            condition=condition, family="interaction", holds=_all(holds, is_not_empty),
            kind=LastRowScaled,
        )  # fmt: skip


def _all(*conditions: Condition) -> Condition:
    return lambda case: all(condition(case) for condition in conditions)


def _is_causal(case: Case) -> bool:
    return case.attn == "causal"


def _has_fewer(case: Case) -> bool:
    return case.queries < case.keys


def _has_more(case: Case) -> bool:
    return case.queries > case.keys
