"""Why cases fail in which rows that see no key alone are other than the run asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.core.check_result import MASKED_ROWS
from mha_parity.core.verdict import Diagnosis, counted_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.options import Policy
    from mha_parity.run.case_run import CaseResult

# Of the judge's sentence; rows that are zero and uniform at once are named where all are.
FOUND = re.compile(r"are (\w+)(?: nan, zero nor uniform)?, but")
WORDS = {
    "nan": "NaN", "zero": "zero", "uniform": "the mean of the values", "neither": "none of these",
}  # fmt: skip
OPTION, PROMISED = "--fully-masked asks for", "the target's documentation promises"
REMEDIES: dict[Policy, str] = {
    "nan": "fill masked scores with -inf before the softmax, and replace no NaN behind it",
    "zero": "set the weights of rows whose mask hides every key to 0 behind the softmax",
    "uniform": "fill masked scores with one finite number before the softmax",
}


def fails_by_rows_alone(result: CaseResult) -> bool:
    """Return whether nothing else is wrong with a case."""
    checks = {each.check for each in result.check_results if each.severity.fails}
    return checks == {MASKED_ROWS}


def by_demand(
    failing: Sequence[CaseResult], wanted: Policy | None, *, promised: bool = False
) -> tuple[Diagnosis, ...]:
    """Return what the rows are in these cases and what was asked for; nothing without cases.

    ``promised``: the target's documentation asks for it, and no option.
    """
    if not failing or wanted is None:
        return ()
    results = [each for case_result in failing for each in case_result.check_results]
    details = [each.detail for each in results if each.severity.fails]
    found = dict.fromkeys(WORDS[match[1]] for text in details if (match := FOUND.search(text)))
    rows = " or ".join(found) or "zero and the mean of the values at once"
    cases = counted_cases(len(failing))
    return (
        Diagnosis(
            bug=None,
            title=f"rows that see no key are {rows} in {cases}, and "
            f"{PROMISED if promised else OPTION} {WORDS[wanted]}",
            remedy=REMEDIES[wanted],
            evidence=f"the check: {MASKED_ROWS}",
        ),
    )
