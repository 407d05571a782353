"""Check relations that right attention obeys and that need no oracle: the candidate against itself.

Each relation changes a problem in a way whose effect on the output is known exactly, asks the
candidate again, and compares its two outputs. They may differ by twice the a-priori bound of the
rounding error, since each of the two may be off by it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.rng import Stream
from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.core.check_result import CheckResult, Place, Severity
from mha_parity.core.compare import absolute_difference, as_float64, in_unlike_digits
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.core.head_projections import PROJECTIONS
from mha_parity.core.problem import INPUTS
from mha_parity.oracle.row_tails import nan_past_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

# Finite, so that 0 times it is 0; far above every value drawn; small enough for float16.
LARGE, LARGE_FLOAT16 = 1000.0, 30.0
USUAL = 1e3  # the largest score of an enlarged key
FILL = 1e4  # what masks of 16 bits habitually subtract
TINY = np.finfo(np.float64).tiny
EVERYWHERE = np.ones((1, 1, 1), dtype=bool)


@dataclass(frozen=True, eq=False)
class RelatedProblem:
    """A changed problem, and how its output follows from the output of the first.

    ``change`` says what was changed; ``expected`` maps the first output to the second; ``compared``
    marks the elements for which it does, broadcastable to (N, L, H Dv).
    """

    change: str
    problem: Problem
    expected: Callable[[Array], Array]
    compared: Array


def permutation_equivariance(problem: Problem) -> RelatedProblem | None:
    """Permute two, several or all query rows, by the seed: the output rows permute alike.

    Two rows are the swapped rows that people try by hand.
    """
    length = problem.case.queries
    counts = (2, 4, length)
    return permute_rows(problem, counts[problem.case.seed // len(RELATIONS) % len(counts)])


def permute_rows(problem: Problem, count: int) -> RelatedProblem | None:
    """Rotate ``count`` query rows; in self-attention they are the key and value rows too."""
    length = problem.case.queries
    count = min(count, length)
    if problem.is_causal or count < 2:
        return None
    stream = Stream(problem.case.seed ^ 0x5EED)
    chosen = np.argsort(stream.normal(length))[:count]
    order = np.arange(length)
    order[chosen] = np.roll(chosen, 1)
    changes: dict[str, object] = {"query": problem.query[:, order]}
    if problem.query is problem.key:
        value = changes["query"] if problem.value is problem.key else problem.value[:, order]
        changes |= {"key": changes["query"], "value": value}
    mask = problem.attn_mask
    if mask is not None:
        rows = mask[..., order, :]
        changes["attn_mask"] = rows[..., order] if problem.query is problem.key else rows
    if problem.key_padding_mask is not None and problem.query is problem.key:
        if problem.case.padding == "lengths":
            return None  # lengths hide a suffix alone
        changes["key_padding_mask"] = problem.key_padding_mask[:, order]
    change = f"{count} of {length} query rows permuted"
    return RelatedProblem(change, problem.replace(**changes), lambda out: out[:, order], EVERYWHERE)


def batch_permutation(problem: Problem) -> RelatedProblem | None:
    """Reverse the order of the samples: the outputs are reversed."""
    n, h = problem.case.batch, problem.num_heads
    if n < 2:
        return None
    changes: dict[str, object] = _change_inputs(problem, lambda array: array[::-1])
    if problem.key_padding_mask is not None:
        changes["key_padding_mask"] = problem.key_padding_mask[::-1]
    mask = problem.attn_mask
    if mask is not None and mask.ndim == 3:
        changes["attn_mask"] = mask.reshape(n, h, *mask.shape[1:])[::-1].reshape(mask.shape)
    return RelatedProblem(
        "the samples reversed", problem.replace(**changes), lambda out: out[::-1], EVERYWHERE
    )


def key_value_permutation(problem: Problem) -> RelatedProblem | None:
    """Permute keys together with their values: the output stays the same."""
    keys = problem.case.keys
    suffix = problem.case.padding == "lengths"
    if problem.is_causal or suffix or keys < 2 or problem.query is problem.key:
        return None
    order = np.argsort(Stream(problem.case.seed ^ 0x0D0E).normal(keys))
    key = problem.key[:, order]
    value = key if problem.value is problem.key else problem.value[:, order]
    changes: dict[str, object] = {"key": key, "value": value}
    if problem.attn_mask is not None:
        changes["attn_mask"] = problem.attn_mask[..., order]
    if problem.key_padding_mask is not None:
        changes["key_padding_mask"] = problem.key_padding_mask[:, order]
    change = "keys permuted with their values"
    return RelatedProblem(change, problem.replace(**changes), _identity, EVERYWHERE)


def causality(problem: Problem) -> RelatedProblem | None:
    """Enlarge later keys and values: under the causal rule earlier output rows stay the same."""
    edge = min(problem.case.queries, problem.case.keys) // 2
    if not problem.is_causal or edge < 1 or _overflows(problem):
        return None
    later = np.arange(problem.case.keys) >= edge
    rows = np.arange(problem.case.queries) < edge
    changed = _enlarged(problem, later[None, :])
    return RelatedProblem(f"tokens from {edge} on changed", changed, _identity, rows[None, :, None])


def padding_invariance(problem: Problem) -> RelatedProblem | None:
    """Enlarge padded keys and their values: the output stays the same."""
    if problem.key_padding_mask is None or _overflows(problem):
        return None
    mask = problem.key_padding_mask
    padded = mask if mask.dtype == np.bool_ else mask.astype(np.float64) == -np.inf
    if not padded.any():
        return None
    rows = ~padded[:, :, None] if problem.query is problem.key else EVERYWHERE
    return RelatedProblem("padded tokens changed", _enlarged(problem, padded), _identity, rows)


def batch_independence(problem: Problem) -> RelatedProblem | None:
    """Negate one sample: the outputs of all others stay the same."""
    n = problem.case.batch
    if n < 2 or 0 in (problem.case.keys, problem.case.queries):
        return None
    sample = problem.case.seed % n
    chosen = np.arange(n) == sample
    changed = _change_inputs(problem, lambda array: np.where(chosen[:, None, None], -array, array))
    return RelatedProblem(
        f"sample {sample} negated", problem.replace(**changed), _identity, ~chosen[:, None, None]
    )


def head_independence(problem: Problem) -> RelatedProblem | None:
    """Negate the queries and values of one head: the outputs of all others stay the same.

    In a layer of grouped heads it is all heads of one group, which have one value. Where each head
    projects its own channels, these are negated in all inputs.
    """
    heads = problem.num_heads
    if heads < 2 or problem.w_out is not None or problem.num_kv_heads != heads:
        return None
    size = heads // (problem.case.kv_heads_count or heads)
    if size == heads:  # one group of all
        return None
    chosen = problem.case.seed % heads // size
    others = np.arange(heads * problem.v_head_dim) // (size * problem.v_head_dim) != chosen
    first = chosen * size
    said = f"head {first}" if size == 1 else f"heads {first} to {first + size - 1}"
    return RelatedProblem(
        f"{said} negated", _negated(problem, chosen, size), _identity, others[None, None, :]
    )


def _negated(problem: Problem, chosen: int, size: int) -> Problem:
    """Return the problem with the queries and values negated of ``size`` heads."""

    def own(width: int) -> Array:
        return np.asarray(np.arange(problem.num_heads * width) // (size * width) == chosen)

    changes: dict[str, object] = {}
    if problem.case.projection in PROJECTIONS or problem.case.projection == "one_array":
        rows: dict[int, Array] = {}
        for name in INPUTS:
            array = getattr(problem, name)
            negated = np.where(own(problem.head_dim), -array, array)
            changes[name] = rows.setdefault(id(array), negated)
        return problem.replace(**changes)
    kinds = {"q": ("query", problem.head_dim), "v": ("value", problem.v_head_dim)}
    for name, (source, width) in kinds.items():
        weight, inputs = getattr(problem, f"w_{name}"), getattr(problem, source)
        if weight is not None:
            changes[f"w_{name}"] = np.where(own(width)[:, None], -weight, weight)
        else:
            changes[source] = np.where(own(width), -inputs, inputs)
    return problem.replace(**changes)


def _identity(output: Array) -> Array:
    return output


def _change_inputs(problem: Problem, change: Callable[[Array], Array]) -> dict[str, object]:
    """Return changed query, key and value; one array under several names stays one array."""
    changed: dict[int, Array] = {}
    inputs = {name: getattr(problem, name) for name in ("query", "key", "value")}
    return {name: changed.setdefault(id(a), change(a)) for name, a in inputs.items()}


def _overflows(problem: Problem) -> bool:
    """Return whether an enlarged value times that of a large head exceeds float16's range."""
    return problem.case.dtype == "float16" and problem.case.regime == "large_head"


def _enlarged(problem: Problem, where: Array) -> Problem:
    """Return the problem with large keys and values at the given (N or 1, S) positions."""
    positions = where[:, :, None]
    large = problem.key.dtype.type(_large(problem))
    key = np.where(positions, large, problem.key)
    value = key if problem.value is problem.key else np.where(positions, large, problem.value)
    query = key if problem.query is problem.key else problem.query
    return problem.replace(query=query, key=key, value=value)


def _large(problem: Problem) -> float:
    """Return the number that enlarged keys consist of, with no score above ``USUAL``.

    What a habitual mask of -1e4 is added to lies below all visible scores then. It is not lowered
    where the problem's own scores may lie below that fill already.
    """
    most = LARGE_FLOAT16 if problem.case.dtype == "float16" else LARGE
    ones = np.ones((1, 1, problem.key.shape[-1]))
    queries, keys, alike = (
        _of_heads(problem, *each)
        for each in (
            (problem.query, problem.w_q, problem.b_q, problem.num_heads),
            (problem.key, problem.w_k, problem.b_k, problem.num_kv_heads),
            (ones, problem.w_k, None, problem.num_kv_heads),
        )
    )
    longest = [np.sqrt((rows**2).sum(axis=-1)).max(initial=0.0) for rows in (queries, keys)]
    alike = np.repeat(alike, problem.num_heads // problem.num_kv_heads, axis=2)
    grows = float(np.abs(queries * alike).sum(axis=-1).max(initial=0.0) * abs(problem.scale))
    own = longest[0] * longest[1] * abs(problem.scale)
    return most if own + USUAL >= FILL else USUAL / max(grows, USUAL / most)


def _of_heads(problem: Problem, rows: Array, weight: Any, bias: Any, heads: int) -> Array:
    """Return what rows are projected to, (N, T, heads, D), in float64."""
    projected = np.asarray(rows, np.float64)
    if weight is not None:
        projected = projected @ np.asarray(weight, np.float64).T
    projected = projected if bias is None else projected + np.asarray(bias, np.float64)
    return projected.reshape(*projected.shape[:2], heads, problem.head_dim)


# By the name of the check in the report.
RELATIONS: dict[str, Callable[[Problem], RelatedProblem | None]] = {
    "permutation equivariance": permutation_equivariance,
    "batch permutation": batch_permutation,
    "key/value permutation invariance": key_value_permutation,
    "causality": causality,
    "padding invariance": padding_invariance,
    "batch independence": batch_independence,
    "head independence": head_independence,
}


def scheduled_relation(problem: Problem) -> tuple[str, RelatedProblem] | None:
    """Return the relation number ``seed % 7``, or the next one that applies; None if none does.

    None where values are extreme: another order of keys is right with NaN at other places.
    """
    if problem.case.regime in EXTREME_VALUES:
        return None
    names = tuple(RELATIONS)
    first = problem.case.seed % len(names)
    for name in names[first:] + names[:first]:
        related = RELATIONS[name](problem)
        if related is not None:
            return name, related
    return None


def judge_relation(
    problem: Problem, bound: Array, first: Array, second: Array, name: str, related: RelatedProblem
) -> CheckResult:
    """Return the check result on one relation between the candidate's own two outputs.

    ``bound`` is the a-priori bound of the rounding error of the first problem, (N, L, H Dv).
    """
    expected = as_float64(related.expected(first))
    actual = as_float64(second)
    if actual.shape != expected.shape:
        return CheckResult(
            case=problem.case,
            check=name,
            severity=Severity.STRUCTURE,
            detail=f"with {related.change} the output has the shape {actual.shape}, but should "
            f"have {expected.shape}.",
        )
    # Rows that see no key have no bound: the check of fully masked rows judges them.
    allowed = 2 * np.nan_to_num(related.expected(bound), nan=np.inf)
    compared = np.broadcast_to(related.compared, actual.shape) & np.isfinite(allowed)
    carried = np.isnan(expected) & related.expected(nan_past_rows(problem))
    carried |= np.isnan(actual) & nan_past_rows(related.problem)
    compared = compared & ~carried
    if not compared.any():
        return CheckResult(case=problem.case, check=name, severity=Severity.MATCH)
    difference = np.where(compared, absolute_difference(expected, actual), 0.0)
    with np.errstate(over="ignore"):  # a difference over a subnormal allowance may pass the range
        units = difference / np.maximum(np.where(compared, allowed, 1.0), TINY)
    index = np.unravel_index(np.argmax(units), units.shape)
    wrong = bool(units[index] > 1)
    place = output_place(problem, index)
    if wrong:
        tell_compared(
            name,
            ComparedCall("the case", problem, first),
            ComparedCall(related.change, related.problem, actual),
            ComparedCall("what that should be by the first", related.problem, expected),
        )
    shown, wanted = in_unlike_digits(float(actual[index]), float(expected[index]))
    detail = (
        f"with {related.change} the output is {shown} at {place}, but should be {wanted} by the "
        "target's own first output."
    )
    return CheckResult(
        case=problem.case,
        check=name,
        severity=Severity.WRONG if wrong else Severity.MATCH,
        error=float(difference[index]),
        allowed=float(allowed[index]),
        where=place,
        detail=detail if wrong else "",
    )


def output_place(problem: Problem, index: tuple[np.intp, ...]) -> Place:
    """Return the place of an element of the output, (sample, row, head and its column)."""
    sample, row, column = (int(i) for i in index)
    return Place(sample, column // problem.v_head_dim, row, column % problem.v_head_dim)
