"""The words that the terminal's report and the page share."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.features import label
from mha_parity.report.telling import axes, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.judgement import Judgement
    from mha_parity.verdict import Diagnosis, Failure, FeatureRow, Verdict

# A sign beside the colour: whoever sees no colours reads the same.
SIGN = {"pass": "✓", "fail": "✗", "inconclusive": "?"}
COLOUR = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
SHOWN_FAILURES = 3
HARNESS = Path(__file__).resolve().parents[1]


def words(row: FeatureRow) -> str:
    """Return a feature in words."""
    return label(row.axis, row.value)


def error(judgement: Judgement) -> str:
    """Return the error of a judgement beside what was allowed."""
    got, allowed = judgement.error, judgement.allowed
    if not math.isfinite(got):
        return "not a finite number"
    times = f" ({got / allowed:.3g} times)" if allowed > 0 else ""
    return f"{got:.3g}, allowed {allowed:.3g}{times}"


def setting(verdict: Verdict) -> str:
    """Return in one line what was called how, and beside which torch."""
    names = [name for name in ("torch", "numpy") if name in verdict.environment]
    parts = [f"{name} {verdict.environment[name]}" for name in names]
    return " · ".join([f"called as {verdict.convention}", *parts, f"{verdict.seconds:.1f} s"])


def in_full(verdict: Verdict) -> list[Failure]:
    """Return the failures to show in full: those that were shrunk, or the first of all."""
    shrunk = [failure for failure in verdict.failures if failure.first_seen is not None]
    return (shrunk or list(verdict.failures))[:SHOWN_FAILURES]


def also(verdict: Verdict) -> list[Failure]:
    """Return the failures that a line each is enough for."""
    full = in_full(verdict)
    return [failure for failure in verdict.failures if failure not in full]


def certainty(diagnosis: Diagnosis) -> str:
    """Return how sure a diagnosis is, in a word or two."""
    if diagnosis.bug is None:
        return "measured"
    return "the bug" if diagnosis.confident else "perhaps"


def explains(diagnosis: Diagnosis) -> str:
    """Return how much a named bug explains."""
    if diagnosis.bug is None:
        return ""
    return f"{diagnosis.explains:.0%} of the failing cases"


def cases(count: int) -> str:
    """Return a count of cases in words."""
    return "1 case" if count == 1 else f"{count} cases"


def told(detail: str, lines: int) -> str:
    """Return the first line and the last lines of a long text, without control characters.

    Of a crash's stacks the target's own frames are left, with short names of files.
    """
    clean = ["".join(c for c in line if c.isprintable()) for line in detail.splitlines()]
    kept = [_short(line) for line in _own(clean) if line.strip(" ^~")]
    if len(kept) <= lines:
        return "\n".join(kept)
    left_out = f"  ... {len(kept) - lines} lines ..."
    return "\n".join([kept[0], left_out, *kept[len(kept) - lines + 1 :]])


def _own(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without other threads' stacks and without the harness's own frames."""
    elsewhere = False
    for line in lines:
        if line.startswith(("Thread 0x", "Current thread 0x")):
            elsewhere = not line.startswith("Current")
        elif not elsewhere and not line.startswith(f'  File "{HARNESS}'):
            yield line


def _short(line: str) -> str:
    """Return the line with files named from the working folder on, or from their package on."""
    line = re.sub(r'(?<=File ").*/(?:site-packages|lib/python3\.\d+)/', "", line)
    return line.replace(f"{Path.cwd()}{os.sep}", "")


def power(verdict: Verdict) -> str:
    """Return what the cases could have shown, in a sentence; nothing where nobody measured it."""
    if not verdict.power:
        return ""
    name = min(verdict.power, key=lambda each: verdict.power[each])
    least = verdict.power[name]
    return (
        f"each of {len(verdict.power)} gross errors would have shown in {least} or more of "
        f"{cases(verdict.weighed)} (in fewest: {name})"
    )


def not_offered(verdict: Verdict) -> list[str]:
    """Return what the target does not offer: whole axes by their name, single values by theirs."""
    whole, single = [], []
    for axis in axes(verdict):
        missing = [row for row in axis.rows if row.status == "not offered"]
        if len(missing) > 1 and not axis.varies:
            whole.append(f"any other {title(axis.name)}")
        else:
            single += [words(row) for row in missing]
    return single + whole


def untold(verdict: Verdict) -> str:
    """Say how many offered features no case could tell about, and what to do about it."""
    rows = untested(verdict)
    many = f"{len(rows)} features are" if len(rows) > 1 else "a feature is"
    if verdict.failed:
        return f"{many} offered, but no case could tell about them (marked ?)"
    return (
        f"{many} offered, but no case could have shown a bug there (marked ?): "
        f"run more cases (--cases), or only what matters (--feature)"
    )


def untested(verdict: Verdict) -> list[FeatureRow]:
    """Return the features that are offered and that no case could tell about."""
    return [row for row in verdict.features if row.status == "inconclusive"]
