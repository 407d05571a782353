"""Extreme values: drawn rarely, of both signs, and in place of the regime alone."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.covering import (
    FIRST,
    REPEAT_EVERY,
    case_index,
    draw_cases,
    reachable,
)
from mha_parity.cases.generate import TINY, make_problem
from mha_parity.cases.rng import largest_number
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.case import Case, parse
from mha_parity.core.features import AXES, EXTREME_VALUES, Offer, make_offer

WHOLE: Offer = {axis: tuple(values) for axis, values in AXES.items()} | {
    "projection": tuple(each for each in AXES["projection"] if each != "one_array")
}


@pytest.mark.parametrize("seed", range(3), ids="seed{}".format)
def test_extreme_values_replace_the_regime_alone(seed: int) -> None:
    """All other features, sizes and seeds are those of a run without; first cases stay plain.

    But for layers, which get values of their own.
    """
    kept = tuple(value for value in AXES["regime"] if value not in EXTREME_VALUES)
    pairs = list(
        zip(
            draw_cases(WHOLE, 500, seed),
            draw_cases(WHOLE | {"regime": kept}, 500, seed),
            strict=True,
        )
    )
    changed = [(case, other) for case, other in pairs if case != other]

    assert {*EXTREME_VALUES} == {case.regime for case, _ in changed}
    for case, other in changed:
        inputs = "distinct" if case.form == "mha" else other.inputs
        assert case == other.replace(regime=case.regime, inputs=inputs)
    assert all(case_index(case) >= FIRST for case, _ in changed)
    assert all(case_index(case) % REPEAT_EVERY for case, _ in changed)
    assert 25 < len(changed) < 60


def test_extreme_values_are_drawn_for_single_samples_rows_and_keys() -> None:
    """Sizes of 1 are no exception: none but the empty ones is left out."""
    extreme = [c for c in draw_cases(whole_offer(), 400, 5) if c.regime in EXTREME_VALUES]
    for size in ("batch", "queries", "keys"):
        assert 0 < min(getattr(case, size) for case in extreme)
    assert any(1 == min(case.batch, case.queries, case.keys) for case in extreme)


@pytest.mark.parametrize(
    ("features", "reached"),
    [
        ({"inputs": ("self", "cross")}, ()),
        ({"inputs": ("distinct",)}, EXTREME_VALUES),
        ({"inputs": ("distinct",), "dtype": ("bfloat16",)}, ("largest_value",)),
        ({"form": ("qkv",), "projection": ("none",)}, EXTREME_VALUES),
    ],
    ids=["shared", "distinct", "bfloat16", "qkv"],
)
def test_extreme_values_are_reached_where_values_are_arrays_of_their_own(
    features: Offer, reached: tuple[str, ...]
) -> None:
    """A layer that is given its keys as values, or the query as both, is not asked for them."""
    offered = reachable(make_offer() | features)

    assert reached == tuple(v for v in offered["regime"] if v in EXTREME_VALUES)


@pytest.mark.parametrize("dtype", AXES["dtype"])
@pytest.mark.parametrize("form", ["qkv", "mha"])
def test_extreme_values_are_few_and_of_both_signs(form: str, dtype: str) -> None:
    """One infinity; the largest number once with each sign, in two keys and two channels."""
    words = f"{form}-N3-L5-S7-H2-D4-{'distinct' if form == 'mha' else 'cross'}-{dtype}"
    infinite = make_problem(parse(f"{words}-infinitevalue-s4"))
    largest = make_problem(parse(f"{words}-largestvalue-s4"))
    most = largest_number(dtype)
    values = largest.value.astype(np.float64)
    places = [np.argwhere(values == number) for number in (most, -most)]

    assert 1 == np.isposinf(infinite.value).sum() == (~np.isfinite(infinite.value)).sum()
    assert [1, 1] == [len(each) for each in places]
    assert (places[0][0][1:] != places[1][0][1:]).all()
    assert most == np.abs(values).max()


@pytest.mark.parametrize("projection", ["none", "one_array"])
def test_plain_rows_are_not_scaled_and_tiny_ones_are(projection: str) -> None:
    """Drawn rows are as large as the normal distribution has them, and tiny ones are a part of it.

    Kills a factor on plain rows, of one array too.
    """
    case = Case(
        seed=5, form="qkv", projection=projection, inputs="self", batch=4, queries=32, keys=32,
        heads_count=1, head_dim=16,
    )  # fmt: skip
    plain, tiny = (make_problem(case.replace(regime=each)).key for each in ("normal", "tiny"))
    assert 0.9 < plain.std() < 1.1
    np.testing.assert_allclose(tiny, plain * TINY, rtol=1e-12)
