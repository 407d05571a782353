"""Which engine takes a problem, and that sizes alone decide the answer's bits, up to roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_numpy import MultiheadAttention
from mha_numpy.call import CallOptions
from mha_numpy.engines import dispatch, flash
from mha_numpy.engines.dispatch import choose_engine
from mha_numpy.engines.threads import get_num_threads, set_num_threads

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
