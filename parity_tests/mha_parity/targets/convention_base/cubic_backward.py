"""How many rows gradients are asked of where a backward pass takes time of the cube of the length.

A softmax whose gradient is a matrix of all pairs for each row, as courses have it, takes minutes
for lengths that its forward pass computes in a moment: its cases would end in time-outs.
"""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError

if TYPE_CHECKING:
    from mha_parity.core.case import Case
    from mha_parity.targets.convention_base.convention import Convention

SHORT, LONG = 64, 256  # rows and keys of the two calls that are compared
CUBE = 28.0  # times as long: 64 is that of a cube, 16 that of a square
SLOW = 0.05  # seconds of the longer call below which no length that is drawn ends in a time-out
SECONDS = 2.0  # that a case may take
LIMITS = (1024, 512, 256, 128)  # the result has few values, whatever the load of the machine


def longest_with_gradients(convention: Convention) -> int:
    """Return the most rows and keys that gradients are asked of; 0 for any number.

    Measured is processor time, of two calls of one sample and few heads.
    """
    if convention.library.name != "numpy" or "yes" not in convention.offer["gradients"]:
        return 0
    case = convention.plain_case().replace(batch=1, gradients="yes")
    try:
        short, long = (_seconds(convention, case.replace(queries=n, keys=n)) for n in (SHORT, LONG))
    except CandidateError:
        return 0
    if long < SLOW or long < CUBE * short:
        return 0
    most = LONG * (SECONDS / long) ** (1 / 3)
    return next((each for each in LIMITS if each <= most), LIMITS[-1])


def _seconds(convention: Convention, case: Case) -> float:
    problem = make_problem(case)
    started = process_time()
    convention(problem)
    return process_time() - started
