"""What the bound allows an averaged weight, and in which dtypes an error may be improbable."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.check_result import Severity
from mha_parity.judging.output import JudgeSettings, OutputJudge, judge_answer
from mha_parity.judging.output_groups import judged_array
from mha_parity.oracle.error_bound import bound, error_model
from mha_parity.oracle.reference import reference_answer


def test_an_averaged_weight_is_allowed_the_mean_of_its_heads_and_its_own_sum() -> None:
    """Head by head, with one rounding for each head and one for the quotient."""
    problem = make_problem(parse("mha-N2-L3-S5-H3-D2-cross-avgweights-float32-s1"))
    reference = reference_answer(problem)
    judge = OutputJudge(problem, reference, Answer(output=reference.output), JudgeSettings())
    mean = sum(bound(problem, reference).weights[:, head] for head in range(3)) / 3
    once = error_model(problem.dtype).error_factor(3, 1)
    limit = judge.limit_of(judged_array("averaged", problem, reference))
    assert np.allclose(mean + once * (reference.averaged + mean), limit, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("dtype", "improbable"), [("float32", True), ("float16", False)])
def test_an_error_next_to_the_bound_is_improbable_where_roundings_are_many(
    dtype: str, improbable: bool
) -> None:
    """In 16 bits one rounding of the output is most of the bound: nothing is improbable there."""
    problem = make_problem(parse(f"mha-N2-L3-S3-H2-D4-bias-outproj-{dtype}-s2"))
    reference = reference_answer(problem)
    far = reference.output + 0.9 * bound(problem, reference).output
    found = judge_answer(problem, reference, Answer(output=far.astype(dtype)), JudgeSettings())
    (output,) = (each for each in found if each.check == "output")
    assert Severity.LESS_ACCURATE is output.severity
    assert improbable is output.improbable
