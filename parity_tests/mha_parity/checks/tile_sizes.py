"""Check that the answer does not depend on how keys and queries are cut into tiles.

A kernel that takes the size of its tiles, or their number, is asked small problems with others than
its default: tiles of queries larger and smaller than those of keys, and lengths that none divides.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_float32
from mha_parity.targets.calls.target_call import with_arguments
from mha_parity.targets.static.tile_names import may_be_of_tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.convention_base.convention import Convention

NAME = "other tile sizes"
CHECKS = {NAME: "the answer is the same with other sizes of tiles, or numbers of them"}
REMEDY = (
    "rescale what earlier tiles summed when the maximum grows, skip a tile only where its last "
    "query sees none of its keys, count rows from the start of the whole, and keep the rest behind "
    "the last whole tile"
)
# Of queries and of keys, with lengths that leave a rest; the longer ones for tiles of vectors.
SIZES = ((4, 8), (8, 4), (3, 5), (5, 2), (32, 16), (16, 32))
LENGTHS = ((13, 17), (70, 75))
LONG = 16  # the smallest tile that is asked of longer rows
HEAD_DIM = 6


def check_tile_sizes(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield that a small problem of the kind of ``problem`` is answered otherwise.

    ``number`` is that of the case among those for which this is asked. A size may also be that of
    a window, or of a context: it is asked where tiles without a rest, and without the causal rule,
    give the answer to the whole. What raises is a size that the kernel does not have.
    """
    sizes = SIZES[number // 2 % len(SIZES)]
    parameters = [p for p in bound.call_parameters if may_be_of_tiles(p)]
    lengths = LENGTHS[min(sizes) >= LONG]
    small = _small(bound, problem, lengths, causal=number % 2 == 1)
    if not parameters or small is None:
        return
    given = {p.name: sizes[place % 2] for place, p in enumerate(parameters)}
    with contextlib.suppress(CandidateError):
        if not _cuts(bound, problem, given, max(lengths)):
            return
        call = _call(bound, small, given)
        found, expected = _answer(bound, small, call), bound(small).output
        bound.record(call)
        yield NAME
        if not equal_up_to_float32(expected, found):
            said = " and ".join(f"`{name}` = {size}" for name, size in given.items())
            tell_compared(
                NAME,
                ComparedCall("without a size of tiles", small, expected),
                ComparedCall(f"with {said}", small, found),
            )
            yield (
                f"{NAME}: with {said} {describe_difference(expected, found)} {_described(small)}."
            )


def _small(
    bound: Convention, problem: Problem, lengths: tuple[int, int], *, causal: bool
) -> Problem | None:
    """Return a plain problem with these lengths; of one length with the causal rule."""
    causal = causal and "causal" in bound.offer["attn"]
    inputs = "self" if causal or "cross" not in bound.offer["inputs"] else "cross"
    case = problem.case.replace(inputs=inputs)
    small = plain_variant(case, bound.offer, *lengths, HEAD_DIM, square=causal)
    if small is None or bound.own_weights is not None:
        return None
    plain = small.replace(gradients="no", weights="none", projection="packed", kdim=0, vdim=0)
    return make_problem(plain.replace(attn="causal") if causal else plain)


def _cuts(bound: Convention, problem: Problem, given: Mapping[str, int], length: int) -> bool:
    """Return whether tiles of a longer problem that they divide give the answer to the whole."""
    step = math.lcm(*given.values())
    longer = step * (length // step + 1)
    whole = _small(bound, problem, (longer, longer), causal=False)
    if whole is None:
        return False
    return equal_up_to_float32(
        bound(whole).output, _answer(bound, whole, _call(bound, whole, given))
    )


def _call(bound: Convention, problem: Problem, given: Mapping[str, int]) -> Call:
    """Return the call with other values of some parameters."""
    return with_arguments(bound.prepare(problem), bound.call_parameters, given)


def _answer(bound: Convention, problem: Problem, call: Call) -> Array:
    return bound.answer(problem, call.make()).output


def _described(problem: Problem) -> str:
    """Say the lengths of a problem, and whether it is causal."""
    rule = " with the causal rule" if problem.is_causal else ""
    return f"at L = {problem.case.queries} and S = {problem.case.keys}{rule}"
