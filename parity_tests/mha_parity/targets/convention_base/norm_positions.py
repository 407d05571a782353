"""Where a layer applies the LayerNorms that are taken out: to inputs, to the output, or between.

Norms of inputs stand around torch's layer as well, and so do those of the output where the input is
added to it. One that is applied to projected rows, to merged heads or to all that is returned has
no counterpart, and without it such a layer would pass.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.canonical_layout import one_by_one
from mha_parity.targets.calls.target_call import Arguments
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64, is_rounding
from mha_parity.targets.layers.build_layer import is_module, replace_part
from mha_parity.targets.layers.removed_parts import is_bypassed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.targets.convention_base.interpreted import InterpretedCalls

FACTOR = 2.0  # by which rows are multiplied where a norm was, to see which ones these are


def inner_norms(convention: InterpretedCalls, problem: Problem) -> tuple[str, ...]:
    """Return the paths of norms that get anything but inputs, or what is added to the input.

    Those that ``--without`` takes out are left out.
    """
    taken: dict[str, list[Array]] = {path: [] for path in convention.how.norms}

    def keep(path: str, rows: Any) -> Any:
        taken[path].append(to_numpy(rows, "the rows"))
        return rows

    try:
        result = _called(convention, problem, keep)
    except CandidateError:
        return ()  # the run says what it raised
    given = np.concatenate([getattr(problem, name).ravel() for name in INPUTS])
    several = one_by_one(result) if convention.how.residual else ()
    outputs = [a for a in map(_array, several) if a is not None]
    return tuple(
        path
        for path, arrays in taken.items()
        if not is_bypassed(path)
        and not all(_is_outside(array, given, outputs, problem) for array in arrays)
    )


def _is_outside(array: Array, given: Array, outputs: list[Array], problem: Problem) -> bool:
    """Whether all numbers are those of inputs, or of the output with or without the input added."""
    flat = np.sort(array, axis=None).astype(np.float64)
    if np.isin(flat, given).all():
        return True
    added = np.sort(problem.query, axis=None)
    return any(
        each.size == flat.size
        and (
            is_rounding(np.sort(each, axis=None), flat)
            or (flat.size == added.size and _is_without(each, array, problem))
        )
        for each in outputs
    )


def _is_without(output: Array, array: Array, problem: Problem) -> bool:
    """Whether numbers are those of the output without the input, in the input's own layout."""
    if output.shape != array.shape or output.shape != problem.query.shape:
        return False
    return is_rounding(output - problem.query, array.astype(np.float64))


def norm_remarks(convention: InterpretedCalls, problem: Problem, *, causal: bool) -> Iterator[str]:
    """Say of each norm that it is applied to some of query, key and value alone.

    Of a layer that adds its input to its output, say where that is the input behind the norm.
    """
    residual = convention.how.residual
    if len(convention.how.roles.rows) > 1 and not residual:
        return
    for path in convention.how.norms:
        if is_bypassed(path):
            continue
        chosen = path

        def scale(norm: str, rows: Any, chosen: str = chosen) -> Any:
            return rows * FACTOR if norm == chosen else rows

        try:
            result = _called(convention, problem, scale)
            output = convention.answer(problem, result).output
        except CandidateError:
            continue
        for names in (each for n in (1, 2, 3) for each in combinations(INPUTS, n)):
            rows = {name: getattr(problem, name) * FACTOR for name in names}
            expected = attention_in_float64(problem.replace(**rows), causal=causal)
            if not residual and len(names) < len(INPUTS) and is_rounding(output, expected):
                yield f"`{path}` is applied to the rows of {' and '.join(names)} alone."
            # One query was taken off, and two of them were added.
            if residual and "query" in names and is_rounding(output - problem.query, expected):
                yield f"the input that is added to the output is what `{path}` returns."


def _called(convention: InterpretedCalls, problem: Problem, seen: Callable[[str, Any], Any]) -> Any:
    """Return the result of a call in which ``seen`` gets each norm's path and rows."""
    arguments = Arguments(problem, convention.library)
    layer = convention.build(problem, arguments)
    with _watched(layer, convention.how.norms, seen):
        return convention.layer_call(layer, arguments).make()


@contextmanager
def _watched(layer: Any, paths: tuple[str, ...], seen: Callable[[str, Any], Any]) -> Iterator[None]:
    if not is_module(layer):
        for path in paths:
            replace_part(layer, path, partial(seen, path))
        yield
        return
    held = []
    for path in paths:

        def hook(_module: Any, _given: Any, rows: Any, path: str = path) -> Any:
            return seen(path, rows)

        held.append(layer.get_submodule(path).register_forward_hook(hook))
    try:
        yield
    finally:
        for each in held:
            each.remove()


def _array(value: Any) -> Array | None:
    try:
        return to_numpy(value, "the output")
    except CandidateError:
        return None
