"""What the textbook forms refuse, each with the sentence it is refused with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mha_numpy.textbook import keep_mask, packed, projected, valid_lens
from mha_numpy.textbook.lengths import hidden_keys

X = np.ones((5, 6))
W = np.ones((6, 6))
BATCH = np.ones((2, 5, 6))


def padded(**arguments: Any) -> object:
    """Call the class with valid lengths on two samples of five tokens."""
    layer = valid_lens.MultiHeadAttention(6, 3)
    layer.W_k = arguments.pop("W_k", layer.W_k)
    given = {"queries": BATCH, "keys": BATCH, "values": BATCH, **arguments}
    return layer.forward(**given)


def kept(**arguments: Any) -> object:
    """Call the class with keep-masks on five tokens."""
    return keep_mask.MultiHeadAttention(6, 3).forward(**{"X": X, **arguments})


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "compute_qkv(X, W_q of another height)": (
        lambda: projected.compute_qkv(X, W[:4], W, W),
        ValueError,
        r"`W_q` has shape \(4, 6\), but the size of axis 0 should be 6, the width of `X`; check",
    ),
    "compute_qkv(a batch)": (
        lambda: projected.compute_qkv(BATCH, W, W, W),
        ValueError,
        r"`X` has shape \(2, 5, 6\), but should be \(L, E\), an array of 2 axes; reshape it",
    ),
    "self_attention(Q, K of another width, V)": (
        lambda: projected.self_attention(X, X[:, :4], X),
        ValueError,
        r"`K` has shape \(5, 4\), but the size of axis 1 should be 6, the width of `Q`; ",
    ),
    "self_attention(Q, K, V of other rows)": (
        lambda: projected.self_attention(X, X, X[:3]),
        ValueError,
        r"`V` has shape \(3, 6\), but the size of axis 0 should be 5, the number of rows of `K`; ",
    ),
    "self_attention(complex Q)": (
        lambda: projected.self_attention(X * 1j, X, X),
        TypeError,
        r"`Q` has dtype complex128, but should be ",
    ),
    "multi_head_attention(boolean Q)": (
        lambda: projected.multi_head_attention(X > 0, X, X, 3),
        TypeError,
        r"`Q` has dtype bool, but should be ",
    ),
    "multi_head_attention(objects)": (
        lambda: projected.multi_head_attention(X.astype(object), X, X, 3),
        TypeError,
        r"`Q` has dtype object, but should be ",
    ),
    "multi_head_attention(n_heads=4 of width 6)": (
        lambda: projected.multi_head_attention(X, X, X, 4),
        ValueError,
        r"`n_heads` is 4, but should be at least 1 and divide 6, the width of `Q`; heads share",
    ),
    "multi_head_attention_loop(n_heads=3, V of width 5)": (
        lambda: projected.multi_head_attention_loop(X, X, np.ones((5, 5)), 3),
        ValueError,
        r"`n_heads` is 3, but should be at least 1 and divide 5, the width of `V`; ",
    ),
    "multi_head_attention(n_heads=0)": (
        lambda: projected.multi_head_attention(X, X, X, 0),
        ValueError,
        r"`n_heads` is 0, but should be at least 1 ",
    ),
    "multi_head_attention(n_heads=2.0)": (
        lambda: projected.multi_head_attention(X, X, X, 2.0),  # type: ignore[arg-type] # refused
        TypeError,
        r"`n_heads` is 2\.0, but should be an integer; ",
    ),
    "multi_head_attention(no width)": (
        lambda: projected.multi_head_attention(X[:, :0], X[:, :0], X, 1),
        ValueError,
        r"`n_heads` is 1, but should be at least 1 and divide 0, the width of `Q`; ",
    ),
    "packed.multi_head_attention(H=4 of width 6)": (
        lambda: packed.multi_head_attention(X, W, W, W, 4),
        ValueError,
        r"`H` is 4, but should be at least 1 and divide 6, the width of `Wq`; ",
    ),
    "packed.multi_head_attention(Wk narrower than Wq)": (
        lambda: packed.multi_head_attention(X, W, W[:, :3], W, 3),
        ValueError,
        r"`Wk` has shape \(6, 3\), but the size of axis 1 should be 6, the width of `Wq`; ",
    ),
    "packed.multi_head_attention_loop(weights of one head each)": (
        lambda: packed.multi_head_attention_loop(X, np.ones((3, 6, 2)), W, W, 3),
        ValueError,
        r"`Wq` has shape \(3, 6, 2\), but should be \(E, D\), an array of 2 axes; ",
    ),
    "valid_lens.MultiHeadAttention(6, 4)": (
        lambda: valid_lens.MultiHeadAttention(6, 4),
        ValueError,
        r"`num_heads` is 4, but should be at least 1 and divide 6, `num_hiddens`; ",
    ),
    "valid_lens.MultiHeadAttention(6, 3, dropout=1.5)": (
        lambda: valid_lens.MultiHeadAttention(6, 3, 1.5),
        ValueError,
        r"`dropout` is 1\.5, but should be between 0 and 1; ",
    ),
    "forward(values for fewer keys)": (
        lambda: padded(values=BATCH[:, :3]),
        ValueError,
        r"`values` has shape \(2, 3, 6\), but the size of axis 1 should be 5, the number of `keys`",
    ),
    "forward(keys of fewer samples)": (
        lambda: padded(keys=BATCH[:1]),
        ValueError,
        r"`keys` has shape \(1, 5, 6\), but the size of axis 0 should be 2, the number of samples",
    ),
    "forward(queries of another width)": (
        lambda: padded(queries=BATCH[..., :4]),
        ValueError,
        r"`queries` has shape \(2, 5, 4\), but the size of axis 2 should be 6, `num_hiddens`; ",
    ),
    "forward(W_k of another shape)": (
        lambda: padded(W_k=W[:, :3]),
        ValueError,
        r"`W_k` has shape \(6, 3\), but the size of axis 1 should be 6, `num_hiddens`; ",
    ),
    "forward(three lengths for two samples)": (
        lambda: padded(valid_lens=[1, 2, 3]),
        ValueError,
        r"`valid_lens` have shape \(3,\), but should be \(2,\), .* or \(2, 5\), one a query; ",
    ),
    "forward(lengths of four of five queries)": (
        lambda: padded(valid_lens=np.ones((2, 4), int)),
        ValueError,
        r"`valid_lens` have shape \(2, 4\), but should be \(2,\), .* or \(2, 5\), one a query; ",
    ),
    "hidden_keys([3.0, 2.0], 5)": (
        lambda: hidden_keys([3.0, 2.0], 5),
        TypeError,
        r"`valid_lens` have dtype float64, but should be integers; convert",
    ),
    "hidden_keys(3, 5)": (
        lambda: hidden_keys(3, 5),
        ValueError,
        r"`valid_lens` have shape \(\), but should be \(N,\)",
    ),
    "hidden_keys([3, 6], 5)": (
        lambda: hidden_keys([3, 6], 5),
        ValueError,
        r"`valid_lens` hold 6, but should lie between 0 and 5, the number of keys; ",
    ),
    "hidden_keys([3, -1], 5)": (
        lambda: hidden_keys([3, -1], 5),
        ValueError,
        r"`valid_lens` hold -1, but should lie between 0 and 5",
    ),
    "keep_mask.MultiHeadAttention(6, 4)": (
        lambda: keep_mask.MultiHeadAttention(6, 4),
        ValueError,
        r"`num_heads` is 4, but should be at least 1 and divide 6, `d_model`; ",
    ),
    "forward(X of another width)": (
        lambda: kept(X=X[:, :4]),
        ValueError,
        r"`X` has shape \(5, 4\), but the size of axis 1 should be 6, `d_model`; ",
    ),
    "forward(a mask to add to the logits)": (
        lambda: kept(mask=np.where(np.tri(5) == 0, -np.inf, 0)),
        ValueError,
        r"`mask` holds -inf, but a keep-mask holds 0, hidden, and 1, visible, alone; pass",
    ),
    "forward(a mask of other tokens)": (
        lambda: kept(mask=np.tri(4)),
        ValueError,
        r"`mask` has shape \(4, 4\), but should broadcast to \(3, 5, 5\), heads, queries and ",
    ),
    "forward(a mask of samples)": (
        lambda: kept(mask=np.ones((1, 3, 5, 5))),
        ValueError,
        r"`mask` has shape \(1, 3, 5, 5\), but should broadcast to \(3, 5, 5\)",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_refused(call: str) -> None:
    """What cannot be meant is refused in one sentence: what was got, what should be, the remedy."""
    refused, error, message = REFUSED[call]
    with pytest.raises(error, match=f"^{message}") as caught:
        refused()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_what_is_not_refused() -> None:
    """The same calls with fitting arguments are answered, so that nothing is refused as such."""
    assert padded(valid_lens=[5, 1]) is not None
    assert kept(mask=np.tri(5)) is not None
    assert projected.multi_head_attention(X, X, X, 3).shape == X.shape
