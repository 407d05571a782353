"""Samples shared out among threads: the same answer on any, whatever is masked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy import MultiheadAttention, attention
from mha_numpy.engines import dispatch, parallel
from mha_numpy.engines.dispatch import cut_samples
from mha_numpy.engines.parallel import pieces_of
from mha_numpy.engines.threads import get_num_threads, run, set_num_threads
from mha_numpy.masks import Masking

Array = NDArray[Any]
N, L, S, H, D = 5, 7, 11, 3, 5
E = H * D
RNG = np.random.default_rng(3)
EPSILON = np.finfo(np.float64).eps
WIDTHS = ("embed_dim", "kdim", "vdim")
PADDING = np.arange(S) >= np.array([11, 4, 9, 1, 7])[:, None]
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "shared": {"attn_mask": RNG.random((L, S)) < 0.3},
    "each": {"attn_mask": RNG.standard_normal((N * H, L, S))},
    "both": {
        "attn_mask": RNG.standard_normal((L, S)),
        "key_padding_mask": np.where(PADDING, -np.inf, RNG.standard_normal((N, S))),
    },
    "causal": {"attn_mask": np.triu(np.ones((L, S), bool), 1), "is_causal": True},
}


@pytest.fixture
def shared_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Share out the samples of small problems too, two at a time; return how many each call had."""
    seen: list[int] = []
    whole: Any = attention.attend

    def counted(q: Array, *others: Any, **options: Any) -> Any:
        seen.append(len(q))
        return whole(q, *others, **options)

    monkeypatch.setattr(dispatch, "attend", counted)
    monkeypatch.setattr(parallel, "SHARED_FROM", 0)
    monkeypatch.setattr(parallel, "EVEN_FROM", 0)
    monkeypatch.setattr(dispatch, "PIECE_SCORES", 2 * H * L * (S + 2))
    return seen


def layer(**options: Any) -> MultiheadAttention:
    """Return a float64 layer that takes the plain engine."""
    rng = np.random.default_rng(4)
    options.setdefault("batch_first", True)
    return MultiheadAttention(E, H, rng=rng, dtype="float64", engine="plain", **options).eval()


def sequences() -> tuple[Array, Array, Array]:
    """Return query (N, L, E), key and value (N, S, E)."""
    rng = np.random.default_rng(5)
    return tuple(rng.standard_normal((N, length, E)) for length in (L, S, S))  # type: ignore[return-value]  # three


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize(
    "extra", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=["", "kv"]
)
@pytest.mark.parametrize("weights", ["none", "averaged", "each"])
def test_shared_samples_give_the_whole_answer(
    masks: str, extra: dict[str, Any], weights: str, shared_out: list[int]
) -> None:
    """Output and weights are those of one thread on all samples, up to the order of sums."""
    own = layer(**extra)
    options = MASKS[masks] | {
        "need_weights": weights != "none",
        "average_attn_weights": weights == "averaged",
    }
    found = own(*sequences(), **options)
    assert [2, 2, 1] == sorted(shared_out, reverse=True)
    expected = []
    for i in range(N):
        query, key, value = (x[i : i + 1] for x in sequences())
        expected.append(own(query, key, value, **one(options, i)))
    for got, parts in zip(found, zip(*expected, strict=True), strict=True):
        if got is None:
            assert weights == "none"
            continue
        due = np.concatenate(parts)
        assert np.abs(got - due).max() <= 64 * EPSILON * np.abs(due).max()


def one(options: dict[str, Any], sample: int) -> dict[str, Any]:
    """Return the options with the masks of one sample."""
    found = dict(options)
    if "key_padding_mask" in found:
        found["key_padding_mask"] = found["key_padding_mask"][sample : sample + 1]
    if "attn_mask" in found and found["attn_mask"].ndim == 3:
        found["attn_mask"] = found["attn_mask"][sample * H : (sample + 1) * H]
    return found


def on_threads(*numbers: int) -> list[Array]:
    """Return a layer's output on each number of threads."""
    own, before = layer(), get_num_threads()
    answers = []
    try:
        for threads in numbers:
            set_num_threads(threads)
            answers.append(own(*sequences())[0])
    finally:
        set_num_threads(before)
    return answers


def test_the_number_of_threads_changes_roundings_at_most(shared_out: list[int]) -> None:
    """Samples are cut by their sizes alone, products by the number of threads."""
    one, *others = on_threads(1, 2, 3)
    assert 9 == len(shared_out)
    for other in others:
        assert np.abs(one - other).max() <= 64 * EPSILON * np.abs(one).max()


def test_dropout_and_sequences_first_are_shared_out_too(shared_out: list[int]) -> None:
    """The weights of all samples are dropped at once, wherever each is computed."""
    query, key, value = sequences()
    dropped = layer(dropout=0.5).train()
    found, _ = dropped(query, key, value)
    dropped.rng = layer(dropout=0.5).rng
    dropped.batch_first = False
    query, key, value = (x.swapaxes(0, 1) for x in (query, key, value))
    other, _ = dropped(query, key, value)
    assert 6 == len(shared_out)
    assert np.abs(other.swapaxes(0, 1) - found).max() <= 64 * EPSILON * np.abs(found).max()


def test_small_problems_are_not_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below sixteen million multiplications waking a thread costs more than it saves."""
    shares: list[Any] = []
    monkeypatch.setattr(dispatch, "_attend_by_samples", lambda *given: shares.append(given))
    output, _ = layer()(*sequences())
    assert [] == shares
    assert np.isfinite(output).all()


def test_masks_of_some_samples() -> None:
    """Masks that all samples share stay; those of each are cut with the samples."""
    shared, each = np.zeros((1, 1, L, S), bool), np.arange(N * S).reshape(N, 1, 1, S)
    cut = Masking(hidden=(shared,), bias=(each,), causal=True, appended=1).of_samples(slice(1, 3))
    np.testing.assert_array_equal(each[1:3], cut.bias[0])
    assert (cut.hidden[0] is shared, cut.causal, cut.appended) == (True, True, 1)


def test_samples_are_cut_by_work_and_scores() -> None:
    """Little work is one piece; else a piece is a share, or the samples of a megabyte of scores."""
    assert [slice(0, 9)] == cut_samples((9, 4, 32, 32), 64)
    assert [slice(0, 4), slice(4, 8)] == cut_samples((8, 8, 64, 64), 64)
    assert [2, 2, 2, 2, 1] == [s.stop - s.start for s in cut_samples((9, 8, 128, 128), 64)]
    assert [1, 1] == [s.stop - s.start for s in cut_samples((2, 8, 512, 512), 64)]
    assert [slice(0, 0)] == cut_samples((0, 8, 512, 512), 64)
    assert [1, 2, 4, 8] == [pieces_of(10**n) for n in (7, 8, 9, 10)]


def test_a_piece_of_a_job_starts_no_job() -> None:
    """Work inside a piece is done on that piece's thread, in order."""
    seen: list[tuple[int, int]] = []

    def piece(number: int) -> None:
        inner: list[int] = []
        run(inner.append, 4, 3)
        assert [0, 1, 2, 3] == inner
        seen.append((number, len(inner)))

    run(piece, 3, 2)
    assert [(0, 4), (1, 4), (2, 4)] == sorted(seen)
