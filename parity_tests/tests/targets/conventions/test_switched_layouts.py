"""The switch ``batch_first`` is torch's: both of its layouts are asked for and judged."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from subject_checks import checks_of, load_subject

judged = checks_of("switched_layouts.py", cases=60)


@pytest.mark.parametrize("name", ["by_samples", "refuses_rows_first", "RefusesRowsFirst"])
def test_right_ones_pass_in_the_layouts_that_they_have(name: str) -> None:
    """A layout that a sentence refuses is not offered, with that sentence."""
    candidate = bind(load_subject(f"switched_layouts.py:{name}"))
    refused = candidate.reasons.get(("layout", "sequence_first"), "")
    assert name.lower().startswith("refuses") is ("rows come behind samples" in refused)
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


@pytest.mark.parametrize("name", ["names_what_it_refuses", "heads_before_rows"])
def test_a_layout_is_not_asked_that_is_refused_or_another(name: str) -> None:
    """A refusal names the switch; where heads stand before rows, samples and rows do not change."""
    candidate = bind(load_subject(f"switched_layouts.py:{name}"))
    assert "sequence_first" not in candidate.offer["layout"]
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


def test_memory_is_tried_in_both_layouts() -> None:
    """Sliced arrays go through by samples, where they are copied, and raise rows first."""
    candidate = bind(load_subject("switched_layouts.py:by_samples"))
    assert {"batch_first", "sequence_first"} <= {*candidate.offer["layout"]}
    assert "sliced" not in candidate.offer["memory"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("raises_by_samples", "batch_first"),
        ("returns_rows_first", "batch_first"),
        ("RaisesRowsFirst", "sequence_first"),
    ],
)
def test_a_layout_that_is_promised_and_wrong_fails(name: str, value: str) -> None:
    """What its switch says, a target has to do: an exception by mistake is no refusal."""
    verdict = judged(name)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
    assert {value} == {each.case.layout for each in verdict.failures}
