"""The causal rule of one query of many keys, and masks of single rows beside a causal rule."""

from __future__ import annotations

import pytest

from mha_parity.checks import causal_lengths, single_row_masks
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("few_queries.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize(
    ("name", "check"),
    [("by_torch", causal_lengths.NAME), ("CausalWithMask", single_row_masks.NAME),
     ("LastOfKeys", causal_lengths.NAME), ("LastOfKeysBySaying", causal_lengths.NAME),
     ("queries_at_the_end", causal_lengths.NAME)],
)  # fmt: skip
def test_right_ones_pass_and_are_asked(name: str, check: str) -> None:
    """The check is made, with whatever masks the target takes."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    assert any(check == row.name and row.cases for row in verdict.checks)


@pytest.mark.parametrize(
    ("name", "check", "said"),
    [
        ("without_rule_for_one", causal_lengths.NAME, "1 query of "),
        ("LastOfKeysFromTwo", causal_lengths.NAME, "from the last rows among"),
        ("FirstOfKeysBySaying", causal_lengths.NAME, "from the last rows among"),
        ("LastOfKeysAgainstSaying", "output", "should be"),
        ("queries_at_the_start", causal_lengths.NAME, "from the last rows among"),
        ("CausalWithLastRow", single_row_masks.NAME, "of which `mask` hides "),
    ],
)
def test_wrong_ones_fail_by_that_check(name: str, check: str, said: str) -> None:
    """Cases seldom have one query, and beside a causal rule masks that are alike in all rows."""
    verdict = judged(name, max_failures=0)
    assert Outcome.FAIL is verdict.outcome, verdict
    found = [each.check_result for each in verdict.failures if each.check_result.check == check]
    assert said in found[0].detail
