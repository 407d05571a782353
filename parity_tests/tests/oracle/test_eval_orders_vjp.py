"""Gradients in an order are formed as the order says: where the scale is applied, which level."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import cotangent, make_problem
from mha_parity.core.arrays import Array, merge_heads, split_heads
from mha_parity.core.case import parse
from mha_parity.oracle.eval_orders import EvalOrder, Prepared, attend_in_order
from mha_parity.oracle.eval_orders_vjp import pull_back

PROBLEM = make_problem(parse("qkv-N2-L5-S7-H3-D4-cross-grad-float32-s62"))
SCALE = np.float32(0.5)


def turned(array: Array) -> Array:
    """Return the array with its last axes exchanged, in C order."""
    return np.ascontiguousarray(array.swapaxes(-1, -2))


def product(left: Array, right: Array) -> Array:
    """Return left @ right of two factors that both have the summed axis last in memory."""
    return np.asarray(np.matmul(left, turned(right).swapaxes(-1, -2)))


@pytest.mark.parametrize("scale_at", ["query", "key", "both", "late"])
@pytest.mark.parametrize("normalise", ["before", "after"])
def test_gradients_are_formed_as_the_order_says(scale_at: Any, normalise: Any) -> None:
    """To the bit, from the order's own weights and heads.

    The scale is on dS before both products where the forward pass scales scores or both factors;
    the level is sum(dO o) where it normalises after the product. Kills either choice reversed.
    """
    order = EvalOrder(scale_at=scale_at, normalise=normalise)
    prepared = Prepared(PROBLEM)
    output, p = attend_in_order(prepared, order)
    heads = split_heads(output, 3)
    q, k, v = (split_heads(prepared[name], 3) for name in ("query", "key", "value"))
    given = split_heads(cotangent(PROBLEM), 3)
    d_p = product(given, v.swapaxes(-1, -2))
    level = (given * heads if normalise == "after" else p * d_p).sum(axis=-1, keepdims=True)
    d_scores = p * (d_p - level)
    if scale_at in {"both", "late"}:
        scaled = d_scores * SCALE
        d_q, d_k = product(scaled, k), product(scaled.swapaxes(-1, -2), q)
    else:
        d_q = product(d_scores, k) * SCALE
        d_k = product(d_scores.swapaxes(-1, -2), q) * SCALE
    expected = {"query": d_q, "key": d_k, "value": product(p.swapaxes(-1, -2), given)}
    found = pull_back(prepared, order, cotangent(PROBLEM))
    assert expected.keys() == found.keys()
    for name, each in expected.items():
        assert np.array_equal(merge_heads(each), found[name]), name


def test_the_two_levels_differ() -> None:
    """The comparison above distinguishes them: their gradients differ in some bit."""
    order = EvalOrder()
    other = dataclasses.replace(order, normalise="after")
    first, second = (
        pull_back(Prepared(PROBLEM), each, cotangent(PROBLEM))["query"] for each in (order, other)
    )
    assert not np.array_equal(first, second)
