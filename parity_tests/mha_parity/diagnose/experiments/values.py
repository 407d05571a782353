"""At which scores an output stops being right, though it depends on their differences alone.

One channel of q and k gives every row the same small scores; a second adds a constant to all scores
of a row. The softmax is that of the small scores, whatever is added: where the output is another,
the row's maximum is not subtracted, or something else is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.calls import DTYPES, pose
from mha_parity.diagnose.experiments.places import contents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.calls import Caller, CallResult

SIZES = {"batch": 1, "queries": 5, "keys": 5, "head_dim": 16}  # D = 16: the scale is exactly 1/4
SMALL = (0.0, 1.0, 2.0, 3.0, 4.0)  # of one channel of q and of k: scores 0 … 4
ADDED = (8, 16, 32, 64, 80, 96, 128, 256, 512, 640, 704, 720, 752, 1024, 2048, 4096)
NO_KEYS = "with no keys (S = 0)"
REMEDY = "subtract the largest score of each row before exp; in blocks, from the first block on"


@dataclass(frozen=True)
class ValueEffect:
    """What is wrong at some scores, or without keys, in one dtype."""

    text: str
    remedy: str


def values(caller: Caller) -> Iterator[ValueEffect]:
    """Yield what goes wrong where rows have large scores, very negative ones, or no keys at all."""
    for sign, rows in ((1, "all"), (-1, "all"), (-1, "last")):
        texts = {name: _shift(caller, name, sign, rows) for name in _dtypes(caller)}
        kinds = "; ".join(f"in {name}, {text}" for name, text in texts.items() if text)
        if kinds:
            yield ValueEffect(kinds, REMEDY)
            return
    yield from _no_keys(caller)


def _dtypes(caller: Caller) -> list[str]:
    """Return the dtypes whose exponential is reached by scores that they can hold."""
    return [n for n in DTYPES[:2] if n in caller.candidate.offer["dtype"]]


def _shift(caller: Caller, dtype: str, sign: int, rows: str) -> str:
    """Return from which constant on that is added to scores the output is wrong."""
    trials = []
    for added in ADDED:
        problem = _shifted(caller, dtype, float(sign * added), rows)
        if problem is None or not caller.running():
            return ""
        trials += caller.pose([problem])
    wrong = [added for added, trial in zip(ADDED, trials, strict=False) if trial.wrong]
    # What is wrong at all scores has another cause: here the wrong ones are all beyond some.
    if not wrong or min(wrong) == ADDED[0] or len(wrong) < sum(a >= min(wrong) for a in ADDED):
        return ""
    last = max(a for a in ADDED if a < min(wrong))
    text = contents([t for t in trials if t.wrong]) or "wrong"
    side = "above" if sign > 0 else "below"
    limits = f"{side} {sign * last} … {sign * min(wrong)}"
    besides = " next to rows of small scores" if rows == "last" else ""
    return f"rows whose scores are all {limits}{besides} are {text}"


def _shifted(caller: Caller, dtype: str, added: float, rows: str) -> Problem | None:
    """Return the problem with ``added`` on all scores of all rows or of the last; None without."""
    case = caller.base
    width = case.heads_count * SIZES["head_dim"]
    kinds = {"kdim": width, "vdim": width} if case.projection == "separate" else {}
    problem = pose(caller.case(**SIZES, **kinds, dtype=dtype))
    if problem.query is problem.key:
        return None if problem.w_q is None else _from_one_array(problem, added, rows)
    query, key = np.zeros_like(problem.query), np.zeros_like(problem.key)
    step = problem.head_dim
    query[:, :, ::step] = 1
    key[:, :, ::step] = np.array(SMALL)[:, None]
    query[:, slice(None) if rows == "all" else -1, 1::step] = 4 * added
    key[:, :, 1::step] = 1
    changes: dict[str, object] = {"query": query, "key": key}
    if problem.key is problem.value:
        changes["value"] = key
    for name in ("w_q", "w_k", "b_q", "b_k"):
        array = getattr(problem, name)
        if array is not None:
            eye = array.ndim == 2
            changes[name] = np.eye(*array.shape, dtype=array.dtype) if eye else np.zeros_like(array)
    return problem.replace(**changes)


def _from_one_array(problem: Problem, added: float, rows: str) -> Problem:
    """Return the same scores where q and k are projected from one array, by columns of their own.

    No value has the column that is as large as the constant.
    """
    step = problem.head_dim
    x = np.zeros_like(problem.query)
    x[:, :, ::step] = 1
    x[:, :, 1::step] = np.array(SMALL)[:, None]
    x[:, slice(None) if rows == "all" else -1, 2::step] = 4 * added
    weights = {name: np.zeros_like(getattr(problem, name)) for name in ("w_q", "w_k")}
    for name, columns in (("w_q", (0, 2)), ("w_k", (1, 0))):  # q: 1 and the constant; k: small, 1
        for channel, column in enumerate(columns):
            for head in range(0, len(weights[name]), step):
                weights[name][head + channel, head + column] = 1
    w_v = np.array(problem.w_v)
    w_v[:, 2::step] = 0
    biases = {n: np.zeros_like(b) for n in ("b_q", "b_k") if (b := getattr(problem, n)) is not None}
    value = x if problem.value is problem.query else problem.value
    return problem.replace(query=x, key=x, value=value, w_v=w_v, **weights, **biases)


def _no_keys(caller: Caller) -> Iterator[ValueEffect]:
    """Yield what stands in rows without any key: 0 is expected."""
    if "empty" not in caller.candidate.offer["size"] or caller.base.inputs == "self":
        return
    trials: list[CallResult] = caller.ask([caller.case(keys=0)])
    if trials and trials[0].wrong:
        text = contents(trials) or "wrong"
        yield ValueEffect(
            f"{NO_KEYS} the output is {text}, expected 0",
            "return 0 where there is no key: 0 / 0 is NaN",
        )
