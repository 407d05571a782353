"""Torch on trial: its inconsistencies are reproduced, and a torch that mends one is detected."""

from __future__ import annotations

import math
import re

import pytest
import torch

from mha_torch import Path
from mha_torch import _trial_masks as masks
from mha_torch import _trial_values as values
from mha_torch._evidence import Evidence
from mha_torch.trial import (
    FINDINGS,
    GROUPS,
    Finding,
    State,
    findings_of_group,
    reproduce_finding,
    trial,
)

measured_on_2_13 = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="states what torch 2.13 does"
)


def planted(evidence: Evidence | None) -> Finding:
    """Return a finding whose reproducer answers `evidence`, or fails without one."""

    def reproduce() -> Evidence:
        if evidence is None:
            raise AttributeError("torch has no such function")
        return evidence

    return Finding("planted", "Something differs", "a case", frozenset({Path.FAST}), reproduce)


@pytest.mark.parametrize(
    ("evidence", "state", "sentence"),
    [
        (Evidence(True, {"here": 1.0}), State.FOUND, "Something differs: found .*here 1"),
        (Evidence(False, {"here": 0.0}), State.MENDED, "Something differs: mended .*here 0"),
        (None, State.NOT_RUN, "Something differs: not run .*no such function"),
    ],
    ids=["found", "mended", "not run"],
)
def test_outcomes(evidence: Evidence | None, state: State, sentence: str) -> None:
    """A difference is found, its absence is mended, an error is neither and stops nothing."""
    outcome = reproduce_finding(planted(evidence))
    assert state == outcome.state
    assert re.match(sentence, outcome.sentence)
    assert torch.__version__ in outcome.sentence


def test_trial_runs_what_is_chosen() -> None:
    """The outcomes come in the order of the findings."""
    chosen = [planted(None), planted(Evidence(True, {}))]
    assert [State.NOT_RUN, State.FOUND] == [outcome.state for outcome in trial(chosen=chosen)]


@measured_on_2_13
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_finding_shows_on_2_13(finding: Finding) -> None:
    """Every finding of the table shows on torch 2.13 for the CPU, with numbers to it."""
    outcome = reproduce_finding(finding)
    assert State.FOUND == outcome.state, outcome.sentence
    assert outcome.numbers


@pytest.mark.parametrize("group", GROUPS)
def test_groups_choose_by_path(group: str) -> None:
    """`--path fast` takes every finding in which a fast path has a part, and no other."""
    chosen = findings_of_group(group)
    assert chosen
    assert [f for f in FINDINGS if f.paths & GROUPS[group]] == chosen


def test_groups_differ() -> None:
    """A finding of the slow path alone is not in the fast group."""
    names = {group: {finding.name for finding in findings_of_group(group)} for group in GROUPS}
    assert "fully-masked-row-gradient" in names["slow"] - names["fast"]
    assert "key-value-lengths" in names["sdpa"] - names["slow"]
    assert {finding.name for finding in FINDINGS} == names["all"]


def test_unknown_group_is_refused() -> None:
    """The sentence names what was got and what there is."""
    with pytest.raises(ValueError, match=r"`group`='quick', but should be one of fast, slow"):
        findings_of_group("quick")


def test_findings_can_be_cited() -> None:
    """Names are unique, threads read as repository#number, and every path group has its say."""
    assert len(FINDINGS) == len({finding.name for finding in FINDINGS})
    threads = [thread for finding in FINDINGS for thread in finding.threads]
    assert threads
    assert all(re.fullmatch(r"[\w-]+/[\w-]+#\d+", thread) for thread in threads)


# --- the numbers themselves, where a later torch may differ


@measured_on_2_13
def test_fully_masked_row_is_nan_with_weights_and_zero_without() -> None:
    """need_weights alone decides between NaN and 0."""
    assert {
        "weights: share of NaN": 1,
        "no-weights: largest value": 0,
    } == masks.fully_masked_row().numbers


@measured_on_2_13
def test_fully_masked_row_is_nan_on_the_fast_path() -> None:
    """eval() turns the 0 of train() into NaN."""
    assert 1 == masks.fully_masked_row_fast().numbers["fast: share of NaN"]


@measured_on_2_13
def test_fully_masked_row_depends_on_object_identity() -> None:
    """A copy of the same numbers gives 0 where the same tensor gives NaN."""
    assert [1, 0, 0] == list(masks.fully_masked_row_identity().numbers.values())


@measured_on_2_13
def test_causal_hint_hides_the_appended_key() -> None:
    """Row 0 loses the appended key altogether: its answer moves by more than 1."""
    assert min(masks.hint_hides_appended_key().numbers.values()) > 1


@measured_on_2_13
def test_causal_hint_contradicts_mask() -> None:
    """The hint wins on one path only, and not even there once a padding mask is given."""
    won, idle, fast = masks.hint_contradicts_mask().numbers.values()
    assert won > 1
    # What is left is the rounding of two orders of summation in float64.
    assert max(idle, fast) < 100 * 2**-52


@measured_on_2_13
def test_nan_in_a_query_depends_on_the_number_of_keys() -> None:
    """The flash kernel loses a NaN while the keys do not fill a vector register."""
    numbers = values.nan_query().numbers
    assert 1 == numbers["weights: NaN from this many keys on"]
    assert 1 == numbers["sdpa-math: NaN from this many keys on"]
    assert 1 < numbers["sdpa-flash: NaN from this many keys on"] < math.inf


@measured_on_2_13
def test_nan_at_a_masked_key_is_everywhere() -> None:
    """No path keeps a NaN behind its mask: 0 times NaN is NaN."""
    assert {1.0} == set(values.nan_at_masked_key().numbers.values())


@measured_on_2_13
def test_key_and_value_lengths_may_differ_in_the_flash_kernel() -> None:
    """The kernel goes by the number of values; the math kernel refuses."""
    assert [0, 1] == list(values.key_value_lengths().numbers.values())


@measured_on_2_13
def test_a_mask_of_fewer_digits_is_misread_in_the_flash_kernel_alone() -> None:
    """Zeros of float32 beside rows of float64 change its answer, from 8 rows on or from 16.

    That is by the processor's vectors: 7 rows are right with all of them, and 16 wrong.
    """
    flash_7, math_7, flash_16, math_16 = values.mask_dtype().numbers.values()
    assert max(flash_7, math_7, math_16) < 100 * 2**-52
    assert flash_16 > 0.1


@measured_on_2_13
def test_row_of_minus_1e9_is_uniform_or_unmasked() -> None:
    """Uniform to float32's roundoff, unmasked to what 1e9 leaves of a float64 logit."""
    uniform, unmasked, nan = masks.sentinel_row().numbers.values()
    assert uniform < 2**-23
    # Neighbours of 1e9 in float64 differ by 2**-23; logits here are of order 1.
    assert 0 < unmasked < 2**-22
    assert 1 == nan
