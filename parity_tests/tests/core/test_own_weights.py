"""What a layer that is built already can hold of a problem, and what it cannot."""

from __future__ import annotations

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.core.own_weights import OwnWeights

PROBLEM = make_problem(Case(seed=0, batch=1, queries=2, keys=2, heads_count=2, head_dim=3))


@pytest.mark.parametrize(
    ("sizes", "features", "said"),
    [
        ({"heads_count": 2, "head_dim": 4}, {}, "it is built with head_dim 4"),
        ({"heads_count": 2}, {"dtype": "float32"}, "it is built with dtype=float32"),
        ({"heads_count": 2}, {"dtype": "float64"}, "it has no w_q"),
    ],
    ids=["size", "feature", "weight"],
)
def test_the_first_that_it_cannot_hold_is_said(
    sizes: dict[str, int], features: dict[str, str], said: str
) -> None:
    """Sizes before features before weights; kills the loop over no sizes."""
    own = OwnWeights(arrays={}, features=features, sizes=sizes, places={})
    assert said == own.unlike(PROBLEM)


def test_the_same_weights_at_other_sizes_are_not_its_own() -> None:
    """Both have to agree."""
    assert PROBLEM.w_q is not None
    arrays = {"w_q": PROBLEM.w_q}
    own = {
        heads: OwnWeights(arrays=arrays, features={}, sizes={"heads_count": heads}, places={})
        for heads in (2, 3)
    }
    assert [True, False] == [own[heads].are_of(PROBLEM) for heads in (2, 3)]
