"""Which engine takes a problem, and that sizes alone decide the answer's bits, up to roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_numpy import MultiheadAttention
from mha_numpy.call import CallOptions
from mha_numpy.engines import dispatch, flash
from mha_numpy.engines.dispatch import choose_engine, cut_batch
from mha_numpy.engines.threads import (
    get_num_threads,
    on_all_threads,
    set_num_threads,
    threads_for_a_job,
)
from mha_numpy.forced import PlainAttention

EPSILON = np.finfo(np.float64).eps


@pytest.mark.parametrize(
    ("scores", "engine"),
    [
        ((1, 8, 256, 256), "plain"),
        ((1, 8, 256, 257), "flash"),
        ((8, 8, 128, 128), "flash"),
        ((512, 8, 64, 64), "plain"),
        ((512, 8, 64, 65), "flash"),
        ((0, 8, 512, 512), "plain"),
    ],
)
def test_auto_takes_flash_for_many_scores_of_long_heads(
    scores: tuple[int, int, int, int], engine: str
) -> None:
    """Few scores are not worth a thread, short heads not worth a call each."""
    assert engine == choose_engine(CallOptions(), scores)
    assert "plain" == choose_engine(CallOptions(dropout_p=0.5), scores)
    assert "plain" == choose_engine(CallOptions(engine="plain"), scores)
    assert "flash" == choose_engine(CallOptions(engine="flash"), scores)


@pytest.mark.parametrize("engine", ["plain", "flash"])
def test_the_number_of_threads_changes_roundings_at_most(engine: str) -> None:
    """Heads are cut by their sizes alone, products by the number of threads."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 300, 192))
    layer = MultiheadAttention(192, 3, rng=rng, dtype="float64", engine=engine, batch_first=True)
    before = get_num_threads()
    answers = []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            answers.append(layer(x, x, x)[0])
    finally:
        set_num_threads(before)
    one, *others = answers
    for other in others:
        assert np.abs(one - other).max() <= 64 * EPSILON * np.abs(one).max()


@pytest.mark.parametrize("engine", ["plain", "flash"])
def test_the_engine_that_is_asked_for_computes(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both give the same numbers: which one computed them shows in the calls alone."""
    calls = []

    def attend_flash(*heads: Any, **options: Any) -> Any:
        calls.append(heads)
        return flash.attend_flash(*heads, **options)

    monkeypatch.setattr(dispatch, "attend_flash", attend_flash)
    x = np.ones((2, 3, 8), np.float32)
    MultiheadAttention(8, 2, engine=engine, batch_first=True)(x, x, x)
    assert (engine == "flash") == bool(calls)


@pytest.mark.parametrize(
    ("scores", "threads", "shares"),
    [
        ((8, 8, 128, 128), 2, [4, 4]),
        ((9, 8, 128, 128), 2, [4, 4, 1]),
        ((8, 8, 128, 128), 1, [4, 4]),
        ((8, 8, 128, 128), 4, [2, 2, 2, 2]),
        ((8, 8, 128, 128), 16, [8]),
        ((4, 8, 128, 128), 2, [4]),
        ((2, 8, 257, 256), 2, [2]),
        ((0, 8, 128, 128), 2, [0]),
    ],
)
def test_a_batch_of_many_scores_is_cut_between_its_samples(
    scores: tuple[int, int, int, int], threads: int, shares: list[int]
) -> None:
    """Each share fits the plain engine; few scores, few samples and long ones stay whole."""
    set_num_threads(threads)
    for options in (CallOptions(), CallOptions(engine="plain")):
        assert shares == [share.stop - share.start for share in cut_batch(options, scores)]
    kept = np.ones((8, 1, 1))
    for options in (
        CallOptions(engine="flash"),
        CallOptions(dropout_p=0.5),
        CallOptions(static_k=kept),
        CallOptions(static_v=kept),
    ):
        assert [slice(0, scores[0])] == cut_batch(options, scores)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("average", [True, False, None])
@pytest.mark.parametrize("heads_of_mask", [None, 1, 6])
def test_shares_of_a_batch_are_its_whole(
    batch_first: bool, average: bool | None, heads_of_mask: int | None
) -> None:
    """Output and weights of each sample, under its own padding and its own mask; seed 3."""
    rng = np.random.default_rng(3)
    shape = (3, 5, 8) if batch_first else (5, 3, 8)
    query, key = rng.standard_normal((2, *shape))
    masks: dict[str, Any] = {"key_padding_mask": rng.random((3, 5)) < 0.3}
    if heads_of_mask is not None:
        lead = () if heads_of_mask == 1 else (heads_of_mask,)
        masks["attn_mask"] = rng.standard_normal((*lead, 5, 5))
    asked = {"need_weights": average is not None, "average_attn_weights": average is True}
    layers = [
        kind(8, 2, batch_first=batch_first, dtype="float64", add_zero_attn=True)
        for kind in (MultiheadAttention, PlainAttention)
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    (whole, weights), (shared, shared_weights) = (
        layer(query, key, key, **masks, **asked) for layer in layers
    )
    np.testing.assert_allclose(shared, whole, rtol=0, atol=64 * EPSILON)
    assert (weights is None) == (shared_weights is None)
    if weights is not None and shared_weights is not None:
        np.testing.assert_allclose(shared_weights, weights, rtol=0, atol=64 * EPSILON)


def test_a_piece_of_a_job_takes_no_second_thread() -> None:
    """The pool's threads have pieces of the outer job: what one of them starts runs on it alone."""
    set_num_threads(2)
    seen = []
    on_all_threads(lambda _: seen.append(threads_for_a_job()), 2)
    assert [1, 1] == seen
    assert 2 == threads_for_a_job()
