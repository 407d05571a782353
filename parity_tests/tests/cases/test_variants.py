"""Problems that show the weights, and plain variants of a case in sizes of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import LEVELLED, plain_variant
from mha_parity.cases.weight_readout import with_one_hot_values
from mha_parity.core.arrays import split_heads
from mha_parity.core.case import Case, parse
from mha_parity.core.features import AXES, PLAIN, Offer, make_offer
from mha_parity.oracle.reference import reference_answer

SHOWN = (
    "mha-N2-L3-S6-H2-D6-cross-bias-outproj-floatmask-float64-s1",
    "mha-N2-L6-S6-H2-D6-float64-s2",
    "mha-N2-L3-S4-H2-D6-Ek7-Ev13-distinct-separate-bias-float64-s3",
    "mha-N2-L3-S3-H2-D6-Ek12-Ev30-distinct-separate-float64-s4",
    "qkv-N2-L3-S6-H4-D6-G2-cross-float64-s5",
    "qkv-N2-L3-S6-H2-D3-V6-cross-boolmask-float64-s6",
)


@pytest.mark.parametrize("text", SHOWN)
def test_one_hot_values_show_the_weights(text: str) -> None:
    """Column j of a head's output is the weight of key j: with projections, biases and groups.

    Kills a bias or an out_proj that stays, and an identity of another shape.
    """
    problem = with_one_hot_values(make_problem(parse(text)))
    reference = reference_answer(problem)
    keys = reference.weights.shape[-1]
    shown = split_heads(reference.output, problem.num_heads)
    np.testing.assert_allclose(shown[..., :keys], reference.weights, atol=1e-12)
    assert not np.abs(shown[..., keys:]).any()


def test_values_twice_show_each_weight_twice() -> None:
    """Side by side in a head of twice the keys."""
    problem = with_one_hot_values(make_problem(parse("qkv-N2-L3-S5-H2-D10-cross-float64-s7")), 2)
    reference = reference_answer(problem)
    shown = split_heads(reference.output, 2).reshape(2, 2, 3, 2, 5)
    for half in (0, 1):
        np.testing.assert_allclose(shown[..., half, :], reference.weights, atol=1e-12)


def test_one_array_stays_one_array() -> None:
    """In self-attention the values are the queries and keys too, and weights show those."""
    problem = with_one_hot_values(make_problem(parse("mha-N2-L6-S6-H2-D6-float64-s8")))
    assert problem.query is problem.key is problem.value
    cross = make_problem(parse("mha-N2-L3-S6-H2-D6-Ek12-Ev12-distinct-separate-float64-s9"))
    assert with_one_hot_values(cross).key is cross.key
    assert with_one_hot_values(cross).query is cross.query


WHOLE: Offer = {axis: tuple(values) for axis, values in AXES.items()}
CASE = Case(
    seed=3, batch=5, queries=4, keys=6, heads_count=3, head_dim=5, v_head_dim=7, inputs="cross",
    padding="bool", attn="causal", bias_kv="yes", zero_attn="yes", masked_rows="some",
    dtype="float32", regime="peaky", bias="yes",
)  # fmt: skip


def variant(case: Case = CASE, offered: Offer = WHOLE, **changes: Any) -> Case | None:
    """Return the variant in 8 queries, 9 keys and heads of width 4."""
    return plain_variant(case.replace(**changes), offered, 8, 9, 4)


def test_a_variant_is_plain_in_sizes_of_its_own() -> None:
    """Two samples, two heads, no mask, and three inputs; dtype, layout, biases and seed stay."""
    expected = CASE.replace(
        **{axis: PLAIN[axis] for axis in LEVELLED}, regime="normal", inputs="distinct",
        batch=2, queries=8, keys=9, heads_count=2, head_dim=4, v_head_dim=0,
    )  # fmt: skip
    assert expected == variant()
    assert variant(layout="unbatched") == expected.replace(batch=1, layout="unbatched")
    assert variant(heads_count=1) == expected.replace(heads_count=1)
    separate = expected.replace(projection="separate", kdim=9, vdim=10)
    assert variant(projection="separate", kdim=1, vdim=2) == separate


@pytest.mark.parametrize(
    ("dtype", "offered", "found"),
    [
        ("float32", AXES["dtype"], "float32"), ("float64", AXES["dtype"], "float64"),
        ("float16", AXES["dtype"], "float64"), ("bfloat16", ("bfloat16", "float32"), "float32"),
        ("float16", ("float16",), None), ("float32", ("float16",), None),
    ],
)  # fmt: skip
def test_a_variant_has_digits_enough(dtype: str, offered: Any, found: str | None) -> None:
    """In the case's own dtype, or one of 32 bits and more that is offered; else there is none."""
    case = variant(dtype=dtype, offered=WHOLE | {"dtype": tuple(offered)})
    assert found == (None if case is None else case.dtype)


def test_a_variant_keeps_to_what_is_offered() -> None:
    """What is always there stays, one input stays one, and heads that are grouped share one key."""
    always = make_offer(inputs="self", padding="bool", attn="causal", kv_heads="fewer")
    case = variant(offered=always | {"dtype": ("float32",)}, inputs="self")
    assert case is not None
    assert ("bool", "causal", "self") == (case.padding, case.attn, case.inputs)
    assert (9, 9) == (case.queries, case.keys)
    assert (2, 1) == (case.heads_count, case.kv_heads_count)
    both = variant(offered=WHOLE | {"kv_heads": ("fewer", "equal")})
    assert both is not None
    assert 0 == both.kv_heads_count
    projected = variant(form="qkv", projection="none", bias="no")
    assert projected is not None
    assert "cross" == projected.inputs
