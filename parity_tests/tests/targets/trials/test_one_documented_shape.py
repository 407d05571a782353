"""One documented shape for q, k and v: S unlike L is asked where it is answered right."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.trials.one_documented_shape import OF_ONE_SHAPE, documents_one_shape
from subject_checks import checks_of

judged = checks_of("windows.py", cases=40, dtypes=("float64",))


def test_keys_beyond_the_queries_are_not_asked() -> None:
    """Right for one length, as documented: the verdict says that k was passed at L = S alone."""
    verdict = judged("in_bands")
    assert Outcome.PASS == verdict.outcome, verdict
    assert "passed at L = S alone: k" in verdict.sentence
    assert {"self", "cross"} == {
        row.value for row in verdict.features if row.axis == "inputs" and row.cases
    }


def test_wrong_answers_to_one_length_are_no_limit() -> None:
    """Documentation of one shape excuses nothing there."""
    assert Outcome.FAIL == judged("in_wrong_bands").outcome


def test_right_answers_to_other_lengths_are_asked() -> None:
    """The documentation says less than the function does."""
    verdict = judged("in_any_bands")
    assert Outcome.PASS == verdict.outcome, verdict
    assert OF_ONE_SHAPE not in {row.reason for row in verdict.features}
    assert "passed at L = S alone: k" not in verdict.sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q, k, v: (B, H, T, D)", True),
        ("q/k/v of shape [B, H, T, D] each", True),
        ("`q`, `k` and `v` are arrays of shape (N, L, H, D).", True),
        ("q, k, v: (B, H, L, D), (B, H, S, D)", False),
        ("q: (B, H, T, D); k, v: (B, H, S, D)", False),
        ("k, v: (B, H, T, D)", False),
        ("takes q, k, v", False),
    ],
)
def test_one_shape_is_read(text: str, said: bool) -> None:
    """All three have it, and it is the only one."""

    def documented() -> None: ...

    documented.__doc__ = text
    assert said is documents_one_shape(documented, ["q", "k", "v"])
