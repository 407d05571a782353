"""For which sizes the answer is wrong, and for which the call fails."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mha_parity.diagnose.experiments.designs.shortest_rules import size_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

LETTERS = {"queries": "L", "keys": "S", "head_dim": "D", "heads_count": "H", "batch": "N"}
LONG = (*range(1, 36), 47, 48, 49, 63, 64, 65, 66, 72, 80, 95, 96, 97, 127, 128, 129, 130, 144, 191,
        192, 193, 255, 256, 257, 258)  # fmt: skip
WIDTHS = (*range(1, 25), 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 127, 128, 129)
FEW = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17)
VALUES = {"queries": LONG, "keys": LONG, "head_dim": WIDTHS, "heads_count": FEW, "batch": FEW[:9]}
MOSTLY = 0.8  # of the values beyond a threshold that are wrong: the rest is a matter of values
COARSE = {
    "queries": (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 18, 20, 24, 31, 32, 33, 34, 40, 48, 63,
                64, 65, 66, 67, 72, 96, 97, 128, 129, 130, 192, 257),
    "head_dim": (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 32, 33, 64, 65),
    "heads_count": (1, 2, 3, 4, 5, 6, 8, 9),
    "batch": (1, 2, 3, 4, 5),
}  # fmt: skip
COARSE["keys"] = COARSE["queries"]
ORDER = ("L", "S", "L = S", "N", "D", "H")  # in which two sizes are said to be equal
_COINCIDENCE = re.compile(r"([LSDHN]|L = S) = ([LSDHN]) = \d+")
QUICK = 1e-3  # seconds a call: a target that takes longer is asked for fewer sizes
FRAME = {"batch": 2, "queries": 6, "keys": 11, "heads_count": 3, "head_dim": 5}


@dataclass(frozen=True)
class Scan:
    """Results along one size: the values with wrong answers, and those that made the call fail."""

    letter: str
    wrong: dict[int, bool]
    crashed: dict[int, bool]
    wrong_rule: str | None
    crash_rule: str | None
    error: str = ""
    trials: tuple[CallResult, ...] = field(default=(), repr=False)

    @property
    def always(self) -> bool:
        """Whether every value that was answered is wrong, but for a softmax over one key."""
        flags = [flag for value, flag in self.wrong.items() if value > 1]
        return bool(flags) and all(flags)


def scans(caller: Caller) -> Iterator[Scan]:
    """Yield what each size decides, the others held fixed."""
    base = distinct_sizes_case(caller)
    tied = base.inputs == "self"
    for axis, values in (VALUES if caller.quick(QUICK) else COARSE).items():
        if (axis == "keys" and tied) or (axis == "batch" and base.layout == "unbatched"):
            continue
        if not caller.varies(axis):
            continue
        if axis == "heads_count" and ("many" not in caller.candidate.offer["heads"]):
            continue
        if not caller.running():
            return
        # What is asked first is what most rules need, should the time be over.
        letter = "L = S" if axis == "queries" and tied else LETTERS[axis]
        groups = base.kv_heads_count if axis == "heads_count" else 0
        divided = tuple(
            value
            for value in values
            if (not groups or value % groups == 0) and caller.reaches(axis, value)
        )
        cases = [caller.case(**{**_sizes(base), axis: value}) for value in divided]
        yield scan(letter, divided, caller.ask(cases), _others(base, axis))


def distinct_sizes_case(caller: Caller) -> Case:
    """Return the base case with sizes that are all distinct, as far as the offer allows."""
    base = caller.base
    wanted = dict(FRAME)
    if base.heads_count == 1:
        wanted["heads_count"] = 1
    if base.kv_heads == "fewer":
        wanted |= {"heads_count": base.heads_count}
    return caller.case(**wanted)


def _sizes(case: Case) -> dict[str, int]:
    return {axis: getattr(case, axis) for axis in VALUES}


def _others(case: Case, axis: str) -> dict[str, int]:
    tied = {"queries", "keys"} if case.inputs == "self" else set()
    return {
        letter: getattr(case, name)
        for name, letter in LETTERS.items()
        if name != axis and not (axis in tied and name in tied)
    }


def scan(
    letter: str, values: tuple[int, ...], trials: list[CallResult], others: dict[str, int]
) -> Scan:
    """Return the rules that fit the trials at the values of one size."""
    # Fewer where the time was over, or the process was lost too often.
    tried = [(v, t) for v, t in zip(values, trials, strict=False) if not t.not_asked]
    # An error between rounding and what no rounding gives is no sign that a size is served.
    answered = {
        v: t.wrong for v, t in tried if t.wrong or not (t.crashed or t.largest_error > t.allowed)
    }
    crashed = {v: t.crashed for v, t in tried}
    error = next((t.error for _, t in tried if t.crashed), "")
    return Scan(
        letter, answered, crashed,
        size_rule(letter, answered, others) or _threshold(letter, answered),
        size_rule(letter, crashed, others),
        error, tuple(trials),
    )  # fmt: skip


def coincidences(scans: Sequence[Scan]) -> str:
    """Return which two sizes are equal wherever answers are wrong; "" where that is not all."""
    rules = [each.wrong_rule or "" for each in scans if any(each.wrong.values())]
    pairs = [_COINCIDENCE.fullmatch(rule) for rule in rules]
    found = {" = ".join(sorted(pair.groups(), key=ORDER.index)) for pair in pairs if pair}
    if not (found and all(pairs)):
        return ""
    listed = " or ".join(sorted(found))
    return f"wrong wherever {listed}, and at no other sizes: an axis is taken by its size"


def _threshold(letter: str, off: dict[int, bool]) -> str | None:
    """Return from where on most values are wrong, where none below is."""
    if not any(off.values()) or all(off.values()):
        return None
    first = min(value for value, flag in off.items() if flag)
    beyond = [flag for value, flag in off.items() if value >= first]
    below = [value for value in off if value < first]
    if not below or sum(beyond) < MOSTLY * len(beyond) or len(beyond) < 4:
        return None
    return f"{letter} > {max(below)} ({sum(beyond)} of {len(beyond)} lengths tried)"
