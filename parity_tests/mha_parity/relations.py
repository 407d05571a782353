"""Relations that right attention obeys and that need no oracle: the candidate against itself.

Each relation changes a problem in a way whose effect on the answer is known exactly, asks the
candidate again, and compares its two answers. What rounding may differ by is twice the a-priori
bound of the problem, since each answer may be off by it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.values import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.problem import Problem
    from mha_parity.values import Array

# Finite, so that 0 times it is 0; loud enough to show through any leak; small enough for float16.
POISON = {"float16": 30.0}


@dataclass(frozen=True, eq=False)
class Related:
    """A changed problem, and what its answer must be, given the answer to the first.

    ``expected`` maps the first output to the output due; ``compare`` says which cells are due to
    agree, broadcastable to (N, L, H Dv).
    """

    problem: Problem
    expected: Callable[[Array], Array]
    compare: Array


EVERYWHERE = np.ones((1, 1, 1), dtype=bool)


def swapped_rows(problem: Problem) -> Related | None:
    """Swap two rows of the input: the same two rows of the output swap."""
    return _permuted_rows(problem, 2)


def several_rows(problem: Problem) -> Related | None:
    """Move several rows of the input round: the same rows of the output move."""
    return _permuted_rows(problem, 4)


def permuted_rows(problem: Problem) -> Related | None:
    """Permute all rows of the input: the output is permuted alike."""
    return _permuted_rows(problem, problem.case.queries)


def _permuted_rows(problem: Problem, count: int) -> Related | None:
    """Rotate ``count`` query rows; in self-attention they are the key and value rows too."""
    length = problem.case.queries
    if problem.is_causal or length < max(2, min(count, 3)):
        return None
    stream = Stream(problem.case.seed ^ 0x5EED)
    chosen = np.argsort(stream.normal(length))[: min(count, length)]
    order = np.arange(length)
    order[chosen] = np.roll(chosen, 1)
    changes: dict[str, object] = {"query": problem.query[:, order]}
    if problem.query is problem.key:
        changes |= {"key": changes["query"], "value": changes["query"]}
    mask = problem.attn_mask
    if mask is not None:
        rows = mask[..., order, :]
        changes["attn_mask"] = rows[..., order] if problem.query is problem.key else rows
    if problem.key_padding_mask is not None and problem.query is problem.key:
        if problem.case.padding == "lengths":
            return None  # lengths can only say a suffix
        changes["key_padding_mask"] = problem.key_padding_mask[:, order]
    return Related(problem.replace(**changes), lambda out: out[:, order], EVERYWHERE)


def swapped_samples(problem: Problem) -> Related | None:
    """Reverse the order of the samples: the outputs are reversed, no sample sees another."""
    n, h = problem.case.batch, problem.num_heads
    if n < 2:
        return None
    changes: dict[str, object] = _inputs(problem, lambda array: array[::-1])
    if problem.key_padding_mask is not None:
        changes["key_padding_mask"] = problem.key_padding_mask[::-1]
    mask = problem.attn_mask
    if mask is not None and mask.ndim == 3:
        changes["attn_mask"] = mask.reshape(n, h, *mask.shape[1:])[::-1].reshape(mask.shape)
    return Related(problem.replace(**changes), lambda out: out[::-1], EVERYWHERE)


def permuted_keys(problem: Problem) -> Related | None:
    """Permute keys together with their values: nothing changes."""
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
    return Related(problem.replace(**changes), _same, EVERYWHERE)


def future_tokens(problem: Problem) -> Related | None:
    """Poison what is later: under the causal rule earlier rows stay the same."""
    edge = min(problem.case.queries, problem.case.keys) // 2
    if not problem.is_causal or edge < 1 or _deafening(problem):
        return None
    later = np.arange(problem.case.keys) >= edge
    rows = np.arange(problem.case.queries) < edge
    return Related(_poisoned(problem, later[None, :]), _same, rows[None, :, None])


def hidden_keys(problem: Problem) -> Related | None:
    """Poison padded keys: the output stays the same."""
    if problem.key_padding_mask is None or _deafening(problem):
        return None
    mask = problem.key_padding_mask
    padded = mask if mask.dtype == np.bool_ else mask.astype(np.float64) == -np.inf
    if not padded.any():
        return None
    rows = ~padded[:, :, None] if problem.query is problem.key else EVERYWHERE
    return Related(_poisoned(problem, padded), _same, rows)


def samples_apart(problem: Problem) -> Related | None:
    """Change one sample: no other changes."""
    n = problem.case.batch
    if n < 2 or 0 in (problem.case.keys, problem.case.queries):
        return None
    chosen = np.arange(n) == problem.case.seed % n
    changed = _inputs(problem, lambda array: np.where(chosen[:, None, None], -array, array))
    return Related(problem.replace(**changed), _same, ~chosen[:, None, None])


def heads_apart(problem: Problem) -> Related | None:
    """Change what one head is given: no other head's part of the output changes."""
    heads = problem.num_heads
    if heads < 2 or problem.w_out is not None or problem.num_kv_heads != heads:
        return None
    chosen = problem.case.seed % heads
    changes: dict[str, object] = {}
    for name, width in (("q", problem.head_dim), ("v", problem.v_head_dim)):
        mine = np.arange(heads * width) // width == chosen
        weight = getattr(problem, f"w_{name}")
        source = {"q": "query", "v": "value"}[name]
        if weight is not None:
            changes[f"w_{name}"] = np.where(mine[:, None], -weight, weight)
        else:
            inputs = getattr(problem, source)
            changes[source] = np.where(mine, -inputs, inputs)
    others = np.arange(heads * problem.v_head_dim) // problem.v_head_dim != chosen
    return Related(problem.replace(**changes), _same, others[None, None, :])


def _same(output: Array) -> Array:
    return output


def _inputs(problem: Problem, change: Callable[[Array], Array]) -> dict[str, object]:
    """Return changed query, key and value; what was one object stays one object."""
    done: dict[int, Array] = {}
    changed: dict[str, object] = {}
    for name in ("query", "key", "value"):
        array = getattr(problem, name)
        changed[name] = done.setdefault(id(array), change(array))
    return changed


def _deafening(problem: Problem) -> bool:
    """Return whether poison times a loud head would pass float16's largest number."""
    return problem.case.dtype == "float16" and problem.case.regime == "loud"


def _poisoned(problem: Problem, where: Array) -> Problem:
    """Return the problem with loud keys and values at the given (N or 1, S) positions."""
    cells = where[:, :, None]
    loud = problem.key.dtype.type(POISON.get(problem.case.dtype, 1000.0))
    key = np.where(cells, loud, problem.key)
    value = key if problem.value is problem.key else np.where(cells, loud, problem.value)
    query = key if problem.query is problem.key else problem.query
    return problem.replace(query=query, key=key, value=value)


# What is asked of each case in turn; the name is the check's name in the report.
RELATIONS: dict[str, Callable[[Problem], Related | None]] = {
    "swapped rows": swapped_rows,
    "several rows moved": several_rows,
    "all rows permuted": permuted_rows,
    "samples reordered": swapped_samples,
    "keys permuted with values": permuted_keys,
    "future tokens without effect": future_tokens,
    "padding without effect": hidden_keys,
    "samples apart": samples_apart,
    "heads apart": heads_apart,
}


def applicable(problem: Problem) -> list[tuple[str, Related]]:
    """Return the relations that the problem can be asked for, by name."""
    return list(in_turn(problem, first=0))


def in_turn(problem: Problem, first: int) -> Iterator[tuple[str, Related]]:
    """Yield what ``applicable`` returns, one by one and from the relation numbered ``first`` on."""
    names = tuple(RELATIONS)
    start = first % len(names)
    for name in names[start:] + names[:start]:
        related = RELATIONS[name](problem)
        if related is not None:
            yield name, related
