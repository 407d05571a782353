"""Judge by recorded answers: which record takes part, its cases, and what it leaves out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from mha_parity.answers import answers_file
from mha_parity.core.environment import TORCH, installed
from mha_parity.core.errors import UsageError
from mha_parity.core.options import Options
from mha_parity.oracle.torch_answers import active_record

if TYPE_CHECKING:
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.oracle.torch_answers import Record

NO_TORCH = (
    "torch is not installed, and judging needs it or what it computed: pip install "
    f"'mha-parity[{TORCH}]', or pass --answers FILE, which `mha-parity record` writes where torch "
    "is."
)
NEEDS_TORCH = "failing cases are not shrunk, nor asked again in another dtype: that needs torch"


def need_torch_or_answers(options: Options) -> None:
    """Make sure that there is something to judge by.

    Raises
    ------
    UsageError
        There is neither torch nor a record.

    """
    if options.answers is None and not installed(TORCH):
        raise UsageError(NO_TORCH)


def record_of(options: Options) -> Record | None:
    """Return the record that the options name; None: torch is asked.

    Raises
    ------
    UsageError
        There is neither torch nor a record, or the record cannot be read.

    """
    need_torch_or_answers(options)
    return None if options.answers is None else answers_file.read_record(options.answers)


def recorded_cases(record: Record, offer: Offer, options: Options) -> tuple[Case, ...]:
    """Return the cases of a record that have only features of ``offer``, as many as are asked.

    Raises
    ------
    UsageError
        There is none, or the options name a seed, though the cases are drawn already.

    """
    if options.seed != Options().seed:
        raise UsageError("got --seed with --answers, whose cases are drawn: leave one of them out.")
    found = [
        case
        for case in record.problems
        if all(value in offer[axis] for axis, value in case.features().items())
    ]
    if not found:
        raise UsageError(
            f"got --answers {options.answers}, but it has no case with only what the target "
            "offers; record some by `mha-parity record TARGET`."
        )
    return tuple(found[: options.cases])


def without_torch(options: Options, cases: tuple[Case, ...]) -> Options:
    """Return the options of a run over these cases that asks torch for nothing."""
    return dataclasses.replace(options, cases=len(cases), shrink=False)


def recorded_answers_remark() -> tuple[str, ...]:
    """Say by what is judged, and what that leaves out; nothing where torch is asked."""
    record = active_record()
    if record is None:
        return ()
    by = record.environment
    return (f"judged by recorded answers of torch {by.get('torch')}; {NEEDS_TORCH}",)
