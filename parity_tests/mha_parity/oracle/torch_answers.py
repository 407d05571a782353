"""Answers of torch to a problem: computed now, kept for a record, or taken from one.

All that judging asks of torch goes through ``torch_result``. Within ``using_record(record)`` a
record takes part: an open one keeps what torch computes, a closed one answers in torch's place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

import mha_torch
from mha_parity.cases.generate import make_problem
from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.problem import Problem

RecordedArrays = Mapping[str, "Array"]


class NotRecordedError(UsageError):
    """A record lacks what torch would have to compute."""


@dataclass(eq=False)
class Record:
    """The problems of cases, the gross errors that they expose, and torch's results.

    Results are kept by kind and problem; an empty one: torch does not take that path.
    ``shares_nan`` are the dtypes in which a NaN reaches another row by way of torch's product.
    ``environment`` is that of the recording.
    """

    problems: dict[Case, Problem] = field(default_factory=dict)
    results: dict[tuple[str, str], RecordedArrays] = field(default_factory=dict)
    exposed: dict[Case, frozenset[str]] = field(default_factory=dict)
    shares_nan: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    closed: bool = False

    def result(
        self, kind: str, problem: Problem, compute: Callable[[], RecordedArrays]
    ) -> RecordedArrays:
        """Return a result that is kept, or compute and keep it."""
        key = kind, digest(problem)
        if key not in self.results:
            if self.closed:
                raise NotRecordedError(
                    f"the recorded answers have no {kind} of {problem.case.id}, and torch is not "
                    "asked for it; record it, or leave --answers out."
                )
            self.results[key] = compute()
        return self.results[key]


_active: list[Record] = []


@contextmanager
def using_record(record: Record | None) -> Iterator[None]:
    """Context: let the record take part; None: no record does."""
    if record is None:
        yield
        return
    _active.append(record)
    try:
        yield
    finally:
        _active.pop()


def active_record() -> Record | None:
    """Return the record that takes part, if any."""
    return _active[-1] if _active else None


def asks_torch() -> bool:
    """Return whether torch is asked for what no record has."""
    record = active_record()
    return record is None or not record.closed


def kept_result(
    kind: str, problem: Problem, compute: Callable[[], RecordedArrays]
) -> RecordedArrays:
    """Return arrays that follow from a problem without torch: a record saves their computation."""
    record = active_record()
    if record is None:
        return compute()
    found = record.results.get((kind, digest(problem)))
    if found is not None:
        return found
    found = compute()
    return found if record.closed else record.result(kind, problem, lambda: found)


def load_torch() -> None:
    """Load torch before its threads are limited: no limit is kept for what is loaded later."""
    _ = mha_torch.multihead_attention


def torch_result(
    kind: str, problem: Problem, compute: Callable[[], RecordedArrays]
) -> RecordedArrays:
    """Return arrays that torch computes of a problem, ``compute`` does where no record has them."""
    record = active_record()

    def contiguous() -> RecordedArrays:  # as from a file: the order of sums depends on the memory
        return {name: np.ascontiguousarray(array) for name, array in compute().items()}

    return contiguous() if record is None else record.result(kind, problem, contiguous)


def problem_of(case: Case, own: OwnWeights | None = None) -> Problem:
    """Return the problem of a case, as recorded or generated, with a layer's own weights."""
    record = active_record()
    found = None if record is None else record.problems.get(case)
    problem = make_problem(case) if found is None else found
    return problem if own is None else own.problem(problem)


def rows_share_nan(dtype: str) -> bool:
    """Return whether a NaN reaches another row by way of torch's product in this dtype."""
    record = active_record()
    if record is not None and record.closed:
        return dtype in record.shares_nan
    return mha_torch.rows_share_nan(dtype)


# Of problems that a record has: their digests stand in the file.
known_digests: WeakKeyDictionary[Problem, str] = WeakKeyDictionary()


def digest(problem: Problem) -> str:
    """Return a hash of all numbers of a problem and of what is not in its arrays."""
    if problem in known_digests:
        return known_digests[problem]
    case = problem.case
    found = hashlib.blake2b(digest_size=16)
    options = (
        case.form, problem.num_heads, problem.num_kv_heads, problem.is_causal,
        problem.add_zero_attn, problem.given_scale, case.projection, case.padding,
    )  # fmt: skip
    found.update(repr(options).encode())
    for each in fields(problem):
        array = getattr(problem, each.name)
        if isinstance(array, np.ndarray):
            found.update(f"{each.name} {array.dtype} {array.shape} ".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
