"""Comparing says nothing on stderr, whatever a target's memory holds."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity import catalogue
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.compare import as_float64, max_difference, reordering_tolerance
from mha_parity.core.features import offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.run.check import check

SIGNALLING = np.array([0x7F800001], dtype=np.uint32).view(np.float32)
WIDE = np.array([np.finfo(np.float64).max], dtype=np.longdouble) * 2


@pytest.mark.parametrize("array", [SIGNALLING, WIDE], ids=["signalling-nan", "longdouble"])
def test_a_cast_does_not_warn(array: np.ndarray) -> None:
    """A plain cast of either warns, which is an error here; the comparisons see NaN or infinity."""
    assert not np.isfinite(as_float64(array)).any()
    assert max_difference(np.zeros(1), array) == np.inf
    assert reordering_tolerance(array[:0]) == 0 == reordering_tolerance(array)


def test_a_run_does_not_warn_of_memory_that_was_never_written() -> None:
    """The last row is a signalling NaN: the run fails, and is diagnosed, without a warning."""

    def unwritten(problem: Problem) -> Answer:
        answer = catalogue.attend(catalogue.Attention, problem)
        output = answer.output.copy()
        output[:, -1:] = SIGNALLING if problem.case.dtype == "float32" else np.nan
        return Answer(output=output, weights=answer.weights)

    offered = offer(
        form="qkv", projection="none", inputs=("self", "cross"), dtype=("float32",),
        size=("small", "equal"),
    )  # fmt: skip
    verdict = check(FunctionCandidate("unwritten", unwritten, offered), Options(cases=20))
    assert verdict.failed > 10
    assert verdict.diagnosis
