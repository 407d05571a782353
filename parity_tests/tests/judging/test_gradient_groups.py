"""The parts and the places of a gradient are those that its name and its shape say."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.core.check_result import NO_INDEX, Place
from mha_parity.judging.gradient_groups import gradient_place, group_rows, worst_index

LAYER = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-bias-float64-s1"))
HEADS = make_problem(parse("qkv-N3-L5-S7-H4-D2-G2-V3-cross-float64-s2"))
NO = NO_INDEX


@pytest.mark.parametrize(
    ("name", "index", "place"),
    [
        ("query", (2, 3, 5), Place(2, NO, 3, 5)),
        ("in_proj_weight", (13, 6), Place(NO, 1, 13, 6)),
        ("in_proj_weight", (19, 1), Place(NO, 0, 19, 1)),
        ("in_proj_bias", (13,), Place(NO, 1, 13, 0)),
        ("k_proj_weight", (5, 2), Place(NO, 1, 5, 2)),
        ("out_proj.weight", (1, 6), Place(NO, 1, 1, 6)),
        ("out_proj.bias", (6,), Place(NO, NO, 0, 6)),
        ("bias_k", (0, 0, 6), Place(NO, 1, 0, 6)),
        ("key_padding_mask", (2, 6), Place(2, NO, 0, 6)),
        ("attn_mask", (3, 6), Place(NO, NO, 3, 6)),
        ("attn_mask", (5, 3, 6), Place(2, 1, 3, 6)),
    ],
)
def test_a_place_in_a_layers_gradient(name: str, index: tuple[int, ...], place: Place) -> None:
    """Rows of in-projections and columns of out_proj belong to a head of 4; inputs to none."""
    assert place == gradient_place(LAYER, name, index)


def test_a_place_in_a_gradient_of_heads() -> None:
    """The columns are those of heads of the width of keys or of values."""
    assert Place(2, 2, 3, 5) == gradient_place(HEADS, "query", (2, 3, 5))
    assert Place(2, 1, 3, 3) == gradient_place(HEADS, "key", (2, 3, 3))
    assert Place(2, 1, 3, 5) == gradient_place(HEADS, "value", (2, 3, 5))


@pytest.mark.parametrize(
    ("name", "shape", "rows"),
    [
        ("query", (3, 5, 8), [[(s, i, j) for i in range(5) for j in range(8)] for s in range(3)]),
        ("in_proj_weight", (24, 8), [[(r, j) for r in range(4 * g, 4 * g + 4) for j in range(8)]
                                     for g in range(6)]),
        ("v_proj_weight", (8, 8), [[(r, j) for r in range(4 * g, 4 * g + 4) for j in range(8)]
                                   for g in range(2)]),
        ("out_proj.weight", (8, 8), [[(r, j) for r in range(8) for j in range(4 * g, 4 * g + 4)]
                                     for g in range(2)]),
        ("bias_v", (1, 1, 8), [[(0, 0, j) for j in range(4 * g, 4 * g + 4)] for g in range(2)]),
        ("out_proj.bias", (8,), [[(j,) for j in range(8)]]),
        ("attn_mask", (5, 7), [[(i, j) for i in range(5) for j in range(7)]]),
        ("attn_mask", (6, 5, 7), [[(s, i, j) for i in range(5) for j in range(7)]
                                  for s in range(6)]),
        ("key_padding_mask", (3, 7), [[(s, j) for j in range(7)] for s in range(3)]),
    ],
)  # fmt: skip
def test_the_groups_of_a_layers_gradient(
    name: str, shape: tuple[int, ...], rows: list[list[tuple[int, ...]]]
) -> None:
    """A head of 4 rows or columns, a sample, or the whole; the worst of each is found by index."""
    numbers = np.arange(np.prod(shape)).reshape(shape)
    found = group_rows(LAYER, name, numbers)
    assert [sorted(int(numbers[i]) for i in group) for group in rows] == np.sort(found).tolist()
    for number, group in enumerate(rows):
        error = np.zeros(shape)
        error[group[-2]] = 2.0
        error[group[1]] = 1.0
        assert group[-2] == worst_index(LAYER, name, number, error)


@pytest.mark.parametrize(
    ("name", "heads", "width"), [("query", 4, 2), ("key", 2, 2), ("value", 2, 3)]
)
def test_the_groups_of_a_gradient_of_heads(name: str, heads: int, width: int) -> None:
    """A sample and a head each, of as many heads as the array has."""
    array = getattr(HEADS, name)
    numbers = np.arange(array.size).reshape(array.shape)
    found = group_rows(HEADS, name, numbers)
    length = array.shape[1]
    assert (3 * heads, length * width) == found.shape
    assert numbers[1, :, width : 2 * width].ravel().tolist() == found[heads + 1].tolist()
