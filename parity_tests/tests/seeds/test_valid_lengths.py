"""Valid lengths [3, 2] of two samples: shapes, and torch with the same padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch

from mha_numpy.textbook.lengths import hidden_keys
from mha_numpy.textbook.valid_lens import MultiHeadAttention

Array: TypeAlias = npt.NDArray[Any]
Forward: TypeAlias = Callable[[MultiHeadAttention, Array, Array, Array], Array]

# The sizes and lengths of the example.
NUM_HIDDENS, NUM_HEADS, DROPOUT = 100, 5, 0.5
QUERIES, KEYS = (2, 4, 100), (2, 6, 100)
VALID_LENS = np.array([3, 2])
# The smallest and the largest output printed for one draw of the weights.
PRINTED_RANGE = (1083.5, 1455.6)

each_seed = pytest.mark.parametrize("seed", [3, 7, 31], ids="seed={}".format)


def layer(seed: int, *, bias: bool = False) -> MultiHeadAttention:
    """Return the example's layer."""
    return MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, DROPOUT, bias, rng=seed)


def softer(attention: MultiHeadAttention) -> MultiHeadAttention:
    """Centre the weights and shrink them, so that no key takes a whole row.

    Uniform weights give logits in the thousands: only one key would count, and a wrong length
    could go unseen.
    """
    for name in ("W_q", "W_k", "W_v", "W_o"):
        setattr(attention, name, (getattr(attention, name) - 0.5) / 2)
    return attention


def inputs(seed: int) -> tuple[Array, Array]:
    """Return queries and keys (values) of the example's shapes, uniform in [0, 1)."""
    rng = np.random.default_rng([seed, 3])
    return rng.random(QUERIES), rng.random(KEYS)


def forward(attention: MultiHeadAttention, x: Array, y: Array, lengths: Array) -> Array:
    """Call the layer with the example's lengths."""
    return attention.forward(x, y, y, lengths)


def without_lengths(attention: MultiHeadAttention, x: Array, y: Array, lengths: Array) -> Array:
    """Wrong: padding is attended to."""
    del lengths
    return attention.forward(x, y, y)


def first_length_for_all(
    attention: MultiHeadAttention, x: Array, y: Array, lengths: Array
) -> Array:
    """Wrong: every sample has the length of the first."""
    return attention.forward(x, y, y, np.full_like(lengths, lengths[0]))


def one_too_many(attention: MultiHeadAttention, x: Array, y: Array, lengths: Array) -> Array:
    """Wrong: the key at the length is still visible."""
    return attention.forward(x, y, y, lengths + 1)


def lengths_exchanged(attention: MultiHeadAttention, x: Array, y: Array, lengths: Array) -> Array:
    """Wrong: heads of sample and head folded in the other order, so that samples mix lengths."""
    return attention.forward(x, y, y, lengths[::-1])


def with_torch(
    attention: MultiHeadAttention, x: Array, y: Array, lengths: Array, order: Array | None = None
) -> Array:
    """Return the output of torch.nn.MultiheadAttention with the same weights and padding.

    `order` is one in which torch is given the features of queries, keys and values.
    """
    order = np.arange(NUM_HIDDENS) if order is None else order
    torch_layer = torch.nn.MultiheadAttention(
        NUM_HIDDENS, NUM_HEADS, batch_first=True, dtype=torch.float64
    )
    w_q, w_k, w_v = attention.W_q[order], attention.W_k[order], attention.W_v[order]
    arrays = {
        "in_proj_weight": np.concatenate([w_q.T, w_k.T, w_v.T]),
        "in_proj_bias": np.concatenate([attention.b_q, attention.b_k, attention.b_v]),
        "out_proj.weight": attention.W_o.T.copy(),
        "out_proj.bias": attention.b_o,
    }
    torch_layer.load_state_dict({name: torch.from_numpy(a) for name, a in arrays.items()})
    keys = torch.from_numpy(y[..., order])
    hidden = torch.from_numpy(np.arange(y.shape[1]) >= lengths[:, None])
    output, _ = torch_layer(torch.from_numpy(x[..., order]), keys, keys, key_padding_mask=hidden)
    result: Array = output.detach().numpy()
    return result


def difference(subject: Forward, attention: MultiHeadAttention, seed: int) -> float:
    """Return how far the subject's output is from torch's."""
    x, y = inputs(seed)
    expected = with_torch(attention, x, y, VALID_LENS)
    actual = subject(attention, x, y, VALID_LENS)
    return float(np.abs(expected - actual).max())


def allowed(attention: MultiHeadAttention, seed: int) -> float:
    """Return 4 times how far torch is from itself where it adds the features in other orders.

    4 is the factor the harness allows between legitimate orders.
    """
    x, y = inputs(seed)
    plain = with_torch(attention, x, y, VALID_LENS)
    orders = [np.random.default_rng(order).permutation(NUM_HIDDENS) for order in range(8)]
    others = [with_torch(attention, x, y, VALID_LENS, order) for order in orders]
    return 4 * max(float(np.abs(plain - other).max()) for other in others)


def influence(subject: Forward, attention: MultiHeadAttention, seed: int) -> float:
    """Return what large numbers in the padding do to the output."""
    x, y = inputs(seed)
    poisoned = np.where(hidden_keys(VALID_LENS, y.shape[1])[:, 0, 0, :, None], 1e6, y)
    expected = subject(attention, x, y, VALID_LENS)
    actual = subject(attention, x, poisoned, VALID_LENS)
    return float(np.abs(expected - actual).max())


@each_seed
def test_the_printed_shapes(seed: int) -> None:
    """Queries (2, 4, 100) and keys (2, 6, 100) give an output (2, 4, 100)."""
    x, y = inputs(seed)
    expected = (2, 4, 100)
    actual = forward(layer(seed), x, y, VALID_LENS).shape
    assert expected == actual


@each_seed
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
def test_torch_agrees(seed: int, bias: bool) -> None:
    """The lengths [3, 2] are a key_padding_mask of torch; with weights as drawn and softer ones."""
    for attention in (layer(seed, bias=bias), softer(layer(seed, bias=bias))):
        assert difference(forward, attention, seed) <= allowed(attention, seed)


@each_seed
def test_hidden_keys_have_no_influence(seed: int) -> None:
    """Whatever stands in the padding, the output is the same but for rounding."""
    attention = softer(layer(seed))
    assert influence(forward, attention, seed) <= allowed(attention, seed)


@each_seed
def test_lengths_cut_sequences(seed: int) -> None:
    """A sample with n valid keys gives what the sequence cut to n keys gives alone."""
    attention = softer(layer(seed))
    x, y = inputs(seed)
    together = forward(attention, x, y, VALID_LENS)
    for n, length in enumerate(VALID_LENS):
        cut = y[n : n + 1, :length]
        alone = attention.forward(x[n : n + 1], cut, cut)[0]
        assert np.abs(together[n] - alone).max() <= allowed(attention, seed)


@each_seed
def test_the_printed_magnitude(seed: int) -> None:
    """Uniform weights put the mean output between the least and the greatest printed number."""
    x, y = inputs(seed)
    smallest, largest = PRINTED_RANGE
    assert smallest < forward(layer(seed), x, y, VALID_LENS).mean() < largest


@each_seed
def test_dropout_needs_a_generator(seed: int) -> None:
    """The layer has dropout 0.5 and applies it only when asked to."""
    x, y = inputs(seed)
    attention = layer(seed)
    plain = MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, 0.0, rng=seed)
    expected = forward(plain, x, y, VALID_LENS)
    actual = forward(attention, x, y, VALID_LENS)
    np.testing.assert_array_equal(actual, expected)
    rng = np.random.default_rng(seed)
    assert not np.array_equal(attention.forward(x, y, y, VALID_LENS, rng=rng), expected)


@pytest.mark.parametrize(
    "wrong", [without_lengths, first_length_for_all, one_too_many, lengths_exchanged]
)
def test_wrong_lengths_are_caught(wrong: Forward) -> None:
    """Lengths ignored, shared, off by one or exchanged fail the comparison with torch."""
    attention = softer(layer(3))
    assert difference(wrong, attention, 3) > allowed(attention, 3)


def test_visible_padding_is_caught() -> None:
    """The check of influence sees padding that is attended to."""
    attention = softer(layer(3))
    assert influence(without_lengths, attention, 3) > allowed(attention, 3)
