"""Which part of an input reaches which part of the output, by changing one part at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.compare import absolute_difference
from mha_parity.core.head_projections import PROJECTIONS
from mha_parity.diagnose.experiments.designs.calls import unmixed_problem
from mha_parity.diagnose.experiments.designs.shortest_rules import index_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
from mha_parity.diagnose.experiments.designs.calls import Caller

SIZES = {"batch": 3, "queries": 5, "keys": 7, "heads_count": 3, "head_dim": 4}
FACTOR = -0.5  # on what is changed: q, k and v together change scores and values
AXES = {"sample": 0, "head": 1, "query row": 2}


@dataclass(frozen=True, eq=False)
class Influence:
    """Which parts of the output (columns) move when one part of the input (row) is changed.

    ``word`` is the kind of part. ``expected`` is what moves in the right attention: that part
    alone, or nothing for a row whose masks leave one key. ``change`` is the largest movement of any
    other part; ``by`` says by which keys of a sample others are reached, where it is by some.
    """

    word: str
    reached: Array
    expected: Array
    change: float
    by: str = ""

    @property
    def independent(self) -> bool:
        """Whether each part reaches what it should and no other."""
        return bool(np.array_equal(self.reached, self.expected))

    @property
    def sentence(self) -> str:
        """Outputs that each part reaches, as one sentence."""
        count = len(self.reached)
        if self.independent:
            return f"{count} {self.word}s: each reaches its own output alone"
        if self.reached.all():
            return f"each of {count} {self.word}s reaches the outputs of all"
        others = self.reached & ~self.expected
        if not (self.expected & ~self.reached).any():
            for name, pattern in (("later", np.triu), ("earlier", np.tril)):
                if np.array_equal(others, pattern(np.ones_like(others)) & ~self.expected):
                    return (
                        f"each of {count} {self.word}s reaches the outputs of all {name} ones too"
                    )
        odd = np.flatnonzero((self.reached != self.expected).any(axis=1))
        first = int(odd[0])
        moved = index_runs(np.flatnonzero(self.reached[first])) or "none"
        return f"changing {self.word} {first} changes the outputs of {self.word}s {moved}{self.by}"


def influences(caller: Caller) -> Iterator[Influence]:
    """Yield the influence of samples, heads and query rows, as far as the offer has several."""
    base = caller.base
    sizes = dict(SIZES)
    if base.heads_count == 1 or base.kv_heads == "fewer":
        sizes["heads_count"] = base.heads_count
    problem = unmixed_problem(caller.case(**sizes))
    for word, axis in AXES.items():
        if not caller.running():
            return
        found = _influence(caller, problem, word, axis)
        if found is not None:
            by = _by_keys(caller, problem, found) if word == "sample" else ""
            yield replace(found, by=by)


def _influence(caller: Caller, problem: Problem, word: str, axis: int) -> Influence | None:
    count = (problem.case.batch, problem.num_heads, problem.case.queries)[axis]
    # Heads that share a key head reach each other by its weights.
    grouped = word == "head" and problem.case.kv_heads_count not in {0, problem.num_heads}
    if count < 2 or grouped or (word == "query row" and problem.query is problem.key):
        return None
    changed = [_changed(problem, word, part) for part in range(count)]
    first, *others = caller.ask_problems([problem, *changed])
    if len(others) < count or first.found is None or any(each.found is None for each in others):
        return None
    if np.isnan(first.found).all():  # what is NaN throughout shows nothing
        return None
    moved = np.array([_movement(first.found, np.asarray(each.found), axis) for each in others])
    expected = np.array([_movement(first.expected, each.expected, axis) for each in others])
    separate = np.where(expected > first.allowed, 0, moved)
    return Influence(word, moved > first.allowed, expected > first.allowed, float(separate.max()))


def _by_keys(caller: Caller, problem: Problem, found: Influence) -> str:
    """Return by which keys of the first sample that reaches others it does, if not by all."""
    samples = np.flatnonzero((found.reached & ~found.expected).any(axis=1))
    if not samples.size or problem.query is problem.key:
        return ""
    sample, keys = int(samples[0]), range(problem.case.keys)
    changed = [_multiplied(problem, ("key", "value"), (sample, key)) for key in keys]
    first, *others = caller.ask_problems([problem, *changed])
    if len(others) < len(keys) or any(each.found is None for each in (first, *others)):
        return ""
    moved = [_movement(np.asarray(first.found), np.asarray(t.found), axis=0) for t in others]
    reached = np.delete(np.array(moved), sample, axis=1).max(axis=1) > first.allowed
    if reached.all() or not reached.any():
        return ""
    return f", by key {index_runs(np.flatnonzero(reached))} of {len(keys)} alone"


def _movement(first: Array, second: Array, axis: int) -> Array:
    """Return the largest change of the output along an axis of (N, H, L, Dv).

    It is infinite where a number becomes NaN, and 0 where NaN stays.
    """
    others = tuple(i for i in range(4) if i != axis)
    return np.asarray(absolute_difference(first, second).max(axis=others))


def _changed(problem: Problem, word: str, part: int) -> Problem:
    """Return the problem with one part of its inputs multiplied by ``FACTOR``."""
    if word == "head":
        return _with_head(problem, part)
    at = (part,) if word == "sample" else (slice(None), part)
    names = ("query", "key", "value") if word == "sample" else ("query",)
    return _multiplied(problem, names, at)


def _with_head(problem: Problem, head: int) -> Problem:
    columns = slice(head * problem.head_dim, (head + 1) * problem.head_dim)
    if problem.w_q is None or problem.case.projection in PROJECTIONS:
        return _multiplied(problem, ("query", "key", "value"), (..., columns))
    return _multiplied(problem, ("w_q", "w_k", "w_v"), (columns,))


def _multiplied(problem: Problem, names: tuple[str, ...], at: tuple[object, ...]) -> Problem:
    """Return the problem with parts of arrays multiplied; one array under two names stays one."""
    changed: dict[int, Array] = {}
    changes: dict[str, object] = {}
    for name in names:
        array = getattr(problem, name)
        if id(array) not in changed:
            copy = array.copy()
            copy[at] *= FACTOR
            changed[id(array)] = copy
        changes[name] = changed[id(array)]
    return problem.replace(**changes)
