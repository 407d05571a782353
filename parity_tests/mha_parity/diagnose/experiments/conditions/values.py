"""At which scores an output stops being right, though it depends on their differences alone.

One channel of q and k gives every row the same small scores; a second adds a constant to all scores
of a row. The softmax is that of the small scores, whatever is added: where the output is another,
the row's maximum is not subtracted, or something else is. The same constant on one key of many, the
first or the last, shows a maximum of some keys alone. One of the small scores is exactly 0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.features import DTYPES
from mha_parity.diagnose.experiments.arrays.error_places import contents
from mha_parity.diagnose.experiments.designs.calls import unmixed_problem
from mha_parity.diagnose.experiments.designs.designed_scores import SIZES, shifted
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.variants import is_answered
from mha_parity.diagnose.experiments.scores.clipped_scores import REMEDY as UNCLIPPED
from mha_parity.diagnose.experiments.scores.clipped_scores import clip_of_scores
from mha_parity.diagnose.experiments.scores.small_weights import small_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

ADDED = (8, 16, 32, 64, 80, 96, 128, 256, 512, 640, 704, 720, 752, 1024, 2048, 4096)
NO_KEYS = "with no keys (S = 0)"
HIDDEN_IN_MAXIMUM = "hidden keys have a part in the maximum that is subtracted"
MASK_FIRST = "fill hidden scores with -inf first, and take the row's maximum of that"
EXP_OVERFLOWS = (
    "exp of hidden scores overflows, since no maximum that is subtracted has them in it, and "
    "infinity times 0 is NaN"
)
HIDE_FIRST = (
    "fill hidden scores with -inf, subtract the row's maximum of that, and multiply by no mask "
    "behind exp"
)
MANY = 1030  # keys: more than a block has
MANY_OF_BOTH = 260  # where there are as many rows: a call takes their product
FEWER = 8  # of an eighth of the keys a call is timed first
QUICK = 0.008  # seconds that it takes at most: loops of Python over many keys leave no time
WHOLE_MAXIMUM = (
    "subtract the maximum over all keys of the row: follow it from block to block, and multiply "
    "what was accumulated by exp(old maximum - new maximum)"
)
ZERO = "keys whose score is exactly 0 get no weight"
BY_PLACE = "hide keys by their places, from the mask itself, not by the score: a true one may be 0"
ZERO_KEYS = "keys that are 0 in every channel get no weight"
BY_MASK = "hide padding by a mask: a key of zeros has the score 0, and its share of the weights"
SHARED = ": what is subtracted is not the maximum of the row alone"
REMEDY = "subtract the maximum of the row's own scores before exp, from the first block on"


def values(caller: Caller) -> Iterator[Effect]:
    """Yield what goes wrong where rows have large scores, very negative ones, or no keys at all."""
    if found := _large_scores(caller):
        yield found
        return
    if small := small_weights(caller):
        yield small
        return
    for key in ("last", "first"):
        if text := _one_key(caller, key):
            yield Effect(text, WHOLE_MAXIMUM)
            return
    yield from _hidden_maximum(caller)
    yield from [*_zeros(caller)] or _zero_keys(caller)
    yield from _no_keys(caller)


def _dtypes(caller: Caller) -> list[str]:
    """Return the dtypes whose exponential is reached by scores that they can hold."""
    return [n for n in DTYPES[:2] if n in caller.candidate.offer["dtype"]]


def _large_scores(caller: Caller) -> Effect | None:
    """Return from which constant on that is added to all scores of rows the output is wrong."""
    for sign, rows in ((1, "all"), (-1, "all"), (-1, "last")):
        limits = {
            name: limit for name in _dtypes(caller) if (limit := _shift(caller, name, sign, rows))
        }
        if not limits:
            continue
        if rows == "all" and (text := _clip(caller, sign, limits)):
            return Effect(text, UNCLIPPED)
        besides = " next to rows of small scores" if rows == "last" else ""
        side = "above" if sign > 0 else "below"
        kinds = (
            f"in {name}, rows whose scores are all {side} {sign * last} … {sign * first}{besides} "
            f"are {text}"
            for name, (last, first, text) in limits.items()
        )
        shared = SHARED if rows == "last" else ""
        return Effect(f"{'; '.join(kinds)}{shared}", REMEDY)
    return None


def _shift(caller: Caller, dtype: str, sign: int, rows: str) -> tuple[int, int, str] | None:
    # Next to such rows the error that rounding allows is beyond any output from the last one on.
    added = ADDED[:-1] if rows == "last" else ADDED
    return _limit(caller, lambda n: shifted(caller, dtype, float(sign * n), rows), added=added)


def _clip(caller: Caller, sign: int, limits: dict[str, tuple[int, int, str]]) -> str:
    """Return at which scores a clip is, where rows beyond it have equal weights."""
    dtype, limit = next(iter(limits.items()))
    if limit[2] not in {"the mean of V", "wrong"}:
        return ""
    other = _shift(caller, dtype, -sign, "all")
    sides = {each: lim[:2] for each, lim in ((sign, limit), (-sign, other)) if lim is not None}
    return clip_of_scores(caller, dtype, sides)


def _limit(
    caller: Caller,
    problem_of: Callable[[int], Problem | None],
    is_wrong: Callable[[CallResult], bool] = lambda trial: trial.wrong,
    *,
    added: tuple[int, ...] = ADDED,
) -> tuple[int, int, str] | None:
    """Return the last constant that is right, the first that is wrong, and what stands there."""
    trials: dict[int, CallResult] = {}
    for each in (added[-1], *added[:-1]):  # what is right at the largest is right at all
        problem = problem_of(each)
        if problem is None or not caller.running():
            return None
        trials[each] = caller.ask_problems([problem])[0]
        if not is_wrong(trials[added[-1]]):
            return None
    wrong = [each for each in added if is_wrong(trials[each])]
    # What is wrong at all scores has another cause: here the wrong ones are all beyond some.
    if min(wrong) == added[0] or len(wrong) < sum(each >= min(wrong) for each in added):
        return None
    last = max(each for each in added if each < min(wrong))
    return last, min(wrong), contents([trials[each] for each in wrong]) or "wrong"


def _one_key(caller: Caller, key: str) -> str:
    """Return by how much the score of one key of many has to be larger, and from how many on."""
    if caller.base.inputs == "self" and "none" not in caller.candidate.offer["attn"]:
        return ""  # the last key is seen by one row alone, the first row sees no other

    many = MANY_OF_BOTH if caller.base.inputs == "self" else MANY

    def problem(dtype: str, added: int, keys: int = many) -> Problem | None:
        return shifted(caller, dtype, float(added), f"{key} key", keys)

    dtypes = _dtypes(caller)
    fewer = problem(dtypes[0], 0, many // FEWER) if dtypes else None
    if fewer is None or caller.seconds_of(fewer) > QUICK:
        return ""
    limits = {name: _limit(caller, partial(problem, name)) for name in dtypes}
    found = {name: limit for name, limit in limits.items() if limit is not None}
    if not found:
        return ""
    by = ", ".join(f"by {low} … {high} in {name}" for name, (low, high, _) in found.items())
    (name, (_, added, text)), *_ = found.items()
    right, wrong = 1, many
    while right + 1 < wrong and caller.running():
        middle = (right + wrong) // 2
        asked = problem(name, added, middle)
        is_wrong = asked is not None and caller.ask_problems([asked])[0].wrong
        right, wrong = (right, middle) if is_wrong else (middle, wrong)
    return (
        f"the output is {text} where the score of the {key} key is larger than all others {by}, "
        f"wherever S > {right}: that key has no part in the maximum that is subtracted"
    )


def _hidden_maximum(caller: Caller) -> Iterator[Effect]:
    """Yield with which masks large scores of hidden keys matter, and the limits of the first.

    Where they have a part in the maximum, visible keys underflow; where they have none, and are not
    hidden before exp, they overflow. Smaller ones change nothing: rows are divided by their sums.
    """
    found: dict[str, list[str]] = {}
    overflows = False
    for kind in _kinds(caller):
        limits = {
            name: _limit(caller, partial(_hidden_key, caller, kind, name), _is_wrong_where_hidden)
            for name in _dtypes(caller)
        }
        shown = [f"by {x[0]} … {x[1]} in {name}" for name, x in limits.items() if x is not None]
        if shown:
            found[kind] = shown
        overflows = overflows or any(
            x is not None and _is_at_overflow(caller, kind, name, x) for name, x in limits.items()
        )
    if found:
        cause, remedy = (
            (EXP_OVERFLOWS, HIDE_FIRST) if overflows else (HIDDEN_IN_MAXIMUM, MASK_FIRST)
        )
        yield Effect(
            f"with {', '.join(found)}, where the score of a hidden key is larger than all visible "
            f"ones {', '.join(next(iter(found.values())))}, the output is wrong: {cause}",
            remedy,
        )


def _is_at_overflow(caller: Caller, kind: str, dtype: str, limit: tuple[int, int, str]) -> bool:
    """Return whether NaN stands from where exp overflows, which is before it underflows to 0.

    Where small numbers are flushed to 0, as XLA does, it underflows at a difference that is less by
    1.4: the whole number between is right where it overflows, and asked.
    """
    right, wrong, content = limit
    largest = float(np.log(np.finfo(dtype).max))
    if content != "NaN" or not right < largest <= wrong:
        return False
    asked = _hidden_key(caller, kind, dtype, int(largest))
    return asked is not None and not _is_wrong_where_hidden(caller.ask_problems([asked])[0])


def _is_wrong_where_hidden(trial: CallResult) -> bool:
    """Return whether a row is wrong that does not see the last key: with causal rules one does."""
    hidden = trial.problem.hidden()[..., -1:]  # (N, H, L, 1)
    return trial.wrong and bool((trial.off & hidden).any())


def _hidden_key(caller: Caller, kind: str, dtype: str, added: int) -> Problem | None:
    """Return a problem whose last key is hidden by a kind of mask, and has the largest score."""
    problem = shifted(caller, dtype, float(added), "last key")
    return None if problem is None else dict(_masked(caller, problem)).get(kind)


def _kinds(caller: Caller) -> list[str]:
    """Return the kinds of masks that hide the last key of a plain problem, or of more."""
    return [name for name, _ in _masked(caller, unmixed_problem(caller.case(**SIZES)))]


def _zeros(caller: Caller) -> Iterator[Effect]:
    """Yield that scores of exactly 0 are taken for hidden ones, always or with some masks."""
    problem = shifted(caller, caller.base.dtype, 0.0, "all") or _orthogonal(caller)
    if caller.ask_problems([problem])[0].wrong:
        if _hides_zeros(caller, problem):
            yield Effect(ZERO, BY_PLACE)
        return
    kinds = [name for name, masked in _masked(caller, problem) if _hides_zeros(caller, masked)]
    if kinds:
        yield Effect(f"with {', '.join(kinds)}: {ZERO}", BY_PLACE)


def _hides_zeros(caller: Caller, problem: Problem) -> bool:
    """Return whether the answer is wrong, and right where keys with a score of 0 are hidden."""
    trial = caller.ask_problems([problem])[0]
    if not trial.wrong:
        return False
    scores = trial.right.stages["masked scores"]
    return _answers_without(trial, (scores == 0) | np.isneginf(scores))


def _zero_keys(caller: Caller) -> Iterator[Effect]:
    """Yield that rows of zeros among the keys are taken for padding, if they are."""
    problem = unmixed_problem(caller.case(**SIZES))
    key, place = np.array(problem.key), problem.key.shape[1] // 2
    key[:, place] = 0
    alike = [n for n in ("query", "key", "value") if getattr(problem, n) is problem.key]
    trial = caller.ask_problems([problem.replace(**dict.fromkeys(alike, key))])[0]
    hidden = np.array(np.broadcast_to(problem.hidden(), problem.weights_shape))
    hidden[..., place] = True
    if trial.wrong and _answers_without(trial, hidden):
        yield Effect(ZERO_KEYS, BY_MASK)


def _answers_without(trial: CallResult, hidden: Array) -> bool:
    """Return whether the answer is right where these keys, (N, H, L, S), are hidden."""
    case = trial.problem.case.replace(attn="bool3d", padding="none")
    mask = hidden.reshape(-1, *hidden.shape[2:])
    changed = trial.problem.replace(case=case, attn_mask=mask, key_padding_mask=None)
    return is_answered(trial, changed)


def _masked(caller: Caller, problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield the problem with each kind of mask that is offered: the last key is hidden, or more."""
    offer, case = caller.candidate.offer, problem.case
    if "causal" in offer["attn"] and case.attn == "none":
        yield "attn=causal", problem.replace(case=case.replace(attn="causal"))
    last = np.arange(case.keys) == case.keys - 1
    if "bool2d" in offer["attn"] and case.attn == "none":
        mask = np.broadcast_to(last, (case.queries, case.keys)).copy()
        yield "attn=bool2d", problem.replace(case=case.replace(attn="bool2d"), attn_mask=mask)
    if "bool" in offer["padding"] and case.padding == "none":
        mask = np.broadcast_to(last, (case.batch, case.keys)).copy()
        changed = case.replace(padding="bool")
        yield "padding=bool", problem.replace(case=changed, key_padding_mask=mask)


def _orthogonal(caller: Caller) -> Problem:
    """Return a problem of one array whose rows are orthogonal: scores are 0 but of a row's own."""
    problem = unmixed_problem(caller.case(**SIZES))
    x = np.zeros_like(problem.query)
    for row in range(x.shape[1]):
        x[:, row, row :: problem.head_dim] = 2
    value = x if problem.value is problem.query else problem.value
    return problem.replace(query=x, key=x, value=value)


def _no_keys(caller: Caller) -> Iterator[Effect]:
    """Yield what stands in rows without any key: 0 is expected, and NaN (0 / 0) is allowed."""
    if "empty" not in caller.candidate.offer["size"] or caller.base.inputs == "self":
        return
    trials: list[CallResult] = caller.ask([caller.case(keys=0)])
    if trials and trials[0].wrong:
        text = contents(trials) or "wrong"
        if text != "NaN":
            yield Effect(
                f"{NO_KEYS} the output is {text}, expected 0", "return 0 where there is no key"
            )
