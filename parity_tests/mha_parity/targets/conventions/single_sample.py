"""Whether a target that takes batches takes one sample without its axis as well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_rounding

if TYPE_CHECKING:
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.targets.conventions.base import Convention


def single_sample(case: Case, offer: Offer) -> Case:
    """Return the case of one sample without its axis; at L = S axes may be taken for each other."""
    single = case.replace(layout="unbatched", batch=1)
    if "cross" in offer["inputs"]:
        single = single.replace(inputs="cross", keys=case.queries + 2)
    return single


def takes_single(convention: Convention, case: Case) -> bool:
    """Return whether one sample without its axis gets the answer of a batch of it.

    Code that was written for three axes may take two for others, and give back their shape.
    """
    batch = make_problem(case.replace(layout="batch_first"))
    try:
        expected, actual = (convention(each).output for each in (batch, replace(batch, case=case)))
    except CandidateError:
        return True  # the trial keeps what it raised
    if equal_up_to_rounding(expected, actual):
        return True
    reason = "3-D inputs get another answer than the same sample in a batch"
    convention.reasons["layout", "unbatched"] = reason
    return False
