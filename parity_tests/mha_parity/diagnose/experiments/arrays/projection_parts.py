"""Whether q, k and v are projected by parts of the weights, or biases, that belong to others."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.calls import unmixed_problem
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.variants import answered_variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller

SIZES = {"batch": 2, "queries": 5, "keys": 7, "heads_count": 3, "head_dim": 4}
PARTS = "qkv"
WEIGHTS, BIASES = ("w_q", "w_k", "w_v"), ("b_q", "b_k", "b_v")


def parts_read(caller: Caller) -> str:
    """Return as what the rows of in_proj are read; "" where no other reading gives the answer."""
    offer = caller.candidate.offer
    if caller.base.form != "mha" or "many" not in offer["heads"]:
        return ""
    # A layer that reads three parts from one product may take no other key and value.
    inputs = {"inputs": "self", "queries": 5, "keys": 5} if "self" in offer["inputs"] else {}
    trial = caller.ask_problems([unmixed_problem(caller.case(**{**SIZES, **inputs}))])[0]
    if not trial.wrong:
        return ""
    return answered_variant(trial, _packings(trial.problem)) or ""


def bias_variants(problem: Problem) -> Iterator[tuple[Effect, Problem]]:
    """Yield whose bias q, k or v may get in place of its own."""
    held = _parts(problem, BIASES)
    for part, own in zip(PARTS, held, strict=False):
        for other, bias in zip(PARTS, held, strict=False):
            if other != part and bias.shape == own.shape:
                changed = problem.replace(**{f"b_{part}": bias})
                yield Effect(f"{part} gets the bias of {other}"), changed
    if len({bias.shape for bias in held}) == 1:
        for order in permutations(range(3)):
            if order == (0, 1, 2):
                continue
            said = ", ".join(PARTS[i] for i in order)
            mixed = {f"b_{part}": held[i] for part, i in zip(PARTS, order, strict=True)}
            yield Effect(f"q, k and v get the biases of {said}"), problem.replace(**mixed)


def _packings(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield how the rows of the stacked weights may be read in place of (3, H, D)."""
    weights, biases = _parts(problem, WEIGHTS), _parts(problem, BIASES)
    if len({array.shape for array in weights}) != 1:
        return
    for order in permutations(range(3)):
        if order != (0, 1, 2):
            said = ", ".join(PARTS[i] for i in order)
            changed = [[held[i] for i in order] for held in (weights, biases) if held]
            yield (
                f"q, k and v are projected by the parts {said} of in_proj",
                _with(problem, changed),
            )
    for axes, groups in (("(H, 3, D)", problem.num_heads), ("(H, D, 3)", len(weights[0]))):
        changed = [_interleaved(held, groups) for held in (weights, biases) if held]
        yield f"the rows of in_proj are read as {axes}, expected (3, H, D)", _with(problem, changed)


def _parts(problem: Problem, names: tuple[str, ...]) -> list[Array]:
    """Return the arrays of q, k and v, all or none."""
    found = [getattr(problem, name) for name in names]
    return [] if any(array is None for array in found) else found


def _interleaved(held: list[Array], groups: int) -> list[Array]:
    """Return the three parts of stacked rows that are read as (groups, 3, ...)."""
    stacked = np.concatenate(held)
    read = stacked.reshape(groups, 3, -1, *stacked.shape[1:])
    return [read[:, i].reshape(held[0].shape) for i in range(3)]


def _with(problem: Problem, changed: list[list[Array]]) -> Problem:
    """Return the problem with other weights, and other biases where it has them."""
    names = (*WEIGHTS, *BIASES)
    return problem.replace(**dict(zip(names, [a for held in changed for a in held], strict=False)))
