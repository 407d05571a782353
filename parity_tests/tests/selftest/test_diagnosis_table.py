"""The published table of the diagnosis is the one that its data give."""

from __future__ import annotations

from dataclasses import replace

from mha_parity.selftest.diagnosis_table import (
    GROUPS,
    HALVES,
    PAGE,
    SETS,
    diagnosis_tables,
    read_settled,
    share_found,
)
from mha_parity.selftest.provenance import without_origin

VERDICTS = ("named", "described", "vague", "misleading", "not red")


def test_page_and_data_agree() -> None:
    """The included page is written from the data, and each count follows its verdicts."""
    settled = read_settled()
    assert without_origin(PAGE.read_text(encoding="utf-8")) == diagnosis_tables(settled).rstrip()
    found = next(each for each in settled if each.verdict in {"named", "described"})
    changed = [replace(each, verdict="vague") if each is found else each for each in settled]
    assert diagnosis_tables(changed) != diagnosis_tables(settled)


def test_every_line_is_settled() -> None:
    """Each has a known half, group and verdict, says how it was settled, and quotes what is red."""
    settled = read_settled()
    assert len({each.id for each in settled}) == len(settled) >= 60
    assert {each.half for each in settled} == set(HALVES)
    for each in settled:
        assert each.group in GROUPS
        assert each.verdict in VERDICTS
        assert each.later in {"", *VERDICTS}
        assert each.bug
        assert each.settled
        assert bool(each.diagnosis) is (each.verdict != "not red")
        assert each.half != "held out" or 0 <= each.batch < len(SETS)  # else it has no row


def test_development_half_is_within_the_limit() -> None:
    """At least 85 % of its red ones are named or described, and none misleads."""
    settled = read_settled()
    found, red = share_found(settled, "development")
    assert found >= 0.85 * red
    assert not [e for e in settled if e.half == "development" and e.verdict == "misleading"]
