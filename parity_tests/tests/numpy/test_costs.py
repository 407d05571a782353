"""Operation counts: the textbook's, which heads do not change, and the machine's, which they do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_numpy import costs

sizes = st.integers(1, 300)


@given(sizes, sizes, sizes)
def test_textbook_costs_do_not_depend_on_the_number_of_heads(
    seq_len: int, head_dim: int, num_heads: int
) -> None:
    """Heads share the width, so that their costs add up to those of a single head."""
    embed_dim = head_dim * num_heads
    expected = costs.textbook_operations(seq_len, embed_dim)
    actual = costs.textbook_operations(seq_len, embed_dim, num_heads)
    assert expected == actual


@given(sizes, sizes, sizes, sizes)
def test_only_the_softmax_grows_with_the_number_of_heads(
    num_queries: int, num_keys: int, head_dim: int, num_heads: int
) -> None:
    """Counted in full, H heads do H times the softmax of one, and the same of all the rest."""
    embed_dim = head_dim * num_heads
    single = costs.flops(num_queries, embed_dim, num_keys=num_keys)
    expected = dataclasses.replace(single, softmax=num_heads * single.softmax)
    actual = costs.flops(num_queries, embed_dim, num_heads, num_keys=num_keys)
    assert expected == actual


def multiplications_and_additions(n: int, L: int, S: int, E: int, H: int) -> int:
    """Count both, product by product, over the arrays that are really multiplied."""
    D = E // H
    products = [
        *[(n * rows, E, E) for rows in (L, S, S)],
        *[(L, D, S)] * (n * H),
        *[(L, S, D)] * (n * H),
        (n * L, E, E),
    ]
    return sum(2 * rows * inner * columns for rows, inner, columns in products)


def test_flops_are_those_of_the_matrix_products() -> None:
    """All but the softmax is what the products (rows, inner) @ (inner, columns) take."""
    n, L, S, E, H = 2, 5, 7, 33, 3
    expected = multiplications_and_additions(n, L, S, E, H)
    counted = costs.flops(L, E, H, num_keys=S, batch_size=n)
    actual = counted.total - counted.softmax
    assert expected == actual


def test_the_textbook_leaves_the_sequence_length_out_of_projections() -> None:
    """Its projections are 2 L times too few for a machine, and its attention 4 times."""
    seq_len = 100
    textbook, machine = costs.textbook_operations(seq_len, 512, 8), costs.flops(seq_len, 512, 8)
    assert 2 * seq_len * textbook.projections == machine.projections
    assert 2 * seq_len * textbook.output == machine.output
    assert 4 * textbook.attention == machine.scores + machine.mixing
    assert machine.scores + machine.softmax + machine.mixing == machine.attention


def test_the_comparison_is_a_table_of_both_counts() -> None:
    """It shows 5,120,000 operations of attention for one head and for eight, and the FLOPs."""
    table = costs.comparison(100, 512, 8)
    rows = {line[:24].strip(): line[24:].split() for line in table.splitlines()[1:]}
    assert ["5,120,000", "5,120,000"] == rows["attention (textbook)"]
    assert ["60,000", "480,000"] == rows["softmax (FLOPs)"]
    assert ["230,255,200", "230,675,200"] == rows["total (FLOPs)"]
    assert "1 head" in table.splitlines()[0]
    assert "8 heads" in table.splitlines()[0]


def test_configurations_are_constants() -> None:
    """A row of the table cannot be changed, and its heads divide its width."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        costs.CONFIGURATIONS[0].num_heads = 7  # type: ignore[misc] # the point of the test
    expected = [each.embed_dim for each in costs.CONFIGURATIONS]
    actual = [each.head_dim * each.num_heads for each in costs.CONFIGURATIONS]
    assert expected == actual


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "textbook_operations(100, 512, num_heads=7)": (
        lambda: costs.textbook_operations(100, 512, 7),
        r"`num_heads` is 7, but should divide `embed_dim`, 512; heads share",
    ),
    "textbook_operations(0, 512)": (
        lambda: costs.textbook_operations(0, 512),
        r"`seq_len` is 0, but should be at least 1; ",
    ),
    "flops(5, 512, num_heads=0)": (
        lambda: costs.flops(5, 512, 0),
        r"`num_heads` is 0, but should be at least 1; ",
    ),
    "flops(5, 512, num_keys=-1)": (
        lambda: costs.flops(5, 512, num_keys=-1),
        r"`num_keys` is -1, but should be at least 1; ",
    ),
    "comparison(5, 0, 1)": (
        lambda: costs.comparison(5, 0, 1),
        r"`embed_dim` is 0, but should be at least 1; ",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_refused_sizes(call: str) -> None:
    """Sizes that are none are refused in one sentence that names them."""
    refused, message = REFUSED[call]
    with pytest.raises(ValueError, match=message):
        refused()


def test_a_count_per_head_of_full_width_is_caught() -> None:
    """Counting every head with the whole width, a common slip, breaks the equality."""
    wrong = [heads * 100 * 100 * 512 for heads in (1, 8)]
    right = [costs.textbook_operations(100, 512, heads).attention for heads in (1, 8)]
    assert 1 == np.unique(right).size
    assert 2 == np.unique(wrong).size
