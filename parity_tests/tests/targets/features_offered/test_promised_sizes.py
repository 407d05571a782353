"""Sizes that a target does not promise are tried, and are no failure of it."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.documented_layout import ONE_LENGTH, documents_one_length
from subject_checks import checks_of

judged = checks_of("promised_sizes.py", cases=60, dtypes=("float64",))


def test_one_documented_length_is_the_one_that_is_judged() -> None:
    """The same code fails where its documentation has two. Kills a rule of that by code alone."""
    verdict = judged("of_one_length")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(ONE_LENGTH in note for note in verdict.notes), verdict.notes
    verdict = judged("of_any_lengths")
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert all(each.case.queries != each.case.keys for each in verdict.failures)


def test_gradients_of_no_rows_that_raise_are_not_offered() -> None:
    """Outputs of no rows are 0 rows, and their backward pass raises: the reason says so."""
    verdict = judged("tiled")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    (size,) = (row for row in verdict.features if ("size", "empty") == (row.axis, row.value))
    assert "not offered" == size.status
    assert size.reason.startswith("with gradients it raised"), size


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("Self-attention. q, k, v: (N, H, T, D)", True),
        ("Positions of the sequence. q, k : (B, H, T, E) arrays, v : (B, H, T, D)", True),
        ("Attention of q, k, v (N, H, T, D).", False),
        ("Self-attention. q (N, H, L, D), k (N, H, S, D)", False),
    ],
)
def test_one_length_is_read_from_documentation(text: str, *, one: bool) -> None:
    """Of queries and keys in one entry, and where it speaks of one sequence."""

    def target() -> None: ...

    target.__doc__ = text
    assert one is documents_one_length(target)
