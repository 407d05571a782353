"""What has no scores is refused; what makes weights of its scores wrongly is judged, and fails."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

WITHOUT_SCORES = ("SeparateSoftmaxes", "SeparateInTheMiddle", "FeatureMaps", "separate_softmaxes")
WRONG = (
    "SoftmaxForgotten", "DividedBySums", "FirstQuery", "OverQueries", "OverChannels", "Unsplit",
    "scores_alone", "Averages",
)  # fmt: skip


judged = checks_of("separate_kernels.py", cases=20, dtypes=("float64",))


@pytest.mark.parametrize("name", WITHOUT_SCORES)
def test_separate_softmaxes_of_queries_and_keys_are_refused(name: str) -> None:
    """Feature maps of queries and of keys are another attention, and no bug in this one."""
    with pytest.raises(TargetError, match="a function of the queries alone by one of the keys"):
        judged(name)


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", WRONG)
def test_weights_of_the_same_rank_by_a_bug_fail(name: str) -> None:
    """A softmax forgotten, over another axis, or of other scores is a bug, and is judged."""
    assert Outcome.FAIL == judged(name, fail_fast=True).outcome
