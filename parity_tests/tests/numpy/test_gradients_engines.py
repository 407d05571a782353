"""The backward pass of flash is that of the plain engine, in linear memory, for any tiles."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mha_torch
from mha_numpy import (
    MultiheadAttention,
    scaled_dot_product_attention_vjp,
    set_num_threads,
)
from mha_numpy.engines.tiles import Tiles
from mha_numpy.grad.flash import attend_flash_vjp
from mha_numpy.grad.heads import attend_plain_vjp
from mha_numpy.grad.targets import HeadGradients, zeros_for
from mha_numpy.masks import Masking

Array = NDArray[Any]
N, H, L, S, D, DV = 3, 6, 23, 29, 7, 5
SCALE = 0.3
EPS = 2.0**-52
CUTS = {
    "small": Tiles(4, 5),
    "uneven": Tiles(7, 3),
    "one": Tiles(23, 29),
    "chosen": None,
}
MASKS = ["none", "bool", "padding", "float", "shared float", "float padding", "constant in a row"]
FLASH = {"engine": "flash"}
PLAIN = {"engine": "plain"}


def problem(seed: int, groups: int, size: float = 1.0, dtype: Any = np.float64) -> list[Array]:
    """Arrays q, k, v and a cotangent of the heads."""
    rng = np.random.default_rng(seed)
    shapes = (N, H, L, D), (N, groups, S, D), (N, groups, S, DV), (N, H, L, DV)
    q, *others = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return [q * dtype(size), *others]


def masking(kind: str, *, causal: bool, appended: int) -> Masking:
    """A masking with one mask; padding hides one sample whole, the appended keys excepted."""
    rng = np.random.default_rng(13)
    padding = np.zeros((N, 1, 1, S), bool)
    padding[0, ..., 20:] = padding[1, ..., :3] = padding[2] = True
    padding[..., S - appended :] = False
    masks: dict[str, Any] = {
        "none": {},
        "bool": {"hidden": (rng.random((N, H, L, S)) < 0.3,)},
        "padding": {"hidden": (padding,)},
        "float": {"bias": (rng.standard_normal((N, H, L, S)),)},
        "shared float": {"bias": (rng.standard_normal((1, 1, L, S)),)},
        "float padding": {"bias": (rng.standard_normal((N, 1, 1, S)),)},
        "constant in a row": {
            "bias": (rng.standard_normal((1, H, 1, 1)), rng.standard_normal((1, 1, L, 1)))
        },
    }
    return Masking(**masks[kind], causal=causal, appended=appended)


def pulled(
    attend_vjp: Any, arrays: list[Array], masks: Masking, d_weights: Any = None, **options: Any
) -> list[Array]:
    """Return heads_out and all gradients."""
    q, k, v, given = arrays
    with np.errstate(all="ignore"):
        heads_out, *_, pull = attend_vjp(q, k, v, masks, SCALE, **options)
        empty = np.empty_like(q), np.empty_like(k), np.empty_like(v)
        into = HeadGradients(*empty, zeros_for(masks, q.dtype))
        pull(given, d_weights, into)
    return [heads_out, *into[:3], *into.bias]


def largest_difference(first: list[Array], second: list[Array]) -> float:
    """Largest difference, in each array relative to its largest number (or to 1), or NaN."""
    pairs = zip(first, second, strict=True)
    return float(np.max([np.abs(a - b).max() / max(np.abs(a).max(), 1) for a, b in pairs]))


@pytest.mark.repeats(28)
@pytest.mark.parametrize("tiles", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("groups", [6, 3, 1])
def test_tiles_give_the_gradients_of_held_weights(
    groups: int, kind: str, tiles: Tiles | None
) -> None:
    """All engines agree, causal or not, with appended keys or not, for all kinds of masks.

    float64 along chains of four products: some hundred roundings, times what the largest logits
    (size 40: about 100) make of a rounding of their own.
    """
    for causal in (False, True):
        for appended, size in ((0, 1.0), (2, 1.0), (0, 40.0)):
            arrays = problem(17, groups, size)
            masks = masking(kind, causal=causal, appended=appended)
            held = pulled(attend_plain_vjp, arrays, masks)
            set_num_threads(1)
            one = pulled(attend_flash_vjp, arrays, masks, tiles=tiles)
            set_num_threads(2)
            two = pulled(attend_flash_vjp, arrays, masks, tiles=tiles)
            assert largest_difference(held, one) <= 1000 * EPS * size
            assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("axes", [(N, H), (N, 1)], ids=["per head", "averaged"])
@pytest.mark.parametrize("tiles", CUTS.values(), ids=CUTS)
def test_tiles_take_a_cotangent_of_the_weights(tiles: Tiles | None, axes: tuple[int, int]) -> None:
    """Tile by tile the weights' own cotangent does what it does to all of them at once."""
    d_weights = np.random.default_rng(31).standard_normal((*axes, L, S))
    arrays, masks = problem(31, 3), masking("padding", causal=True, appended=0)
    held = pulled(attend_plain_vjp, arrays, masks, d_weights=d_weights)
    options: Any = {"need_weights": True, "tiles": tiles}
    found = pulled(attend_flash_vjp, arrays, masks, d_weights=d_weights, **options)
    assert largest_difference(held, found) <= 1000 * EPS
    assert largest_difference(held, pulled(attend_flash_vjp, arrays, masks, **options)) > 1e9 * EPS


@pytest.mark.parametrize(
    "other",
    [Masking(causal=True), Masking(causal=True, appended=1), Masking(appended=2)],
    ids=["appended", "number", "causal"],
)
def test_a_forgotten_rule_shows(other: Masking) -> None:
    """The comparison above detects masks that differ in few cells."""
    arrays = problem(17, 3)
    held = pulled(attend_plain_vjp, arrays, Masking(causal=True, appended=2))
    assert largest_difference(held, pulled(attend_flash_vjp, arrays, other)) > 1e9 * EPS


@pytest.mark.parametrize("level", [-1000, -88, -30, 0, 25, 45, 88, 1000])
def test_the_level_of_a_row_does_not_matter(level: int) -> None:
    """In float32 rows far above or below 0 keep their gradients: the shift moves with them.

    A logit of size |level| is rounded to 2^-24 |level|, which changes its weight by as much; the
    rest is some hundred roundings.
    """
    arrays = problem(19, 3, dtype=np.float32)
    masks = Masking(bias=(np.full((1, 1, L, 1), level, np.float32),))
    found = pulled(attend_flash_vjp, arrays, masks, tiles=Tiles(8, 16))
    wide = [each.astype(np.float64) for each in arrays]
    held = pulled(attend_plain_vjp, wide, Masking())
    allowed = 2.0**-24 * (100 + 4 * abs(level))
    assert largest_difference(held, [each.astype(np.float64) for each in found[:4]]) <= allowed


def test_future_keys_of_any_score_leave_gradients_finite() -> None:
    """A score of 1000 in the future is 0 in the gradients of higher blocks than the forward's.

    Kills hiding it by 0 after exp: 0 * inf is NaN, where the forward pass had not read that key.
    """
    rng = np.random.default_rng(23)
    arrays = [rng.standard_normal((1, 8, 1200, 4)) for _ in range(4)]
    arrays[0][..., 0] = arrays[1][..., 0] = 0
    arrays[0][:, :, 10, 0] = arrays[1][:, :, 1190, 0] = np.sqrt(1000 / SCALE)
    held = pulled(attend_plain_vjp, arrays, Masking(causal=True))
    found = pulled(attend_flash_vjp, arrays, Masking(causal=True), tiles=Tiles(1200, 256))
    assert largest_difference(held, found) <= 1000 * EPS


@pytest.mark.parametrize("level", [-47, 45])
def test_small_cotangents_meet_large_sums(level: int) -> None:
    """A cotangent of 2^-73 over row sums near 1e20 or 1e-20 gives gradients 2^-73 as large.

    Kills a division of the cotangent by sums that large, which leaves float32 few digits of it.
    """
    q, k, v, cotangent = problem(19, 3, dtype=np.float32)
    masks = Masking(bias=(np.full((1, 1, L, 1), level, np.float32),))
    whole = pulled(attend_flash_vjp, [q, k, v, cotangent], masks)
    small = pulled(attend_flash_vjp, [q, k, v, cotangent * np.float32(2.0**-73)], masks)
    for once, scaled in zip(whole[1:4], small[1:4], strict=True):
        assert np.abs(scaled * np.float32(2.0**73) - once).max() <= 2.0**-24 * 100


CALLS: list[tuple[Any, Any, Any, Any, bool]] = [
    ((2, 6), (2, 3), (2, 3), (5, 11), True),
    ((2, 6), (2, 3), (2, 2), (2, 1, 5, 11), True),
    ((6,), (1,), (1,), (6, 5, 11), True),
    ((), (), (), (5, 11), False),
    ((2, 3), (1, 3), (2, 1), (1, 11), False),
    ((2, 3, 4), (3, 1), (1,), (2, 1, 1, 5, 11), False),
    ((2, 3, 4), (3, 1), (1,), (3, 1, 5, 11), False),
    ((3,), (2, 3), (3,), None, False),
]


@pytest.mark.parametrize("engine", [FLASH, PLAIN], ids=["flash", "plain"])
@pytest.mark.parametrize(("of_query", "of_key", "of_value", "of_mask", "grouped"), CALLS)
def test_what_was_broadcast_is_summed(
    of_query: Any, of_key: Any, of_value: Any, of_mask: Any, grouped: bool, engine: Any
) -> None:
    """Leading axes, grouped heads and the mask get gradients of their own shapes: torch's."""
    rng = np.random.default_rng(23)
    q, k, v = (
        rng.standard_normal((*lead, *tail))
        for lead, tail in ((of_query, (5, 7)), (of_key, (11, 7)), (of_value, (11, 13)))
    )
    options: Any = {
        "attn_mask": None if of_mask is None else rng.standard_normal(of_mask),
        "is_causal": of_mask is None,
        "scale": 0.4,
        "enable_gqa": grouped,
    }
    output, pull = scaled_dot_product_attention_vjp(q, k, v, **options, **engine)
    given = rng.standard_normal(output.shape)
    expected, found = mha_torch.sdpa_gradients(q, k, v, given, **options), pull(given)
    assert set(expected) == set(found)
    for name, gradient in expected.items():
        assert gradient.shape == found[name].shape
        assert np.abs(gradient - found[name]).max() <= 1e4 * EPS


def peak_bytes(length: int, **engine: Any) -> int:
    """Peak of what a call and its pull allocate, of causal self-attention so long."""
    q = np.ones((1, 2, length, 8), np.float32)
    tracemalloc.start()
    output, pull = scaled_dot_product_attention_vjp(q, q, q, is_causal=True, **engine)
    pull(output)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_flash_grows_linearly() -> None:
    """Twice the length takes twice the memory, and less than the weights of one head.

    Linear growth doubles and quadratic growth quadruples: 3 lies between them. The weights that
    the other engine holds make it fail both.
    """
    peak_bytes(256, **FLASH)  # the threads' scratch memory is there from now on
    short, long = (peak_bytes(length, **FLASH) for length in (2048, 4096))
    assert long < 3 * short
    assert long < 4 * 4096 * 4096
    held = [peak_bytes(length, **PLAIN) for length in (512, 1024)]
    assert held[1] > 3 * held[0]
    assert held[1] > 4 * 1024 * 1024


@pytest.mark.parametrize("engine", [FLASH, PLAIN], ids=["flash", "plain"])
@pytest.mark.parametrize(("n", "queries", "keys"), [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_empty_problems_have_zero_gradients(n: int, queries: int, keys: int, engine: Any) -> None:
    """Where an axis is empty all gradients are there, in shape, and 0 but for out_proj.bias."""
    layer = MultiheadAttention(6, 3, batch_first=True, **engine)
    x, y = np.ones((n, queries, 6), np.float32), np.ones((n, keys, 6), np.float32)
    (output, _), pull = layer.vjp(x, y, y, need_weights=False)
    found = pull(np.ones_like(output))
    assert {"query", "key", "value", *layer.state_dict()} == set(found)
    assert np.array_equal(np.full(6, n * queries, np.float32), found.pop("out_proj.bias"))
    assert not any(each.any() for each in found.values())
