"""Small problems in more digits: the products, what rests on them, and where they are taken."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mha_numpy
from mha_numpy import MultiheadAttention, _layer, scaled_dot_product_attention
from mha_numpy._engine import WIDE_NUMBERS, WIDE_UP_TO, Size, choose_wide
from mha_numpy._pairs import Pair, inverse_root, product, quotient, two_sum
from mha_parity.accuracy import times_torch
from mha_parity.conventions import bind
from mha_parity.drawing import draw_cases
from mha_parity.gold import golden
from mha_parity.making import make

Array = NDArray[Any]
EPS = 2.0**-53
WIDE_DOUBLE = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps


def rough(seed: int, *shape: int) -> Array:
    """Return numbers of very different sizes."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * np.exp(rng.normal(0, 4, shape))


def exact(pair: Pair) -> list[Fraction]:
    """Return the numbers that pairs stand for."""
    return [
        Fraction(high) + Fraction(low)
        for high, low in zip(pair.high.ravel().tolist(), pair.low.ravel().tolist(), strict=True)
    ]


@pytest.mark.parametrize("inner", [1, 3, 7, 31, 33, 77, 300])
@pytest.mark.parametrize("seed", [0, 1], ids="seed{}".format)
def test_a_product_of_pairs_has_twenty_more_digits(inner: int, seed: int) -> None:
    """Against rational numbers the error is below inner * 2^-75 of the largest in row and column.

    BLAS alone is more than 2^16 times as far off, which shows that the figure says something.
    """
    left, right = rough(seed, 5, inner), rough(seed + 9, inner, 4)
    found = exact(product(Pair(left), Pair(right)))
    wanted = [
        sum(Fraction(a) * Fraction(b) for a, b in zip(row, column, strict=True))
        for row in left.tolist()
        for column in right.T.tolist()
    ]
    reach = np.abs(left).max(axis=1)[:, None] * np.abs(right).max(axis=0)
    units = [
        float(abs(a - b)) / c for a, b, c in zip(found, wanted, reach.ravel().tolist(), strict=True)
    ]
    by_blas = exact(Pair(left @ right))
    plain = max(float(abs(a - b)) for a, b in zip(by_blas, wanted, strict=True))

    assert max(units) <= inner * 2.0**-75
    assert plain > 2**16 * max(units) * reach.min()


def test_sums_quotients_and_roots_of_pairs() -> None:
    """A sum is exact; 1 / sqrt(D) and a quotient are right to 100 digits, a multiple to 75."""
    a, b = rough(2, 40), rough(3, 40)
    total, rest = two_sum(a, b)
    pair, other = product(Pair(a[:, None]), Pair(b[None, :3])), Pair(rough(4, 40, 3))
    scale = inverse_root(11)
    root = Fraction(scale[0]) + Fraction(scale[1])
    multiple, ratio = pair.times(scale), quotient(pair, other)
    plain = zip(a.tolist(), b.tolist(), strict=True)

    assert exact(Pair(total, rest)) == [Fraction(x) + Fraction(y) for x, y in plain]
    assert abs(root**2 * 11 - 1) < 2.0**-100
    for before, after in zip(*map(exact, (pair, multiple)), strict=True):
        assert abs(after / before / root - 1) < 2.0**-75
    for over, under, found in zip(*map(exact, (pair, other, ratio)), strict=True):
        assert abs(found * under / over - 1) < 2.0**-100


class Held(MultiheadAttention):
    """The layer with an engine of its own."""

    forced = "wide"

    def __init__(self, embed_dim: int, num_heads: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, engine=self.forced, **options)


class Ordinary(Held):
    """The layer in the dtype of its arrays."""

    forced = "materialised"


def worst(layer: Any, dtype: str, seed: int) -> float:
    """Return the largest error over 150 cases in units of torch's own."""
    bound = bind(layer)
    offer = bound.offer | {"dtype": (dtype,), "gradients": ("no",)}
    cases = draw_cases(offer, 150, seed)
    problems = [make(case) for case in cases if case.size != "empty"]
    return max(times_torch(p, golden(p), bound(p).output) for p in problems)


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        pytest.param(
            "float64",
            marks=pytest.mark.skipif(
                not WIDE_DOUBLE, reason="no gold for float64: long double is not wider here"
            ),
        ),
    ],
)
def test_no_answer_is_less_accurate_than_torchs(dtype: str) -> None:
    """In all regimes an answer is torch's equal, or off by no more than a rounding.

    The ordinary way is off by more than twice as much as torch in some of these very cases.
    """
    assert worst(Held, dtype, 5) <= 1
    assert worst(Ordinary, dtype, 5) > 2


def layer(dtype: str, **options: Any) -> MultiheadAttention:
    """Return a layer of five heads of width 3."""
    rng = np.random.default_rng(7)
    return MultiheadAttention(15, 5, batch_first=True, dtype=dtype, rng=rng, **options)


def called(engine: str, dtype: str, *, x: Array | None = None, **options: Any) -> Array:
    """Return what a layer gives by an engine."""
    own = layer(dtype, engine=engine).eval()
    x = np.random.default_rng(8).standard_normal((2, 7, 15)).astype(own.dtype) if x is None else x
    return own(x, x, x, **options)[0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_small_problems_take_it_by_themselves(dtype: str) -> None:
    """Without a word about engines the answer is the wide one to the bit, and not the ordinary."""
    np.testing.assert_array_equal(called("wide", dtype), called("auto", dtype))
    assert not np.array_equal(called("materialised", dtype), called("auto", dtype))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_function_takes_it_too(dtype: str) -> None:
    """Attention on projected arrays is wide up to the same size."""
    q, k, v = np.random.default_rng(3).standard_normal((3, 2, 3, 19, 7)).astype(dtype)
    auto, wide, ordinary = (
        scaled_dot_product_attention(q, k, v, engine=engine)
        for engine in ("auto", "wide", "materialised")
    )
    np.testing.assert_array_equal(wide, auto)
    assert not np.array_equal(ordinary, auto)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_are_wide_enough_in_float32(dtype: str) -> None:
    """Every engine gives 16-bit layers the same answer."""
    np.testing.assert_array_equal(called("materialised", dtype), called("wide", dtype))


def test_large_problems_and_dropout_do_not_take_it() -> None:
    """Up to eight million multiplications with few numbers, in float32 and float64."""
    single, most = np.dtype(np.float32), Size(WIDE_UP_TO, WIDE_NUMBERS)
    assert choose_wide("auto", most, single, drops=False)
    assert not choose_wide("auto", Size(WIDE_UP_TO + 1, 5), single, drops=False)
    assert not choose_wide("auto", Size(5, WIDE_NUMBERS + 1), single, drops=False)
    assert not choose_wide("auto", Size(5, 5), single, drops=True)
    assert not choose_wide("materialised", Size(5, 5), single, drops=False)
    assert not choose_wide("wide", Size(5, 5), np.dtype(np.float16), drops=False)
    assert choose_wide("wide", Size(WIDE_UP_TO + 1, WIDE_NUMBERS + 1), single, drops=False)


@pytest.mark.parametrize(("batch_first", "sizes"), [(True, (2, 7, 11)), (False, (2, 7, 11))])
def test_the_size_counts_multiplications_and_numbers(
    batch_first: bool, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four projections and two products of each head, whichever axis comes first.

    Numbers are those of the three inputs and the four weights.
    """
    n, queries, keys = sizes
    seen: list[Size] = []
    monkeypatch.setattr(_layer, "choose_wide", lambda _, size, *__, **___: seen.append(size))
    own = MultiheadAttention(15, 5, kdim=4, vdim=6, batch_first=batch_first, dtype="float64")
    shapes = (queries, n, 15), (keys, n, 4), (keys, n, 6)
    q, k, v = (np.ones(shape).swapaxes(0, int(batch_first)) for shape in shapes)
    own(q, k, v)
    projections = n * 15 * (queries * 15 + keys * 4 + keys * 6 + queries * 15)
    numbers = n * (queries * 15 + keys * 4 + keys * 6) + 15 * (15 + 4 + 6 + 15)
    assert seen == [Size(projections + 2 * n * queries * keys * 15, numbers)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_too_large_for_pairs_get_the_ordinary_answer(dtype: str) -> None:
    """Near the end of the range, where slices overflow, the ordinary way answers those rows."""
    x = np.random.default_rng(9).standard_normal((2, 7, 15)).astype(dtype)
    x[1] *= x.dtype.type(np.finfo(dtype).max / 64)
    wide, ordinary = (called(engine, dtype, x=x) for engine in ("wide", "materialised"))
    assert np.array_equal(np.isfinite(ordinary), np.isfinite(wide)) or dtype == "float32"
    assert np.isfinite(wide[0]).all()


def test_static_keys_take_it() -> None:
    """Keys that come projected are used as they are."""
    rng = np.random.default_rng(4)
    own = layer("float64")
    x, static = rng.standard_normal((7, 2, 15)), rng.standard_normal((10, 6, 3))
    answers = [
        mha_numpy.multi_head_attention_forward(
            x, x, x, 15, 5, own.in_proj_weight, own.in_proj_bias, None, None, False, 0.0,
            own.out_proj.weight, own.out_proj.bias, training=False, static_k=static,
            static_v=static, engine=engine,
        )[0]
        for engine in ("wide", "materialised")
    ]  # fmt: skip
    assert 0 < np.abs(answers[0] - answers[1]).max() < 64 * EPS * np.abs(answers[1]).max()


def test_dropout_is_refused() -> None:
    """Weights dropped by chance have no use for more digits: one sentence says so."""
    own = layer("float64", engine="wide", dropout=0.5)
    x = np.ones((2, 7, 15))
    with pytest.raises(ValueError, match="`engine` is 'wide', but more digits of weights dropped"):
        own(x, x, x)
