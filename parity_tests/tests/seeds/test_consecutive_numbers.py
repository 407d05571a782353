"""Three worked examples on consecutive numbers, to six digits after the point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from mha_numpy.textbook import packed, projected

Array: TypeAlias = npt.NDArray[Any]
Attention: TypeAlias = Callable[[Array, int], Array]

# Tokens of consecutive numbers, how many heads, and the printed output.
EXAMPLES: dict[str, tuple[Array, int, list[list[float]]]] = {
    "2-tokens-2-heads": (
        np.arange(1.0, 9.0).reshape(2, 4),
        2,
        [[4.999174, 5.999174, 7.0, 8.0], [5.0, 6.0, 7.0, 8.0]],
    ),
    "2-tokens-1-head": (
        np.arange(1.0, 5.0).reshape(2, 2),
        1,
        [[2.971668, 3.971668], [2.9999, 3.9999]],
    ),
    "3-tokens-3-heads": (
        np.arange(1.0, 19.0).reshape(3, 6),
        3,
        [
            [12.999982, 13.999982, 15.0, 16.0, 17.0, 18.0],
            [13.0, 14.0, 15.0, 16.0, 17.0, 18.0],
            [13.0, 14.0, 15.0, 16.0, 17.0, 18.0],
        ],
    ),
}
PRINTED_DIGITS = 6

each_example = pytest.mark.parametrize("name", EXAMPLES)


def in_two_steps(x: Array, n_heads: int) -> Array:
    """Project with identities, then attend."""
    identity = np.eye(x.shape[1])
    qkv = projected.compute_qkv(x, identity, identity, identity)
    return projected.multi_head_attention(*qkv, n_heads)


def in_a_loop(x: Array, n_heads: int) -> Array:
    """Attend head after head."""
    return projected.multi_head_attention_loop(x, x, x, n_heads)


def packed_form(x: Array, n_heads: int) -> Array:
    """Project and attend in one call."""
    identity = np.eye(x.shape[1])
    return packed.multi_head_attention(x, identity, identity, identity, n_heads)[0]


def interleaved(x: Array, n_heads: int) -> Array:
    """Wrong: head h takes every n_heads-th column, from column h on."""
    order = np.arange(x.shape[1]).reshape(-1, n_heads).T.ravel()
    return in_two_steps(x[:, order], n_heads)[:, np.argsort(order)]


def scaled_by_model_width(x: Array, n_heads: int) -> Array:
    """Wrong: logits divided by the root of the model's width, not of the head's."""
    # Both factors of the product shrink by the fourth root of the number of heads.
    smaller = x / n_heads**0.25
    return projected.multi_head_attention(smaller, smaller, x, n_heads)


def unscaled(x: Array, n_heads: int) -> Array:
    """Wrong: logits not divided at all."""
    larger = x * math.sqrt(x.shape[1] / n_heads) ** 0.5
    return projected.multi_head_attention(larger, larger, x, n_heads)


def printed(attention: Attention, name: str) -> list[list[float]]:
    """Return the output of an example, rounded as it is printed."""
    x, n_heads, _ = EXAMPLES[name]
    rounded: list[list[float]] = np.round(attention(x, n_heads), PRINTED_DIGITS).tolist()
    return rounded


@each_example
@pytest.mark.parametrize("attention", [in_two_steps, in_a_loop, packed_form])
def test_a_worked_example_comes_out_to_all_printed_digits(attention: Attention, name: str) -> None:
    """Each textbook form gives the example's output."""
    expected = EXAMPLES[name][2]
    actual = printed(attention, name)
    assert expected == actual


@each_example
def test_integers_are_taken_as_they_are_written(name: str) -> None:
    """Integer inputs give the output of the same floats; nothing is truncated on the way."""
    expected = printed(in_two_steps, name)
    x, n_heads, _ = EXAMPLES[name]
    actual = np.round(in_two_steps(x.astype(int), n_heads), PRINTED_DIGITS).tolist()
    assert expected == actual


def test_the_single_head_form_gives_the_example_of_one_head() -> None:
    """`self_attention` is `multi_head_attention` with one head."""
    x, _, expected = EXAMPLES["2-tokens-1-head"]
    actual = np.round(projected.self_attention(x, x, x), PRINTED_DIGITS).tolist()
    assert expected == actual


def test_the_scores_are_those_of_the_explanation() -> None:
    """The scores of one head are [[5, 11], [11, 25]] / sqrt(2), to two digits."""
    expected = [[3.54, 7.78], [7.78, 17.68]]
    x, *_ = EXAMPLES["2-tokens-1-head"]
    actual = np.round(x @ x.T / math.sqrt(2), 2).tolist()
    assert expected == actual


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (interleaved, "2-tokens-2-heads"),
        (interleaved, "3-tokens-3-heads"),
        (scaled_by_model_width, "2-tokens-2-heads"),
        (scaled_by_model_width, "3-tokens-3-heads"),
        (unscaled, "2-tokens-1-head"),
    ],
)
def test_wrong_attentions_print_something_else(wrong: Attention, name: str) -> None:
    """Interleaved heads and wrong scales do not pass for the examples."""
    assert printed(wrong, name) != EXAMPLES[name][2]
