"""The words that the terminal's report and the page share."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.core.candidate import without_place
from mha_parity.core.check_result import SYSTEMATIC
from mha_parity.core.features import AXES, label
from mha_parity.core.parameters import Role, Status
from mha_parity.core.verdict import counted_cases
from mha_parity.report import correlations
from mha_parity.report.correlations import axes, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.verdict import Diagnosis, Failure, FeatureRow, Verdict
    from mha_parity.report.correlations import Axis

# A sign next to the colour: whoever sees no colours reads the same.
SIGN = {"pass": "✓", "fail": "✗", "inconclusive": "?"}
COLOUR = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
SHOWN_FAILURES = 3
GRADIENTS_NOT_ASKED = "gradients: --grad judges them too"
COMMON, ABSENT = "common to all failures", "absent from all failures"
FIRST_GROUP, FURTHER_GROUP = "common to some failures", "common to others"
# The same where an axis has several values, and no failing case more than one of them.
ONE_OF = MappingProxyType({
    COMMON: "each failure has one of", FIRST_GROUP: "some failures have one of",
    FURTHER_GROUP: "others have one of", "and": "and one of",
})  # fmt: skip
EXPLAINED = "explained by these"  # what failures have in common through the features above alone
ALIASES = "also fits"  # bugs whose output is the same wherever the named one shows
SENSITIVITY = "sensitivity"
# A convention whose name says nothing of the call.
CALLED = MappingProxyType({"fitted": "calling convention fitted (found by small calls)"})
# What the values of an axis are kinds of, where its name does not say it.
KINDS = MappingProxyType(
    {
        "padding": "key_padding_mask",
        "attn": "attn_mask",
        "weights": "attention weights",
        "projection": "projections",
        "inputs": "kind of inputs",
        "regime": "kind of values",
        "memory": "memory layout",
    }
)
# What needs another feature: where that is not offered, these are not either.
FOLLOWING: tuple[tuple[tuple[str, str], dict[str, tuple[str, ...]]], ...] = (
    (
        ("form", "mha"),
        {axis: tuple(AXES[axis]) for axis in ("projection", "bias", "bias_kv", "zero_attn")}
        | {"out_proj": ("general",), "inputs": ("distinct",)},
    ),
    (("form", "qkv"), {"projection": ("none", "one_array")}),
)
REASON = 72  # characters of the reason why a feature is not offered
RAISED = re.compile(r"^(raised \w+):.*", flags=re.DOTALL)
ISSUE_REFERENCE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
HARNESS = Path(__file__).resolve().parents[1]


def feature_words(row: FeatureRow) -> str:
    """Return a feature in words."""
    return label(row.axis, row.value)


def error_words(check_result: CheckResult) -> str:
    """Return the error of a check result next to what was allowed."""
    actual, allowed = check_result.error, check_result.allowed
    if not math.isfinite(actual):
        return "not a finite number"
    times = f" ({actual / allowed:.3g} times)" if allowed > 0 else ""
    return f"{actual:.3g}, allowed {allowed:.3g}{times}"


def environment_line(verdict: Verdict) -> str:
    """Return in one line the convention, the versions and the time."""
    names = [name for name in ("torch", "numpy") if name in verdict.environment]
    parts = [f"{name} {verdict.environment[name]}" for name in names]
    call = CALLED.get(verdict.convention, f"calling convention {verdict.convention}")
    return " · ".join([call, *parts, f"{verdict.seconds:.1f} s"])


def failures_in_full(verdict: Verdict) -> list[Failure]:
    """Return the failures to show in full: those that were shrunk, or the first of all."""
    shrunk = [failure for failure in verdict.failures if failure.shrunk_from is not None]
    return (shrunk or list(verdict.failures))[:SHOWN_FAILURES]


def failures_in_brief(verdict: Verdict, full: list[Failure] | None = None) -> list[Failure]:
    """Return the failures that are shown in a line each: those that are not among ``full``.

    Where the cause is known, the systematic error over the run says nothing further.
    """
    full = failures_in_full(verdict) if full is None else full
    known = is_explained(verdict)
    return [
        failure
        for failure in verdict.failures
        if failure not in full and not (known and failure.check_result.check == SYSTEMATIC)
    ]


def is_explained(verdict: Verdict) -> bool:
    """Return whether the first cause is surely named, or measured for all that fails."""
    first = next(iter(verdict.diagnosis), None)
    return first is not None and (first.confident if first.bug else first.explains >= 1)


def certainty(diagnosis: Diagnosis) -> str:
    """Return how sure a diagnosis is: "the bug", "perhaps", or "measured" without a name."""
    if diagnosis.bug is None:
        return "measured"
    return "the bug" if diagnosis.confident else "perhaps"


def explains(diagnosis: Diagnosis) -> str:
    """Return how much a named bug explains."""
    if diagnosis.bug is None:
        return ""
    return f"{diagnosis.explains:.0%} of the failing answers compared"


def suspect_lines(verdict: Verdict) -> list[str]:
    """Return the lines in which the first cause most likely lies: "file:line: text"."""
    source = verdict.source
    if source is None:
        return []
    return [f"{source.file}:{line}: {text.strip()}" for line, text in source.suspects]


def source_links(source: str) -> list[tuple[str, str]]:
    """Return where a bug was seen, each with the address of ``owner/repository#number``, or ""."""
    found = []
    for name in filter(None, source.split(", ")):
        match = ISSUE_REFERENCE.fullmatch(name)
        found.append((name, f"https://github.com/{match[1]}/issues/{match[2]}" if match else ""))
    return found


def titled_common(verdict: Verdict) -> list[tuple[str, list[FeatureRow]]]:
    """Return a title and rows for each axis of which failures have values in common.

    Where features separate several bugs, each has its own.
    """
    groups = correlations.common(verdict)
    found = []
    for number, group in enumerate(groups):
        first = COMMON if len(groups) == 1 else FURTHER_GROUP if number else FIRST_GROUP
        titles = (first, *("and" for _ in group[1:]))
        found += [
            (title if len(rows) == 1 else ONE_OF[title], rows)
            for title, rows in zip(titles, group, strict=True)
        ]
    return found


def shorten_output(detail: str, lines: int) -> str:
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


def judged_counts(verdict: Verdict) -> str:
    """Return in one line how many cases, features, dtypes and checks were judged."""
    tested = [row for row in verdict.features if row.status in {"pass", "fail"}]
    named = [feature_words(row) for row in tested if row.axis == "dtype"]
    parts = [
        _run_cases(verdict),
        *named,
        f"{len(tested)} features",
        f"{len(verdict.checks)} checks",
    ]
    return " · ".join(parts)


def _run_cases(verdict: Verdict) -> str:
    """Return how many cases were asked, and why no more where the run ended before."""
    if not verdict.stopped_early:
        return counted_cases(verdict.run)
    # One failure is what --fail-fast asked for.
    rest = f"{verdict.failed} failures; --max-failures 0 asks all"
    failures = "1 failure" if verdict.failed == 1 else rest
    return f"{verdict.run} of {counted_cases(verdict.drawn)} (ended at {failures})"


def inconclusive_reasons(verdict: Verdict) -> str:
    """Return why cases are inconclusive, by how many; "" where the sentence says all of it."""
    by_count = sorted(verdict.reasons.items(), key=lambda each: -each[1])
    if all(reason in verdict.sentence for reason, _ in by_count):
        return ""
    return " · ".join(f"{reason} ({counted_cases(count)})" for reason, count in by_count)


def sensitivity(verdict: Verdict) -> str:
    """Return how many cases each gross mistake would fail; "" where it was not measured."""
    if not verdict.sensitivity:
        return ""
    name = min(verdict.sensitivity, key=lambda each: verdict.sensitivity[each])
    least = verdict.sensitivity[name]
    return (
        f"each of {len(verdict.sensitivity)} gross mistakes would fail {least} or more of "
        f"{counted_cases(verdict.measured_cases)} (fewest: {name})"
    )


def gradients_not_asked(verdict: Verdict) -> bool:
    """Return whether gradients were neither judged nor found missing: no row speaks of them."""
    return bool(verdict.features) and not any(row.axis == "gradients" for row in verdict.features)


def not_offered(verdict: Verdict, *, whole_reasons: bool = True) -> list[str]:
    """Return what the target does not offer: what calls were tried for first, with what they gave.

    Features of one reason stand together; axes of which nothing was tried, by their name; what
    follows from another feature is left out. Without ``whole_reasons`` an exception is its name
    alone.
    """
    without = {
        (row.axis, row.value)
        for row in verdict.features
        if row.status in {"not offered", "left out"}
    }
    following = {
        (axis, value)
        for needed, axes_of in FOLLOWING
        if needed in without
        for axis, values in axes_of.items()
        for value in values
    }
    tried: dict[str, list[str]] = {}
    whole: list[str] = []
    single: list[str] = []
    for axis in axes(verdict):
        missing = [row for row in axis.rows if row.status == "not offered"]
        for row in missing:
            if row.reason:
                tried.setdefault(_reason(row, whole=whole_reasons), []).append(feature_words(row))
        untried = [row for row in missing if not row.reason]
        untried = [row for row in untried if (row.axis, row.value) not in following]
        is_whole = not any(row.status == "left out" for row in axis.rows)
        if len(untried) > 1 and not axis.varies and is_whole:
            whole.append(_kinds(axis))
        else:
            single += map(feature_words, untried)
    return [f"{', '.join(names)} ({reason})" for reason, names in tried.items()] + single + whole


def left_out(verdict: Verdict) -> list[str]:
    """Return what the target offers, and options leave out of the run."""
    return [feature_words(row) for row in verdict.features if row.status == "left out"]


def _kinds(axis: Axis) -> str:
    """Return the name of an axis of which one value is offered: nothing, or a kind of it."""
    name = KINDS.get(axis.name, title(axis.name))
    if all(row.value in {"none", "no"} for row in axis.offered):
        return f"{name} of any kind"
    return f"every {name} but {' and '.join(map(feature_words, axis.offered))}"


def not_drawn(verdict: Verdict) -> str:
    """Return the features that no case of a short run has, with the remedy; "" without any."""
    rows = [row for row in verdict.features if row.status == "not drawn"]
    return f"{' · '.join(map(feature_words, rows))} ({rows[0].reason})" if rows else ""


def _reason(row: FeatureRow, *, whole: bool) -> str:
    """Return what a call that tried a feature came to, without its place."""
    reason = without_place(row.reason)
    if not whole:
        reason = RAISED.sub(r"\1", reason)
    if len(reason) <= REASON:
        return reason
    kept = reason[:REASON].rpartition(" ")[0] or reason[:REASON]
    return f"{kept.rstrip(' ,;:(')} ..."


def unpassed_parameters(verdict: Verdict) -> list[tuple[str, list[str]]]:
    """Return the names of the parameters that were not passed, by status."""
    by_status = [
        (status, [each for each in verdict.parameters if each.status is status])
        for status in (Status.NOT_TRIED, Status.DEFAULT_ONLY, Status.EXCLUDED)
    ]
    return [
        (status.value, [f"{each.name} ({_role(each)})" for each in found])
        for status, found in by_status
        if found
    ]


def _role(parameter: Parameter) -> str:
    return "parameter" if parameter.role is Role.OTHER else parameter.role.value


def untested_sentence(verdict: Verdict) -> str:
    """Say how many offered features no case judged, and the remedy."""
    count = len(untested(verdict))
    many = f"{count} features are" if count > 1 else "1 feature is"
    which = f"{many} offered, but no case could have shown a bug there"
    if verdict.failed:
        return which
    return f"{which}: run more cases (--cases), or fewer features (--features)"


def untested(verdict: Verdict) -> list[FeatureRow]:
    """Return the features that are offered and that no case could have shown a bug in."""
    return [row for row in verdict.features if row.status == "inconclusive"]
