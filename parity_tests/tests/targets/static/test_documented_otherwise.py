"""Documentation in Chinese, and what a mask is said to be broadcastable to, are demanded."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.documented_text import in_english
from subject_checks import checks_of

judged = checks_of("documented_otherwise.py", cases=60, dtypes=("float64", "float32"))


@pytest.mark.parametrize("name", ["hides", "keeps", "Broadcasts"])
def test_right_ones_pass(name: str) -> None:
    """Kills a reading that turns what is said around."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence


@pytest.mark.parametrize(
    "name", ["hides_inverted", "keeps_inverted", "BroadcastsToHeads", "of_any_leading"]
)
def test_wrong_ones_fail(name: str) -> None:
    """Without its documentation each is right by what small calls show of its mask."""
    verdict = judged(name)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence


def test_chinese_words_are_said_in_english_at_their_places() -> None:
    """The longest word decides, and what begins a line is not indented further."""
    assert "mask=True positions are masked " == in_english("mask=True 的位置会被屏蔽")
    assert "1 means valid positions ; 0 means masked positions " == in_english(
        "1 表示有效位置; 0 表示掩码位置"
    )
    assert "a\n    hidden b" == in_english("a\n    不可见b")
    assert "mask: (N, S)" == in_english("mask: (N, S)")
