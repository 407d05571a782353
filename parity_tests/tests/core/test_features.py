"""What a target offers by default, and what an offer says of its heads."""

from __future__ import annotations

import pytest

from mha_parity.core.features import AXES, EXTREME_VALUES, PLAIN, has_one_kv_head, make_offer


@pytest.mark.parametrize(
    ("values", "one"),
    [
        (("fewer",), True),
        (("equal",), False),
        (("equal", "fewer"), False),
        (("fewer", "equal"), False),
    ],
)
def test_fewer_key_heads_alone_are_one(values: tuple[str, ...], one: bool) -> None:
    """Whoever takes as many as query heads as well has their number set. Kills `>=` for `==`."""
    assert has_one_kv_head(make_offer(kv_heads=values)) is one


def test_an_offer_has_the_plain_value_of_what_it_does_not_name() -> None:
    """But all sizes, regimes, memory layouts and numbers of heads: these are no ability."""
    found = make_offer(attn="causal", dtype=("float32", "float16"), heads="one")
    assert (("causal",), ("float32", "float16"), ("one",)) == (
        found["attn"], found["dtype"], found["heads"],
    )  # fmt: skip
    for axis in set(AXES) - {"attn", "dtype", "heads"}:
        whole = axis in {"size", "regime", "memory"}
        assert found[axis] == (tuple(AXES[axis]) if whole else (PLAIN[axis],)), axis
    assert "float64" == PLAIN["dtype"]
    assert "many" == PLAIN["heads"]
    assert "normal" == PLAIN["regime"]
    assert set(EXTREME_VALUES) < set(AXES["regime"])
