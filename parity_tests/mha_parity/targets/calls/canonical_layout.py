"""From canonical rows (N, L, E) to the layout of a case, and from a result back to them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.backends import to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

WEIGHTS_AXES = "NHLS"  # the axes of torch's weights
DOCUMENTED_AXES = (
    "returned weights were read with their documented axes, ({}); torch's are (N, H, L, S)."
)


def split_result(result: Any) -> tuple[Any, Any]:
    """Return output and weights of a result that is an output, or a pair of both."""
    result = without_names(result)
    if isinstance(result, tuple) and len(result) == 1:
        result = result[0]
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


def one_by_one(result: Any) -> list[Any]:
    """Return what came back, also out of a dictionary or a dataclass, one by one."""
    given = without_names(result)
    return list(given) if isinstance(given, tuple | list) else [given]


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


def swap_axes(array: Any, swaps: Iterable[tuple[int, int]]) -> Any:
    """Return an array of any library with pairs of its axes exchanged, in order."""
    for pair in swaps:
        array = array.swapaxes(*pair)
    return array


def merge_output(problem: Problem, output: Array, swaps: Sequence[tuple[int, int]]) -> Array:
    """Return an output by head as (N, L, H Dv); one of another rank as it came.

    ``swaps``: the axes whose exchange, in order, makes its arrangement of (N, L, H, Dv).
    """
    layout = problem.case.layout
    if output.ndim != (3 if layout == "unbatched" else 4):
        return output
    batched = output[None] if layout == "unbatched" else output
    arranged = batched.swapaxes(0, 1) if layout == "sequence_first" else batched
    whole: Array = swap_axes(arranged, reversed(swaps))
    return whole.reshape(*whole.shape[:2], whole.shape[2] * whole.shape[3])


def split_output(problem: Problem, output: Any, swaps: Sequence[tuple[int, int]]) -> Any:
    """Return an output whose heads are merged with an axis of heads, where the inputs have it.

    It may be of any library. ``swaps``: as of ``merge_output``. One of another rank comes back as
    it is.
    """
    single = problem.case.layout == "unbatched"
    if len(output.shape) != (2 if single else 3):
        return output
    *rows, width = output.shape
    parts = (problem.num_heads, width // problem.num_heads)
    split = swap_axes(output.reshape(*(1,) * single, *rows, *parts), swaps)
    return split[0] if single else split


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


def in_torchs_order(problem: Problem, answer: Answer, documented: str) -> Answer:
    """Return an answer whose weights have the documented axes with torch's, and say it."""
    averaged = problem.case.weights == "averaged"
    axes, torchs = (each.replace("H" * averaged, "") for each in (documented, WEIGHTS_AXES))
    if problem.case.layout == "unbatched":  # which the one sample's axis was put in front of
        axes = "N" + axes.replace("N", "")
    sizes = dict(zip(WEIGHTS_AXES, problem.weights_shape, strict=True))
    weights = answer.weights
    if weights is None or weights.shape != tuple(sizes[axis] for axis in axes):
        return answer
    ordered = weights.transpose([axes.index(axis) for axis in torchs])
    said = DOCUMENTED_AXES.format(", ".join(documented))
    return replace(answer, weights=ordered, remarks=tuple(dict.fromkeys((*answer.remarks, said))))


def first_rows(problem: Problem, output: Array) -> Array:
    """Return the answers for first rows, (N * L, 1, E) or (N * L, E), as (N, L, E)."""
    length, width = problem.output_shape[1:]
    samples = problem.case.batch * length
    if output.shape not in {(samples, 1, width), (samples, width)}:
        return output
    return output.reshape(problem.output_shape)


def _grid(rows: Array) -> Array:
    """Return rows (N, L, E) as (N, height, width, E), neither 1 unless the length is prime.

    With a height of 1, a length that is read from the second axis would be 1 and hide what is
    wrong; and attention along one axis would be attention over both.
    """
    length = rows.shape[1]
    width = next((each for each in range(2, length) if length % each == 0), 1)
    return rows.reshape(rows.shape[0], length // width, width, rows.shape[2])


def _in_groups(rows: Array) -> Array:
    """Return rows (N, L, E) as (N / C, C, L, E), where C > 1 unless there is but one sample."""
    batch = rows.shape[0]
    group = next((each for each in range(2, batch + 1) if batch % each == 0), 1)
    return rows.reshape(batch // group, group, *rows.shape[1:])


def _channels_first(rows: Array) -> Array:
    """Return rows (N, L, E) as (N, E, L)."""
    return np.ascontiguousarray(rows.swapaxes(1, 2))


def _each_first(rows: Array) -> Array:
    """Return rows (N, L, E) as (N * L, L, E), in which each row is the first of a sample once.

    It has changed its place with the first one, as nothing depends on the order of keys.
    """
    batch, length, width = rows.shape
    at = np.arange(length)
    row, place = at[:, None], at[None]
    order = np.where(place == 0, row, np.where(place == row, 0, place))
    return rows[:, order].reshape(batch * length, length, width)


# How arrangements of rows other than those of heads are made of (N, L, E), and how an answer of so
# many axes is made such rows again; that of first rows needs the sizes (`first_rows`).
LAID: dict[str, Callable[[Array], Array]] = {
    "grid": _grid,
    "stacked": _in_groups,
    "second_axis": lambda rows: np.ascontiguousarray(_in_groups(rows).swapaxes(1, 2)),
    "axial": lambda rows: np.ascontiguousarray(rows.swapaxes(0, 1)[:, :, None]),
    "map": lambda rows: np.ascontiguousarray(_grid(rows).transpose(0, 3, 1, 2)),
    "channels": _channels_first,
    "columns": lambda rows: np.ascontiguousarray(only_sample(rows).T),
    "first_row": _each_first,
}
BACK: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "grid": (4, lambda a: a.reshape(a.shape[0], a.shape[1] * a.shape[2], a.shape[3])),
    "stacked": (4, lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])),
    "second_axis": (
        4,
        lambda a: a.swapaxes(1, 2).reshape(a.shape[0] * a.shape[2], a.shape[1], a.shape[3]),
    ),
    "axial": (4, lambda a: a[:, :, 0].swapaxes(0, 1)),
    "map": (4, lambda a: a.reshape(*a.shape[:2], a.shape[2] * a.shape[3]).swapaxes(1, 2)),
    "channels": (3, lambda a: a.swapaxes(1, 2)),
    "columns": (2, lambda a: a.T[None]),
}
