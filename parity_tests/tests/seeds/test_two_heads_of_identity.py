"""Two heads over Q = K = V = identity: torch settles which of two outputs is right.

One, CLAIMED, is the identity again; the other, PRINTED, has the logistic function of 1 on its
diagonal, to 8 digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch

from mha_numpy.textbook import packed, projected

Array: TypeAlias = npt.NDArray[Any]
Attention: TypeAlias = Callable[[Array], Array]

IDENTITY = np.eye(2)
CLAIMED = [[1.0, 0.0], [0.0, 1.0]]
PRINTED = [[0.73105858, 0.5], [0.5, 0.73105858]]
PRINTED_DIGITS = 8


def with_torch(x: Array) -> Array:
    """Two heads of torch.nn.MultiheadAttention, every projection the identity."""
    layer = torch.nn.MultiheadAttention(2, 2, bias=False, dtype=torch.float64)
    identity = torch.eye(2, dtype=torch.float64)
    layer.load_state_dict(
        {"in_proj_weight": torch.cat([identity] * 3), "out_proj.weight": identity}
    )
    given = torch.from_numpy(x)
    output: Array = layer(given, given, given)[0].detach().numpy()
    return output


def with_hard_maximum(x: Array) -> Array:
    """Attend to the best key alone: what would give the identity."""
    best = np.stack([np.eye(2)[np.argmax(np.outer(q, q), axis=-1)] @ q for q in x.T], axis=-1)
    return np.where(x == 0, 0.0, best)


FORMS: dict[str, Attention] = {
    "torch": with_torch,
    "projected": lambda x: projected.multi_head_attention(x, x, x, 2),
    "projected-loop": lambda x: projected.multi_head_attention_loop(x, x, x, 2),
    "packed": lambda x: packed.multi_head_attention(x, IDENTITY, IDENTITY, IDENTITY, 2)[0],
    "packed-loop": lambda x: packed.multi_head_attention_loop(x, IDENTITY, IDENTITY, IDENTITY, 2)[
        0
    ],
}


def printed(attention: Attention) -> list[list[float]]:
    """Return what the attention of the example prints."""
    rounded: list[list[float]] = np.round(attention(IDENTITY), PRINTED_DIGITS).tolist()
    return rounded


@pytest.mark.parametrize("form", FORMS)
def test_the_printed_output_is_right(form: str) -> None:
    """torch, and every textbook form with it, gives the output with 0.731 on the diagonal."""
    expected = PRINTED
    actual = printed(FORMS[form])
    assert expected == actual


@pytest.mark.parametrize("form", FORMS)
def test_the_claimed_output_is_wrong(form: str) -> None:
    """The identity is not what torch, or any form, computes."""
    assert printed(FORMS[form]) != CLAIMED


def test_the_diagonal_is_the_logistic_function_of_one() -> None:
    """Where the number comes from: each head is one wide, its logits are 1 and 0, and 1 and 0."""
    expected = round(1 / (1 + np.exp(-1.0)), PRINTED_DIGITS)
    actual = PRINTED[0][0]
    assert expected == actual


def test_a_hard_maximum_is_caught() -> None:
    """Attention without the soft in softmax gives the identity, and the check sees it."""
    assert printed(with_hard_maximum) == CLAIMED
    assert printed(with_hard_maximum) != PRINTED
