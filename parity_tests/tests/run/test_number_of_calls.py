"""How often a target is called: as the documentation says, and not for pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import mha_parity
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.options import Options
from mha_parity.judging.output import JudgeSettings
from mha_parity.run.case_run import run_case
from mha_parity.run.weights_pictures import worst_passing
from mha_parity.targets.bind import bind

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
WITHIN = 0.1  # of the published numbers: a changed draw or check may ask a little more
CALLS: list[int] = []  # one entry a call


def attention(Q: Array, K: Array, V: Array, n_heads: int) -> Array:
    """Return attention as the README's function does."""
    return masked(Q, K, V, n_heads)


def masked(Q: Array, K: Array, V: Array, n_heads: int, mask: Any = None) -> Array:
    """Return the same, with keys hidden where a mask is False."""
    CALLS.append(1)
    q, k, v = (np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]).astype(Q.dtype)
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ v), axis=-1)


def published() -> dict[str, dict[int, int]]:
    """Return the page's numbers: number of cases -> number of calls."""
    text = PAGE.read_text(encoding="utf-8")
    head, *rows = re.findall(r"^\| ([^|\n]+) \|((?: [^|\n]*\d[^|\n]* \|)+)$", text, re.MULTILINE)
    counts = [int(each) for each in re.findall(r"cases=(\d+)", head[1])]
    return {
        name.strip(): dict(zip(counts, map(int, re.findall(r"\d+", numbers)), strict=True))
        for name, numbers in rows
    }


@pytest.mark.whole
@pytest.mark.repeats(2)
@pytest.mark.parametrize("cases", [1, 10, 100])
@pytest.mark.parametrize(
    ("row", "target"),
    [("the function of the README", attention), ("the same with a `mask`", masked)],
    ids=["plain", "mask"],
)
def test_calls_are_as_many_as_the_page_says(row: str, target: object, cases: int) -> None:
    """A counter in the target reaches the published number, within a tenth."""
    CALLS.clear()
    assert 0 == mha_parity.judge(target, cases=cases).failed
    assert published()[row][cases] == pytest.approx(len(CALLS), rel=WITHIN)


def test_a_picture_is_drawn_from_single_calls() -> None:
    """The case of the worst error is asked again without the checks that repeat calls."""
    candidate = MonitoredCandidate(bind(attention))
    worst = mha_parity.judge(attention, cases=1, options=Options(draw=False)).worst
    assert worst is not None
    CALLS.clear()
    run_case(candidate, worst.case, JudgeSettings())
    assert len(CALLS) > 24  # repeated and altered, as a case is
    CALLS.clear()
    (picture,) = worst_passing(candidate, worst, JudgeSettings())
    assert picture.candidate_weights is not None
    assert len(CALLS) <= 4
