"""What has no scores is refused; what makes weights of its scores wrongly is judged, and fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

WITHOUT_SCORES = ("SoftmaxesApart", "ApartInTheMiddle", "FeatureMaps", "softmaxes_apart")
WRONG = (
    "SoftmaxForgotten", "DividedBySums", "FirstQuery", "OverQueries", "OverChannels", "Unsplit",
    "scores_alone", "Averages",
)  # fmt: skip


@pytest.fixture(scope="module")
def judged(check_subject: Callable[..., Verdict]) -> Callable[[str], Verdict]:
    """Return the function that checks a subject of the file in float64."""
    return lambda name: check_subject(
        f"separate_kernels.py:{name}", cases=20, dtypes=("float64",), diagnose=False, shrink=False
    )


@pytest.mark.parametrize("name", WITHOUT_SCORES)
def test_softmaxes_of_queries_and_keys_apart_are_refused(
    judged: Callable[[str], Verdict], name: str
) -> None:
    """Feature maps of queries and of keys are another attention, and no bug in this one."""
    with pytest.raises(TargetError, match="a function of the queries alone by one of the keys"):
        judged(name)


@pytest.mark.parametrize("name", WRONG)
def test_weights_of_the_same_rank_by_a_bug_fail(
    judged: Callable[[str], Verdict], name: str
) -> None:
    """A softmax forgotten, over another axis, or of other scores is a bug, and is judged."""
    assert Outcome.FAIL == judged(name).outcome
