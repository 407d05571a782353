"""A prepared layer computes what the layer computes, by each of its ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy import MultiheadAttention
from mha_numpy._folded import Folded
from mha_numpy._prepared import WIDEST_FOLDED
from mha_numpy._shares import pieces_of
from mha_numpy._threads import get_num_threads, set_num_threads
from mha_numpy._tiny import Tiny

# (N, L, E, H) by the way they take.
TINY = [(1, 5, 6, 3), (2, 17, 33, 3)]  # the second one's rows are too many for one product
SAMPLES = [(5, 31, 60, 5), (7, 101, 48, 4), (9, 37, 132, 4)]  # held, by tiles, in two pieces
HEADS = [(1, 103, 56, 7), (1, 101, 264, 3), (3, 167, 280, 7)]  # in one piece, in two, in four
STAGES = [(3, 173, 24, 2), (1, 521, 28, 7)]
SIZES = TINY + SAMPLES + HEADS + STAGES


def layer(embed_dim: int, num_heads: int, dtype: Any = np.float32, **options: Any) -> Any:
    """Return a layer with biases everywhere."""
    rng = np.random.default_rng(3)
    one = MultiheadAttention(embed_dim, num_heads, dtype=dtype, rng=rng, **options)
    for name, array in one.state_dict().items():
        if "bias" in name:
            one.load_state_dict({name: rng.standard_normal(array.shape)}, strict=False)
    return one.eval()


def inputs(n: int, length: int, width: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return random x (N, L, E)."""
    return np.random.default_rng(5).standard_normal((n, length, width)).astype(dtype)


def assert_close_in_rounding(
    actual: NDArray[Any], one: Any, x: NDArray[Any], *, reach: float = 1.0, **masks: Any
) -> None:
    """Compare with the same layer in float64.

    A hundred roundings of the largest number on the way: sums over E and L of random signs grow
    as square roots, below 11 here, over four products. exp turns roundings of logits as large as
    `reach` into as many of its own.
    """
    exact_layer = MultiheadAttention(
        one.embed_dim, one.num_heads, batch_first=one.batch_first, dtype=np.float64
    ).eval()
    exact_layer.load_state_dict(one.state_dict())
    doubles = x.astype(np.float64)
    exact, _ = exact_layer(doubles, doubles, doubles, need_weights=False, **masks)
    allowed = 100 * np.finfo(actual.dtype).eps * max(np.abs(exact).max(), 1) * reach
    assert actual.shape == exact.shape
    assert actual.dtype == x.dtype
    assert np.abs(actual - exact).max() <= allowed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
def test_equals_the_layer(sizes: tuple[int, ...], batch_first: bool, dtype: Any) -> None:
    """Self-attention without masks, at sizes for each of the ways."""
    n, length, width, heads = sizes
    one = layer(width, heads, dtype, batch_first=batch_first)
    x = inputs(n, length, width, dtype)
    x = x if batch_first else np.ascontiguousarray(x.swapaxes(0, 1))
    x.flags.writeable = False
    assert_close_in_rounding(one.prepare()(x, x, x), one, x)


WAYS = [("_tiny", TINY), ("_by_samples", SAMPLES), ("_by_heads", HEADS), ("_in_stages", STAGES)]


@pytest.mark.parametrize(
    ("way", "size"), [(way, size) for way, sizes in WAYS for size in sizes], ids=str
)
def test_sizes_take_their_way(
    way: str, size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each size above is there for the way that it really takes."""
    n, length, width, heads = size
    taken: list[str] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda *_: taken.append(name)

    for each in ("_by_samples", "_by_heads", "_in_stages"):
        monkeypatch.setattr(Folded, each, noting(each))
    monkeypatch.setattr(Tiny, "__call__", noting("_tiny"))
    layer(width, heads, batch_first=True).prepare()._folded(inputs(n, length, width))
    assert [way] == taken


@pytest.mark.parametrize("sizes", SIZES)
def test_threads_change_no_bit(sizes: tuple[int, ...]) -> None:
    """The cut depends on the sizes alone: one thread and three give the same bits."""
    n, length, width, heads = sizes
    prepared = layer(width, heads, batch_first=True).prepare()
    x = inputs(n, length, width)
    before = get_num_threads()
    try:
        answers = []
        for threads in (1, 3):
            set_num_threads(threads)
            answers.append(prepared(x, x, x))
    finally:
        set_num_threads(before)
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [((1, 103, 56, 7), 1), ((1, 101, 264, 3), 2), ((3, 167, 280, 7), 4), ((7, 900, 280, 7), 8)],
)
def test_more_work_is_cut_into_more_pieces(sizes: tuple[int, ...], pieces: int) -> None:
    """From 16 million multiplications on there are two pieces, then four, and eight."""
    n, length, width, heads = sizes
    folded = layer(width, heads).prepare()._folded
    assert pieces == pieces_of(folded._multiplications(n, length))


@pytest.mark.parametrize(("sizes", "pieces"), [((8, 32, 256, 4), 2), ((11, 128, 312, 6), 4)])
def test_samples_are_shared_out_evenly(
    sizes: tuple[int, ...], pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few samples are cut into the pieces that the work is worth, none left to one thread."""
    n, length, width, num_heads = sizes
    seen: list[int] = []
    whole = Folded._heads

    def counted(self: Folded, x: NDArray[Any], heads: slice, out: NDArray[Any]) -> None:
        seen.append(len(x))
        whole(self, x, heads, out)

    monkeypatch.setattr(Folded, "_heads", counted)
    x = inputs(n, length, width)
    layer(width, num_heads, batch_first=True).prepare()(x, x, x)
    assert len(seen) == pieces
    assert max(seen) == -(-n // pieces)


def test_shapes_may_alternate() -> None:
    """What the tiny way keeps of the last shape is not taken for another one."""
    prepared = layer(6, 3, batch_first=True).prepare()
    some = [inputs(n, length, 6) for n, length in ((1, 5), (2, 5), (1, 4), (5, 1))]
    apart = [layer(6, 3, batch_first=True).prepare()(x, x, x) for x in some]
    for _ in range(2):
        for x, expected in zip(some, apart, strict=True):
            np.testing.assert_array_equal(expected, prepared(x, x, x))


def test_wide_layers_keep_no_tiny_weights() -> None:
    """A layer whose single row is not tiny holds its weights once more, not twice."""
    assert layer(264, 3).prepare()._folded._tiny is not None
    assert layer(512, 8).prepare()._folded._tiny is None


def test_very_wide_layers_are_not_folded() -> None:
    """Where folding saves no time, it takes no memory; the answer is the layer's to the bit."""
    widest = layer(WIDEST_FOLDED, 16, batch_first=True).prepare()
    one = layer(WIDEST_FOLDED + 16, 16, batch_first=True)
    x = inputs(2, 3, WIDEST_FOLDED + 16)
    assert widest._folded is not None
    assert one.prepare()._folded is None
    np.testing.assert_array_equal(one(x, x, x, need_weights=False)[0], one.prepare()(x, x, x))


@pytest.mark.parametrize("sizes", [(2, 5, 6, 3), (5, 31, 60, 5), (1, 101, 24, 3)])
@pytest.mark.parametrize("size", [0.1, 30.0])
def test_large_logits_take_the_maximum(size: float, sizes: tuple[int, ...]) -> None:
    """Logits in the thousands come out right in every way."""
    n, length, width, heads = sizes
    one = layer(width, heads, np.float64, batch_first=True)
    x = size * inputs(n, length, width, np.float64)
    assert_close_in_rounding(one.prepare()(x, x, x), one, x, reach=max(size * size, 1))


@pytest.mark.parametrize("which", ["key_padding_mask", "attn_mask"])
def test_masks_take_the_ordinary_way(which: str) -> None:
    """With masks the prepared layer answers as the layer does, rows without a key included."""
    one = layer(6, 3, batch_first=True)
    x = inputs(2, 5, 6)
    mask = np.array([[False] * 5, [True] * 5]) if which == "key_padding_mask" else np.tri(5) == 0
    expected, _ = one(x, x, x, need_weights=False, **{which: mask})
    actual = one.prepare()(x, x, x, **{which: mask})
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "options", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 4, "vdim": 9}]
)
def test_other_layers_take_the_ordinary_way(options: dict[str, Any]) -> None:
    """Appended keys and other widths answer as the layer does."""
    one = layer(6, 3, batch_first=True, **options)
    query = inputs(2, 5, 6)
    key, value = inputs(2, 7, one.kdim), inputs(2, 7, one.vdim)
    expected, _ = one(query, key, value, need_weights=False)
    np.testing.assert_array_equal(one.prepare()(query, key, value), expected)


def test_it_keeps_copies() -> None:
    """What happens to the layer afterwards does not reach the prepared one."""
    one = layer(6, 3, batch_first=True)
    x = inputs(2, 5, 6)
    prepared = one.prepare()
    expected = prepared(x, x, x)
    for array in (one.in_proj_weight, one.in_proj_bias, one.out_proj.weight, one.out_proj.bias):
        array[...] = 0
    np.testing.assert_array_equal(prepared(x, x, x), expected)


def test_it_refuses_what_the_layer_refuses() -> None:
    """A width that does not fit is refused in the layer's own words."""
    one = layer(6, 3, batch_first=True)
    x = inputs(2, 5, 7)
    with pytest.raises(ValueError, match=r"`query` has shape \(2, 5, 7\)"):
        one.prepare()(x, x, x)
