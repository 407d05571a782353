"""The backward pass through the shares of a batch is that through all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy import MultiheadAttention, set_num_threads
from mha_numpy.call import CallOptions, Heads
from mha_numpy.grad import heads as heads_module
from mha_numpy.grad.heads import attend_plain_vjp, attend_shares_vjp
from mha_numpy.grad.targets import HeadGradients
from mha_numpy.masks import NO_MASK, Masking

N, H, L, S, D, DV = 3, 6, 23, 29, 7, 5
SCALE = 0.3
ALLOWED = 100 * 2.0**-52  # the same products, perhaps in another order


def masking(kind: str) -> Masking:
    """Return a masking; padding hides one sample whole, and part of another."""
    rng = np.random.default_rng(13)
    padding = np.zeros((N, 1, 1, S), bool)
    padding[1, ..., 20:] = padding[2] = True
    masks = {
        "none": NO_MASK,
        "bool": Masking(hidden=(rng.random((N, H, L, S)) < 0.3,), causal=True),
        "padding": Masking(hidden=(padding, rng.random((1, 1, L, S)) < 0.3)),
    }
    return masks[kind]


@pytest.mark.parametrize("axes", [None, (N, H), (N, 1)], ids=["none", "per head", "averaged"])
@pytest.mark.parametrize("kind", ["none", "bool", "padding"])
def test_shares_of_a_batch_give_the_gradients_of_its_whole(
    kind: str, axes: tuple[int, int] | None
) -> None:
    """Heads, weights and gradients are the same up to roundings, on two threads."""
    rng = np.random.default_rng(19)
    shapes = (N, H, L, D), (N, H, S, D), (N, H, S, DV), (N, H, L, DV)
    q, k, v, d_heads = (rng.standard_normal(shape) for shape in shapes)
    d_weights = None if axes is None else rng.standard_normal((*axes, L, S))
    options = CallOptions(need_weights=axes is not None)
    set_num_threads(2)
    found: list[list[NDArray[Any]]] = []
    with np.errstate(all="ignore"):
        heads = Heads(q, k, v, masking(kind), SCALE, options)
        for heads_out, weights, pull in (
            attend_plain_vjp(*heads[:5]),
            attend_shares_vjp(heads, [slice(0, 2), slice(2, 3)]),
        ):
            into = HeadGradients(np.empty_like(q), np.empty_like(k), np.empty_like(v), ())
            pull(d_heads, d_weights, into)
            found.append([heads_out, *into[:3]])
            if axes is not None:
                assert weights is not None
                found[-1].append(weights)
    for whole, shared in zip(*found, strict=True):
        assert np.abs(whole - shared).max() <= ALLOWED * max(np.abs(whole).max(), 1)


def test_a_batch_of_short_heads_is_pulled_back_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is cut and has no float mask is; one with a float mask goes by tiles."""
    asked: list[int] = []

    def in_shares(heads: Heads, shares: list[slice]) -> Any:
        asked.append(len(shares))
        return attend_shares_vjp(heads, shares)

    monkeypatch.setattr(heads_module, "attend_shares_vjp", in_shares)
    set_num_threads(2)
    x = np.random.default_rng(3).standard_normal((4, 96, 64)).astype(np.float32)
    layer = MultiheadAttention(64, 16, batch_first=True)
    layer.vjp(x, x, x, attn_mask=np.zeros((96, 96), np.float32))
    assert [] == asked
    layer.vjp(x, x, x, attn_mask=np.zeros((96, 96), np.bool_))
    assert [2] == asked
