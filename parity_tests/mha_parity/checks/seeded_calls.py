"""Calls under global generators of other seeds: which steps of a call seed them again.

Draws advance a generator from its seed: two seeds, two states. A step after which the states are
equal has seeded the generator itself. A call should leave them alone; what the constructor of a
layer does to them is said, and fails nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mha_parity.core.candidate import REMARK
from mha_parity.core.global_state import seeded_generators

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.global_state import GlobalGenerator
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention


class SeededCall(NamedTuple):
    """The output of a call, and the states of the generators, by owner, behind its two steps."""

    output: Array
    after_building: Mapping[str, object]
    after_call: Mapping[str, object]


def seeded_call(bound: Convention, problem: Problem, seed: int) -> SeededCall:
    """Return a call with the generators seeded before the object is built, and before it is called.

    They are left as they were found.
    """
    with seeded_generators(seed) as generators:
        call = bound.prepare(problem)
        after_building = _states(generators)
        for each in generators.values():
            each.seed(seed)
        output = bound.answered(problem, call, call.make()).output.copy()
        return SeededCall(output, after_building, _states(generators))


def seeds_again(first: SeededCall, second: SeededCall) -> Iterator[str]:
    """Yield what two calls under unlike seeds show to be seeded again."""
    for owner in _alike(first.after_building, second.after_building):
        yield (
            f"{REMARK}The constructor seeds {owner} global generator: what the program draws "
            "behind it is the same each time; draw from a generator of your own."
        )
    for owner in _alike(first.after_call, second.after_call):
        yield f"global state unchanged: the call seeds {owner} global generator."


def _states(generators: Mapping[str, GlobalGenerator]) -> dict[str, object]:
    return {owner: each.key(each.state()) for owner, each in generators.items()}


def _alike(first: Mapping[str, object], second: Mapping[str, object]) -> Iterator[str]:
    return (owner for owner in first if first[owner] == second.get(owner))
