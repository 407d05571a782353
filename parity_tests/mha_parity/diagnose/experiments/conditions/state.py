"""Whether the answer to one problem depends on which calls came before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.core.compare import max_difference

if TYPE_CHECKING:
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

KEEP_NOTHING = (
    "keep nothing from one call to the next: look for module globals, caches whose arrays are "
    "written into, default arguments and attributes that forward writes"
)
SIZES = {"batch": 2, "queries": 5, "keys": 7, "heads_count": 2, "head_dim": 6}
BETWEEN = {
    "another problem of the same shapes": {"seed": 991},
    "a call with more keys": {"keys": 31},
    "a call with more rows": {"queries": 29},
    "a call with wider heads": {"head_dim": 23},
    "a call with more samples": {"batch": 5},
    "a call with more heads": {"heads_count": 4},
}


@dataclass(frozen=True)
class CallHistoryEffect:
    """Which calls change the answer to a problem that is asked before and after them.

    ``calls`` were made in between; ``change`` is the largest change, rounding included.
    """

    changes: tuple[str, ...] = ()
    calls: int = 0
    change: float = 0.0


def earlier_calls(caller: Caller) -> CallHistoryEffect:
    """Return which earlier calls change an answer."""
    sizes = dict(SIZES)
    if caller.base.heads_count == 1 or caller.base.kv_heads == "fewer":
        sizes["heads_count"] = caller.base.heads_count
    first = caller.case(**sizes)
    asked, names = [first], []
    for name, change in BETWEEN.items():
        between = caller.case(**{**sizes, **change})
        if between != first:  # of a layer that is built already heads have one width
            asked += [between, first]
            names.append(name)
    trials = caller.ask(asked)
    before, changes, largest = trials[0], [], 0.0
    for name, after in zip(names, trials[2::2], strict=False):
        difference = _difference(before, after)
        largest = max(largest, difference)
        if difference > before.allowed:
            changes.append(f"{name} changes the answer to an earlier problem by {difference:.3g}")
        before = after
    return CallHistoryEffect(tuple(changes), len(trials) // 2, largest)


def _difference(before: CallResult, after: CallResult) -> float:
    """Return by how much two answers to one problem differ; one without an answer, by nothing."""
    if before.found is None or after.found is None:
        return 0.0
    return max_difference(before.found, after.found)
