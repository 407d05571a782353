"""Bugs that no case asks for are wrong all the same: each departs on the input it is about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import answer_of, catalogue
from mha_parity.catalogue.plain_attention import Attention
from mha_parity.checks import rejected_inputs
from mha_parity.core.case import Case
from mha_parity.core.check_result import Severity
from mha_parity.core.options import Options
from mha_parity.judging.output import judge_answer
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.check import check
from mha_parity.selftest.mutant import monitored

CASE = Case(
    seed=3, batch=2, queries=5, keys=7, heads_count=3, head_dim=4, inputs="distinct",
    weights="per_head",
)  # fmt: skip
UNASKED = ("heads-not-dividing", "grad-nan-masked-row", "int-truncation", "f16-qk-overflow")


def test_all_of_them_are_tested_here() -> None:
    """Every entry that the cases cannot be counted on to show has a test below."""
    beyond = {bug.id for bug in catalogue().values() if bug.beyond is not None}
    assert set(UNASKED) == beyond


def test_a_raw_product_past_half_s_range_is_left_to_the_fixed_problem() -> None:
    """No case decides by its seed: its answer is inconclusive, and `run.overflow` asks for it."""
    case = Case(
        seed=3, batch=2, queries=5, keys=7, heads_count=3, head_dim=11, form="qkv",
        inputs="cross", projection="none", dtype="float16",
    )  # fmt: skip
    drawn = make_problem(case)
    problem = drawn.replace(query=drawn.query * np.float16(110), key=drawn.key * np.float16(110))
    reference = reference_answer(problem)
    found = [
        judge_answer(problem, reference, answer)[0].severity
        for answer in (
            answer_of(Attention, problem),
            catalogue()["f16-qk-overflow"].attend(problem),
        )
    ]
    assert [Severity.MATCH, Severity.INCONCLUSIVE] == found


def test_integers_cut_the_output_down() -> None:
    """The entry's layer is right in every case, and a note says what it does to integers."""
    bug = catalogue()["int-truncation"]
    verdict = check(replace(bug.candidate(), function=monitored(bug)), Options(cases=12))
    assert not verdict.failed
    assert rejected_inputs.INTEGER_REMARK in verdict.notes


def test_channels_that_the_heads_do_not_divide_are_dropped() -> None:
    """Of 14 channels in 3 heads the last two are never read."""
    kind = catalogue()["heads-not-dividing"].kinds[0]
    rows = np.arange(2 * 5 * 14.0).reshape(2, 5, 14)
    split = kind(make_problem(CASE)).split(rows, 3)
    assert (2, 3, 5, 4) == split.shape
    assert not np.isin(rows[..., 12:], split).any()


def test_a_masked_row_turns_weight_gradients_nan() -> None:
    """With a row that sees no key gradients of in_proj are NaN; those of the right one are not."""
    problem = make_problem(CASE.replace(attn="bool2d", masked_rows="some", gradients="yes"))
    assert np.asarray(problem.masked_rows()).any()
    found = catalogue()["grad-nan-masked-row"].attend(problem).gradients
    assert found is not None
    assert np.isnan(found["in_proj_weight"]).any()
