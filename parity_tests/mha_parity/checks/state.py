"""Check that an object answers alike before and after calls of other sizes, masks and modes."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_rounding
from mha_parity.targets.conventions.base import has_modes, set_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention
    from mha_parity.targets.conventions.calls import Call

MIN_LENGTH = 2  # queries and keys, of which half can be left out
# torch's own path for inference is another computation, of another accuracy in 16 bits.
MODES_DTYPES = ("float64", "float32")


def after_others(bound: Convention, problem: Problem, call: Call, kept: Answer) -> Iterator[str]:
    """Yield the difference that other sizes and masks make to the answers of one object.

    Another problem is computed by a new object and by that of ``call``, and then the first problem
    again by that of ``call``. What an object does not take is not checked.
    """
    for other, said in _others(problem):
        with contextlib.suppress(CandidateError):
            expected = _output(bound, other, bound.prepare(other))
            actual = _output(
                bound, other, dataclasses.replace(bound.prepare(other), function=call.function)
            )
            if not equal_up_to_rounding(expected, actual):
                difference = describe_difference(expected, actual)
                yield (
                    f"statelessness: {difference} between a new object and one that answered "
                    f"a problem of {said[0]} before."
                )
                return
            again = _output(bound, problem, call)
            if not equal_up_to_rounding(kept.output, again):
                difference = describe_difference(kept.output, again)
                yield (
                    f"statelessness: {difference} in the answer of the same object after a "
                    f"problem of {said[1]}."
                )
                return


def _others(problem: Problem) -> Iterator[tuple[Problem, tuple[str, str]]]:
    """Yield other problems, with what to call the first one and the other."""
    if min(problem.case.queries, problem.case.keys) >= MIN_LENGTH:
        half = shortened(problem)
        yield (
            half,
            tuple(  # type: ignore[misc]  # mypy does not count the loop
                f"{each.case.queries} queries and {each.case.keys} keys" for each in (problem, half)
            ),
        )
    masked = remasked(problem)
    if masked is not None:
        yield masked, ("the same sizes and other masks", "the same sizes and other masks")


def _lengths(problem: Problem) -> str:
    return f"{problem.case.queries} queries and {problem.case.keys} keys"


def in_other_modes(bound: Convention, problem: Problem, call: Call, kept: Answer) -> Iterator[str]:
    """Yield the difference that evaluation mode makes, and calls of torch without autograd.

    Only layers that are in training mode are switched, and put back.
    """
    if bound.path is not None or problem.case.dtype not in MODES_DTYPES:
        return
    layer: Any = getattr(call.function, "__self__", call.function)
    if has_modes(layer) and getattr(layer, "training", False):
        with contextlib.suppress(CandidateError):
            set_mode(layer, training=False)
            yield from _same(kept, _output(bound, problem, call), "in evaluation mode")
            set_mode(layer, training=True)
    if bound.library.name == "torch":
        import torch

        with contextlib.suppress(CandidateError), torch.no_grad():
            yield from _same(kept, _output(bound, problem, call), "without autograd")


def _same(kept: Answer, again: Array, when: str) -> Iterator[str]:
    if not equal_up_to_rounding(kept.output, again):
        yield f"statelessness: {describe_difference(kept.output, again)} in the answer {when}."


def shortened(problem: Problem) -> Problem:
    """Return the problem with the first half of its queries and keys."""
    queries, keys = problem.case.queries // 2, problem.case.keys // 2
    changes: dict[str, object] = {}
    cut: dict[int, Array] = {}
    for name, length in (("query", queries), ("key", keys), ("value", keys)):
        array = getattr(problem, name)
        changes[name] = cut.setdefault(id(array), array[:, :length].copy())
    if problem.key_padding_mask is not None:
        changes["key_padding_mask"] = problem.key_padding_mask[:, :keys].copy()
    if problem.attn_mask is not None:
        changes["attn_mask"] = problem.attn_mask[..., :queries, :keys].copy()
    return problem.replace(case=problem.case.replace(queries=queries, keys=keys), **changes)


def remasked(problem: Problem) -> Problem | None:
    """Return the problem with its masks moved on by one key; None where that changes nothing.

    Lengths hide the last keys and no others: they are left as they are.
    """
    changes: dict[str, Array] = {
        name: np.roll(mask, 1, axis=-1)
        for name in ("key_padding_mask", "attn_mask")
        if (mask := getattr(problem, name)) is not None
        and not (name == "key_padding_mask" and problem.case.padding == "lengths")
    }
    if all(np.array_equal(mask, getattr(problem, name)) for name, mask in changes.items()):
        return None
    return problem.replace(**changes)


def _output(bound: Convention, problem: Problem, call: Call) -> Array:
    return bound.answer(problem, call.make()).output
