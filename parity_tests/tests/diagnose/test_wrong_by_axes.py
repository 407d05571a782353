"""Steps along the wrong axis, order or rows are measured, and the right ones pass."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.evidence import Observation, quickest
from mha_parity.diagnose.experiments import run_experiments
from subject_checks import checks_of

PLAIN = Case(seed=1, batch=2, queries=5, keys=5, heads_count=2, head_dim=4)
judged = checks_of("wrong_by_axes.py", cases=40, dtypes=("float64",), diagnose=True)

CAUSES = {
    "sums_of_other_rows": "the exponential of row i and key j is divided by the sum of row j",
    "CausalLayer": "without the mask",
    "CausalOverflowing": "gradients are NaN where the score of a hidden key passes the visible",
    "CausalToBaseTwo": "computes the weights again as exp(score - log-sum-exp to base 2)",
    "AssignedOfGroup": "dK, dV are that of the last query head of each group alone",
    "HiddenBehindSoftmax": "hidden weights are set to 0 after the softmax, and rows sum to less",
    "FarBehindSoftmax": "keys that the softmax goes over are left out of the sum of their values",
    "zeros_of_hidden_tiles": "rows for which a whole tile of keys is hidden are 0",
    "MeanOfScores": "are the softmax of the mean scores over the heads",
    "rotated_biases": "q, k and v get the biases of v, q, k",
    "put_back_by_the_order": "the longest first, and put back by that order, not its inverse",
    "padded_rows_of_zeros": "the output of padded query rows is set to zero",
    "HiddenWhereBoth": "a key is hidden only where both masks hide it",
    "unmasked_for_values": "hidden keys have a part in dV",
    "masked_unless_causal": "causal rule where L = S: key_padding_mask, passed as `mask`, has no",
    "scores_replaced_by_the_mask": "the mask stands in the place of the scores, where it should",
    "scaled_again_by_the_mask": "= 1/sqrt(D) where the mask is passed, expected by 1",
}


OWN_BACKWARD = {
    "CausalLayer", "CausalToBaseTwo", "CausalOverflowing", "AssignedOfGroup", "unmasked_for_values",
}  # fmt: skip


FURTHER: dict[str, dict[str, Any]] = {
    "masked_unless_causal": {"cases": 120},  # few cases have both
    "padded_rows_of_zeros": {"strict_padding": True},
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_step_is_said_first(name: str) -> None:
    """The first cause says what is computed instead."""
    options = {"grad": True, "cases": 100} if name in OWN_BACKWARD else FURTHER.get(name, {})
    verdict = judged(name, **options)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
    assert CAUSES[name] in verdict.diagnosis[0].title


def test_two_masks_are_tried_before_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each wrong answer was to a case with both, one mask alone has nothing to show."""

    def untried(*_: object, **__: object) -> NoReturn:
        raise AssertionError("one mask alone was tried")

    monkeypatch.setattr(run_experiments, "masks", untried)
    verdict = judged("HiddenWhereBoth")
    assert CAUSES["HiddenWhereBoth"] in verdict.diagnosis[0].title


def test_long_and_subnormal_cases_screen_no_hypothesis() -> None:
    """Each is held against quick ones: 319 predictions of one such case take 49 s, not 0.2."""
    long = PLAIN.replace(queries=512, keys=512)
    cases = [long, PLAIN.replace(regime="subnormal"), PLAIN, PLAIN.replace(keys=6)]
    seen = [Observation(make_problem(case), None, failing=True) for case in cases]
    found = quickest(seen, 3)
    assert [cases[2], cases[3], cases[1]] == [each.problem.case for each in found]


@pytest.mark.whole
def test_what_rows_see_beyond_a_size_is_said_with_it() -> None:
    """Where a rule of sizes is all that is known, a row beyond is shown with its keys."""
    border, seen = judged("PositionsInInt8", cases=100).diagnosis
    assert "wrong wherever L >= " in border.title
    assert "row 0 sees keys 0, 128–166, expected 0" in seen.title


@pytest.mark.parametrize(
    "name", ["sums_of_own_rows", "HiddenWhereEither", "CausalRight", "SummedOverGroups"]
)
def test_right_ones_pass(name: str) -> None:
    """The same with the right axis, and with masks that are joined rightly, holds."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence
    assert () == verdict.diagnosis
