"""From canonical rows (N, L, E) to the layout of a case, and from a result back to them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.backends import to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem


def split_result(result: Any) -> tuple[Any, Any]:
    """Return output and weights of a result that is an output, or a pair of both."""
    result = without_names(result)
    if not isinstance(result, tuple | list):
        return result, None
    if len(result) != 2 or isinstance(result, list):
        to_numpy(result, "the output")
    return result[0], result[1]


def without_names(result: Any) -> Any:
    """Return the values of a result that is a dictionary or a dataclass; any other as it came."""
    if isinstance(result, dict):
        return tuple(result.values())
    if is_dataclass(result) and not isinstance(result, type):
        return tuple(getattr(result, each.name) for each in fields(result))
    return result


def lay_rows(problem: Problem) -> Callable[[Array], Array]:
    """Return how rows of the canonical (N, L, E) are handed over in the case's layout."""
    layout = problem.case.layout
    if layout == "unbatched":
        return only_sample
    return (lambda rows: rows.swapaxes(0, 1)) if layout == "sequence_first" else (lambda rows: rows)


def only_sample(array: Array) -> Array:
    """Return the one sample of an unbatched case."""
    if array.shape[0] != 1:
        raise ValueError(f"an unbatched case has batch = {array.shape[0]}, but should have 1.")
    sample: Array = array[0]
    return sample


def canonical(problem: Problem, output: Array) -> Array:
    """Return an output as (N, L, H Dv); one of another rank as it came."""
    layout = problem.case.layout
    if layout == "unbatched" and output.ndim == 2:
        return output[None]
    return output.swapaxes(0, 1) if layout == "sequence_first" and output.ndim == 3 else output


def canonical_weights(problem: Problem, weights: Any) -> Array | None:
    """Return weights as (N, L, S') or (N, H, L, S'); a list of heads is stacked."""
    unbatched = problem.case.layout == "unbatched"
    per_head = problem.case.weights == "per_head"
    if weights is None:
        return None
    if isinstance(weights, list | tuple):
        heads = [to_numpy(head, "the weights of a head") for head in weights]
        if not heads or len({head.shape for head in heads}) > 1:
            message = "the weights of the heads have shapes {}, but should be of one shape."
            raise CandidateError("structure", message.format([head.shape for head in heads]))
        array = np.stack(heads, axis=0 if unbatched else 1)
    else:
        array = to_numpy(weights, "the attention weights")
    if unbatched:
        array = array[None] if array.ndim == (3 if per_head else 2) else array
    if per_head and problem.num_heads == 1 and array.ndim == 3:
        return array[:, None]
    # One head, unbatched, as a plain matrix.
    return array[None, None] if per_head and problem.num_heads == 1 and array.ndim == 2 else array
