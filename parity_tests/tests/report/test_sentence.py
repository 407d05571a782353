"""The sentence of a verdict, and the line it points at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_parity.core.parameters import NO_ANSWER, Parameter, Role
from mha_parity.core.verdict import Diagnosis, Outcome, Source, Verdict
from mha_parity.report.brief import MORE, brief, short_cause

MASK = Parameter(name="mask", of="call", role=Role.MASK, reason="no meaning fits")
LENGTHS = Parameter(name="lens", of="call", role=Role.LENGTHS)
CAUSAL = Parameter(name="causal", of="call", role=Role.CAUSAL)
KEYS = Parameter(name="context", of="call", role=Role.KEYS, reason="raised ValueError")
MEANING = "say what it means by --masks "


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ([MASK], f"`mask` (mask): no meaning fits; {MEANING}mask=hides, keeps or additive, name"),
        (
            [MASK, LENGTHS],
            f"{MEANING}mask=hides, keeps or additive and by --masks lens=hides, keeps or additive",
        ),
        ([MASK, CAUSAL], "judge an adapter that passes them, which `mha-parity adapt` begins"),
        ([CAUSAL], "judge an adapter that passes it, which `mha-parity adapt` begins"),
        (
            [Parameter(name="mask", of="call", role=Role.MASK, reason=f"{NO_ANSWER} raised")],
            "judge an adapter that passes it, which",
        ),
        ([KEYS], "`context` is an input of its own, and every call with S unlike L raised"),
        ([KEYS, MASK], "--features inputs=self; no case passed `mask` (mask)"),
    ],
)
def test_untried_parameters_are_named_with_the_way_out(
    make_verdict: Callable[..., Verdict], parameters: list[Parameter], said: str
) -> None:
    """A meaning helps where every one of them may have another; else an adapter does."""
    verdict = make_verdict(failed=0, outcome=Outcome.INCONCLUSIVE, parameters=tuple(parameters))
    assert said in verdict.sentence
    if KEYS in parameters:
        assert "`context` (" not in verdict.sentence


def test_a_failure_over_the_run_is_no_failure_of_cases(
    make_verdict: Callable[..., Verdict],
) -> None:
    """Without a failing case the check is named; with some they are counted."""
    few = make_verdict()
    assert f"{few.target} fails 40 of 200 cases." in few.sentence
    none = make_verdict(failed=0, outcome=Outcome.FAIL, failures=few.failures)
    assert none.sentence.endswith("; no single one of 200 cases fails.")
    assert "fails 0" not in none.sentence


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (Source("a.py", 3), 3),
        (Source("a.py", 3, raised_at=7), 7),
        (Source("a.py", 3, raised_at=7, suspects=((9, "x"), (11, "y"))), 9),
    ],
)
def test_the_first_suspect_is_marked_then_the_line_that_raised(source: Source, line: int) -> None:
    """Then the first line of the definition."""
    assert line == source.marked


def test_a_verdict_that_fails_says_why_others_are_inconclusive(
    make_verdict: Callable[..., Verdict],
) -> None:
    """The count of inconclusive cases beside those that fail comes with the commonest reason."""
    verdict = make_verdict(inconclusive=3, reasons={"rounding error too large to tell": 3})
    assert "fails 40 of 200 cases; 3 inconclusive: rounding error too large" in verdict.sentence


@pytest.mark.parametrize("bug", [None, "scale-dmodel"])
def test_what_was_measured_is_said_once(
    make_verdict: Callable[..., Verdict], bug: str | None
) -> None:
    """The first line of a failed test has the cause; a second has it where it adds the bug's id."""
    cause = Diagnosis(bug=bug, title="the scale is 1", confident=True, explains=1.0)
    text = brief(make_verdict(diagnosis=(cause,)))
    assert (2 if bug else 1) == text.count("the scale is 1")


@pytest.mark.parametrize(
    ("title", "evidence", "begin"),
    [
        (
            "with grouped heads: heads are tiled",
            "experiments",
            "heads are tiled (with grouped heads):",
        ),
        ("wherever S > 9: a key is lost", "experiments", "a key is lost (wherever S > 9):"),
        (
            "elements differ by 1",
            "the check: rows with a cache",
            "rows with a cache: elements differ",
        ),
        ("with no mask", "experiments", "with no mask:"),
    ],
)
def test_a_line_that_is_cut_begins_with_what_is_wrong(
    make_verdict: Callable[..., Verdict], title: str, evidence: str, begin: str
) -> None:
    """Where it is seen stands behind it, and a check that says it before it."""
    cause = Diagnosis(bug=None, title=title, evidence=evidence, confident=False, explains=1.0)
    assert short_cause(make_verdict(diagnosis=(cause,))).startswith(begin)


def test_a_failed_test_that_is_cut_says_where_the_rest_stands(
    make_verdict: Callable[..., Verdict],
) -> None:
    """Beyond 25 lines the last one names the option and the attribute that have all of it."""
    notes = tuple(f"note {number} {'of many words ' * 20}" for number in range(9))
    whole, cut = brief(make_verdict()), brief(make_verdict(notes=notes))
    assert not whole.endswith(MORE)
    assert cut.endswith(MORE)
    assert 25 >= len(cut.splitlines())
