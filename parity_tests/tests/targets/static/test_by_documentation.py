"""What names and documentation say is demanded: windows, packed weights, shapes of masks, keys."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.documented_window import documented_extent
from subject_checks import checks_of

judged = checks_of("by_documentation.py", cases=48, dtypes=("float64",))


@pytest.mark.parametrize(
    "name",
    [
        "Windowed", "WindowedByOneMoreUnsaid", "TorchsNames", "masks_of_two_shapes",
        "masks_of_equal_lengths_as_said", "named_as_jaxs", "heads_before_inputs", "by_whole_keys",
    ],
)  # fmt: skip
def test_right_ones_pass(name: str) -> None:
    """As they say: also where they say less, or the names of another function's masks."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("WindowedByOneMore", "by its documentation of w, row i sees the keys i - w + 1 to i; by"),
        ("TorchsNamesByHead", "in_proj is read as one (q, k, v) block per head"),
    ],
)
def test_wrong_ones_are_named(name: str, said: str) -> None:
    """Of a window a key too many, of torch's packed weights another order."""
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert said in verdict.diagnosis[0].title


def test_a_documented_shape_that_raises_for_other_keys_than_queries_fails() -> None:
    """One of two shapes is refused where L and S differ, which left its cases unasked.

    The diagnosis names no size of which another shape of the mask was passed: with N = L it would
    fit two readings, and is passed as (L, S).
    """
    verdict = judged("masks_of_equal_lengths", diagnose=True, shrink=True, cases=60)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert "got an attn_mask of shape" in verdict.failures[0].check_result.detail
    (found,) = verdict.diagnosis
    assert "the call raises with " in found.title
    assert "N = " not in found.title


@pytest.mark.parametrize(
    ("text", "extent"),
    [
        ("i - window < j <= i", "w - 1"),
        ("Row i sees keys j with `i - j < window_size`.", "w - 1"),
        ("|i - j| <= window", "w"),
        ("keys i - window + 1 to i", "w - 1"),
        ("the last `window` tokens, including itself", "w - 1"),
        ("itself and the window previous tokens", "w"),
        ("the window last tokens", ""),
        ("i - j < window in the first half, i - j <= window else", ""),
        ("of |i - j| <= window - 1", ""),
        ("i - window <= j", "w"),
        ("position i attends to itself and to the `window` positions before it", "w"),
        ("keys i - window .. i", "w"),
        ("keys i - window + 1 .. i", "w - 1"),
        ("window: number of keys a query sees, itself included (as in Mistral).", "w - 1"),
        ("``window=1`` means that every token only attends to itself", "w - 1"),
        ("window == 0 leaves itself alone", "w"),
        ("window=1 is only a default", ""),
    ],
)
def test_the_words_of_a_window_are_read(text: str, extent: str) -> None:
    """By how many keys there are before a row's own, and nothing where both are said."""

    def subject() -> None: ...

    subject.__doc__ = text
    name = "window_size" if "window_size" in text else "window"
    assert extent == documented_extent(subject, name)
