"""Changed problems whose right output is what a wrong attention answers: the change is the bug."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mha_parity.diagnose.experiments.designs.calls import CallResult
from mha_parity.diagnose.experiments.designs.effect import Effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

Said = TypeVar("Said", str, Effect)
OUTPUT_ORDER = (
    "the output heads come in the order (query head of a group, key head), where that of the query "
    "heads, (key head, query head of a group), is right"
)
QUERY_ORDER = (
    "the axis of the query heads is split as (query head of a group, key head), where (key head, "
    "query head of a group) is right"
)
SAMPLES_FIRST = "the output (N, L, E) is reshaped to (L, N, E), where its axes should be swapped"
ROWS_FIRST = "the output (L, N, E) is reshaped to (N, L, E), where its axes should be swapped"
SWAP = "swap the axes: a reshape leaves all numbers in their order in memory"
ORDER_REMEDIES = {
    OUTPUT_ORDER: "merge the axes of the output in the order that the query was split in",
    QUERY_ORDER: "split the query heads as (key head, query head of a group)",
}
OF_HEADS = (
    "of sample h is applied to head h of every sample: its first axis is taken for that of the "
    "heads, which is as long"
)
AS_HEADS_FIRST = "of N * H rows is read as (H, N) in place of (N, H)"
INVERTED = "is inverted: what it marks is seen, the rest hidden"
OF_ROWS = "is taken for one of queries and keys, whose shape it has where N = L"
AS_BOOLEAN = "is taken as boolean: every number but 0 hides its key"
REPEATED = "is repeated in the wrong order: head h of sample n has the mask of sample (n H + h) % N"
# Of those that are known, what to do about it.
MISREADINGS = {
    each.text: each
    for each in (
        Effect(
            OF_HEADS,
            "say by the number of axes, not by their lengths, what the first axis of a mask is",
        ),
        Effect(OF_ROWS, "give a mask (N, S) the shape (N, 1, 1, S) before scores are masked by it"),
        Effect(
            AS_BOOLEAN, "add a float mask to the scores; only a boolean one hides where it is not 0"
        ),
        Effect(
            REPEATED,
            "repeat each sample's mask for all its heads: repeat_interleave, not repeat or tile",
            "order of masks",
        ),
        Effect(
            INVERTED,
            "negate the mask once more, or once less: `~mask`, or `mask == 0` and not 1",
            "inverted mask",
        ),
    )
}
REPEAT = "repeat each key head for all query heads of its group: repeat_interleave"


def without_masks(problem: Problem) -> Problem:
    """Return the problem without any mask and without the causal rule."""
    case = problem.case.replace(padding="none", attn="none", masked_rows="none")
    return problem.replace(case=case, key_padding_mask=None, attn_mask=None)


def answered_variant(trial: CallResult, variants: Iterable[tuple[Said, Problem]]) -> Said | None:
    """Return what is said of the first changed problem that the answer is right for, if any."""
    return next((said for said, changed in variants if is_answered(trial, changed)), None)


def is_answered(trial: CallResult, changed: Problem) -> bool:
    """Return whether an answer is right for a changed problem in rows that were wrong before.

    Rows that see no key may be anything; through an identity out_proj NaN reaches all heads.
    """
    other = CallResult(changed, trial.answer)
    if changed.num_heads != trial.problem.num_heads:
        return trial.wrong and not other.wrong
    masked = changed.masked_rows() | trial.problem.masked_rows()
    if trial.problem.case.form == "mha":
        masked = np.broadcast_to(masked.any(axis=1, keepdims=True), masked.shape)
    rows = ~masked
    return not other.off[rows].any() and bool(trial.off[rows].any())


def mask_variants(problem: Problem) -> Iterator[tuple[Effect, Problem]]:
    """Yield misreadings of one or both masks."""
    padding, attn = problem.key_padding_mask, problem.attn_mask
    given = [name for name, mask in _masks(problem).items() if mask]
    for name in given:
        yield _misread(name, given, "has no effect"), _without(problem, name)
    if problem.appended:
        case = problem.case.replace(bias_kv="no", zero_attn="no")
        bare = problem.replace(case=case, bias_k=None, bias_v=None)
        yield Effect("the appended key is hidden"), bare
    if padding is not None:
        yield from _changed(problem, "key_padding_mask", padding, given, _padding(problem, padding))
    if problem.is_causal and problem.case.queries == problem.case.keys:
        earlier = np.tri(problem.case.queries, k=-1, dtype=bool)
        case = problem.case.replace(attn="bool2d")
        transposed = problem.replace(case=case, attn_mask=earlier)
        yield _misread("the causal rule", given, "is applied transposed"), transposed
    if problem.is_causal:
        seen = np.tri(problem.case.queries, problem.case.keys, dtype=bool)
        inverted = problem.replace(case=problem.case.replace(attn="bool2d"), attn_mask=seen)
        yield _misread("the causal rule", given, INVERTED), inverted
    if attn is not None:
        yield from _changed(problem, "attn_mask", attn, given, _attn(problem, attn))
    if len(given) > 1:
        yield from _joined(problem)


def _masks(problem: Problem) -> dict[str, bool]:
    return {
        "key_padding_mask": problem.key_padding_mask is not None,
        "attn_mask": problem.attn_mask is not None,
        "the causal rule": problem.is_causal,
    }


def _misread(name: str, given: list[str], said: str) -> Effect:
    subject = "the mask" if len(given) == 1 else name
    return MISREADINGS.get(said, Effect(said)).within(f"{subject} ")


def _without(problem: Problem, name: str) -> Problem:
    """Return the problem without one of its masks."""
    if name == "key_padding_mask":
        case = problem.case.replace(padding="none")
        return problem.replace(case=case, key_padding_mask=None)
    return problem.replace(case=problem.case.replace(attn="none"), attn_mask=None)


def _changed(
    problem: Problem, name: str, mask: Array, given: list[str],
    changes: Iterator[tuple[str, Array]],
) -> Iterator[tuple[Effect, Problem]]:  # fmt: skip
    """Yield the problem with one mask changed in each way, where that is another mask."""
    for said, changed in changes:
        if changed.shape == mask.shape and np.array_equal(changed, mask):
            continue
        effect = _misread(name, given, said)
        if changed.ndim == mask.ndim:
            yield effect, problem.replace(**{name: changed})
        else:  # a padding mask that heads see otherwise
            other = problem.attn_mask
            if other is None and not problem.is_causal:
                case = problem.case.replace(padding="none", attn="bool3d")
                yield effect, problem.replace(case=case, key_padding_mask=None, attn_mask=changed)


def _padding(problem: Problem, mask: Array) -> Iterator[tuple[str, Array]]:
    """Yield what a mask (N, S) may be taken for."""
    n, heads = len(mask), problem.num_heads
    if mask.dtype == np.bool_:
        yield INVERTED, ~mask
    else:
        yield from float_readings(mask)
    if problem.lengths is not None:
        for more, said in ((1, "leaves one key too many"), (-1, "hides one key too many")):
            lengths = np.clip(problem.lengths + more, 0, mask.shape[1])
            yield said, (np.arange(mask.shape[1]) >= lengths[:, None]).astype(mask.dtype)
    yield "of sample 0 is applied to all samples", np.broadcast_to(mask[:1], mask.shape)
    yield "of the next sample is applied to each", np.roll(mask, -1, axis=0)
    yield "of the sample before is applied to each", np.roll(mask, 1, axis=0)
    yield "is applied with the samples in reverse order", mask[::-1]
    yield "is applied with the keys in reverse order", mask[:, ::-1]
    for shift in (1, -1):
        yield f"is shifted by {shift:+d} keys", np.roll(mask, shift, axis=1)
    if n == heads:
        yield OF_HEADS, np.repeat(np.tile(mask, (n, 1))[:, None], problem.case.queries, axis=1)
    if n == problem.case.queries:
        yield OF_ROWS, np.tile(mask, (n * heads, 1, 1))
    blocks = np.arange(n * heads)
    orders = {
        REPEATED: blocks % n,
        f"{AS_HEADS_FIRST}: head h of sample n has the mask of sample (h N + n) // H":
        (blocks % heads * n + blocks // heads) // heads,
    }  # fmt: skip
    for said, samples in orders.items():
        yield said, np.repeat(mask[samples][:, None], problem.case.queries, axis=1)


def _attn(problem: Problem, mask: Array) -> Iterator[tuple[str, Array]]:
    """Yield what a mask (L, S) or (N H, L, S) may be taken for."""
    if mask.dtype == np.bool_:
        yield INVERTED, ~mask
    else:
        yield from float_readings(mask)
    if mask.shape[-1] == mask.shape[-2]:
        yield "is applied transposed", mask.swapaxes(-1, -2)
    if mask.ndim == 3:
        heads = problem.num_heads
        n = len(mask) // heads
        both = mask.reshape(n, heads, *mask.shape[1:])
        tiled = mask.reshape(heads, n, *mask.shape[1:]).swapaxes(0, 1)
        orders = {OF_HEADS: both.swapaxes(0, 1)} if n == heads else {}
        orders |= {
            AS_HEADS_FIRST: tiled,
            "of head 0 is applied to every head": both[:, :1],
            "of sample 0 is applied to all samples": both[:1],
            "is applied with the heads in reverse order": both[:, ::-1],
            "of the next sample is applied to each": np.roll(both, -1, axis=0),
        }
        for said, other in orders.items():
            yield said, np.broadcast_to(other, both.shape).reshape(mask.shape)
    for shift in (1, -1):
        yield f"is shifted by {shift:+d} keys", np.roll(mask, shift, axis=-1)
        yield f"is shifted by {shift:+d} rows", np.roll(mask, shift, axis=-2)


def float_readings(mask: Array) -> Iterator[tuple[str, Array]]:
    """Yield what the numbers of a float mask may be taken for, which should be added."""
    readings = {
        AS_BOOLEAN: mask != 0,
        "is taken as boolean: 0 hides its key": mask == 0,
        "hides every key whose number is negative": mask < 0,
        "hides keys whose number is -inf, and adds no other": np.isneginf(mask),
    }
    for said, hidden in readings.items():
        yield said, np.where(hidden, -np.inf, 0).astype(mask.dtype)


def _joined(problem: Problem) -> Iterator[tuple[Effect, Problem]]:
    """Yield how two masks may be joined where a key should be hidden by either."""
    padding = _without(problem, "attn_mask").hidden()
    attn = _without(problem, "key_padding_mask").hidden()
    keys, case = problem.key.shape[1], problem.case.replace(padding="none", attn="bool3d")
    joined = {
        "a key is hidden only where both masks hide it (AND, where OR is right)": padding & attn,
        "a key is hidden where just one of the masks hides it (XOR, where OR is right)": padding
        ^ attn,
        "both masks are inverted": ~padding | ~attn,
        "the masks are joined, and the result is inverted": ~(padding | attn),
    }
    if problem.additive().any():
        return
    for said, hidden in joined.items():
        mask = hidden[..., :keys].reshape(-1, *hidden.shape[2:-1], keys)
        yield Effect(said), problem.replace(case=case, key_padding_mask=None, attn_mask=mask)


def head_variants(problem: Problem) -> Iterator[tuple[Effect, Problem]]:
    """Yield which key heads the query heads may use in place of h // (H / G) of G heads."""
    groups, heads = problem.case.kv_heads_count or problem.num_heads, problem.num_heads
    if groups == heads:
        return
    own = np.arange(heads)
    used = {
        f"h % {groups}: key heads are tiled, where each should be repeated": own % groups,
        "0: the others are not used": 0 * own,
        f"{groups} - 1 - h // {heads // groups}: in reverse order": own[::-1] // (heads // groups),
    }
    right = own // (heads // groups)
    changes = [("key head", said, each, each) for said, each in used.items()]
    for said, each in used.items():
        changes += [("keys of head", said, each, right), ("values of head", said, right, each)]
    for of, said, keys, values in changes:
        effect = Effect(f"query head h uses {of} {said}", REPEAT, "key heads")
        yield effect, with_key_heads(problem, groups, keys, values)
    orders = {OUTPUT_ORDER: own.reshape(groups, -1), QUERY_ORDER: own.reshape(-1, groups)}
    for said, split in orders.items():
        order = split.T.ravel()
        chosen = order // (heads // groups) if said == OUTPUT_ORDER else right
        changed = with_key_heads(_with_query_heads(problem, groups, order), groups, chosen)
        yield Effect(said, ORDER_REMEDIES[said]), changed


def used_key_heads(trial: CallResult) -> Effect | None:
    """Return which key head each query head uses, read off the output, where that is wrong."""
    problem = trial.problem
    groups, heads = problem.case.kv_heads_count or problem.num_heads, problem.num_heads
    if groups == heads:
        return None
    right = np.empty((groups, heads), dtype=bool)
    for group in range(groups):
        used = with_key_heads(problem, groups, np.full(heads, group))
        right[group] = ~CallResult(used, trial.answer).off.any(axis=(0, 2, 3))
    found, share = right.argmax(axis=0), heads // groups
    if not (right.sum(axis=0) == 1).all() or np.array_equal(found, np.arange(heads) // share):
        return None
    own = np.arange(heads)
    quotients = {k: np.minimum(own // k, groups - 1) for k in range(1, heads + 1)}
    rule = next((f", as h // {k} gives" for k, q in quotients.items() if (found == q).all()), "")
    read, expected = (", ".join(map(str, each)) for each in (found, own // share))
    use = f"query heads 0 … {heads - 1} use key heads {read}{rule}"
    return Effect(f"{use}, expected {expected}: h // {share}")


def _with_query_heads(problem: Problem, groups: int, order: Array) -> Problem:
    """Return a problem whose query head h is head ``order[h]`` of this one."""
    arrays = {name: getattr(problem, name) for name in ("w_q", "b_q")}
    if problem.num_kv_heads == groups:
        rows = problem.query.reshape(*problem.query.shape[:2], problem.num_heads, -1)
        return problem.replace(query=rows[:, :, order].reshape(problem.query.shape))
    changed = {
        name: array.reshape(problem.num_heads, -1, *array.shape[1:])[order].reshape(array.shape)
        for name, array in arrays.items()
        if array is not None
    }
    return problem.replace(**changed)


def with_key_heads(
    problem: Problem, groups: int, chosen: Array, of_values: Array | None = None
) -> Problem:
    """Return a problem whose query head h has the key head ``chosen[h]`` of ``groups``.

    ``of_values``: the heads of its values, where they are others.
    """
    case = problem.case.replace(kv_heads_count=0)
    heads = {"k": chosen, "v": chosen if of_values is None else of_values}
    if problem.num_kv_heads == groups:
        key, value = (
            x.reshape(*x.shape[:2], groups, -1)[:, :, used].reshape(*x.shape[:2], -1)
            for x, used in zip((problem.key, problem.value), heads.values(), strict=True)
        )
        return problem.replace(case=case, key=key, value=value)
    # The weights of a whole layer hold each key head once for every query head of its group.
    names = ("w_k", "w_v", "b_k", "b_v")
    arrays = {name: getattr(problem, name) for name in names}
    changed = {}
    for name, array in arrays.items():
        if array is not None:
            rows = heads[name[-1]] * (problem.num_heads // groups)
            split = array.reshape(problem.num_heads, -1, *array.shape[1:])
            changed[name] = split[rows].reshape(array.shape)
    return problem.replace(case=case, **changed)
