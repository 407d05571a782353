"""Problems whose scores are set: small ones, and a constant that is added to some of them.

One channel of q and k gives every row the same small scores; a second adds a constant to all scores
of a row, or the small scores have it at one key.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.calls import unmixed_problem

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller

SIZES = {"batch": 1, "queries": 5, "keys": 5, "head_dim": 16}  # D = 16: the scale is exactly 1/4
CHANNELS = 3  # that a head needs for these scores
ROWS = {"all": slice(None), "last": slice(-1, None)}  # of queries whose scores are all shifted
SMALL = (0.0, 1.0, 2.0, 3.0, 4.0)  # of one channel of k, that of q is 1: scores 0 … 1


def shifted(
    caller: Caller, dtype: str, added: float, rows: str, keys: int = SIZES["keys"]
) -> Problem | None:
    """Return the problem with ``added`` on scores; None where none can be made.

    ``rows``: on all scores of "all" rows or of the "last", or on those of the "last key" or of the
    "first key".
    """
    case = caller.base
    width = case.heads_count * SIZES["head_dim"]
    kinds = {"kdim": width, "vdim": width} if case.projection == "separate" else {}
    inputs = _inputs(caller)
    rows_too = {"queries": keys} if inputs == "self" else {}
    problem = unmixed_problem(
        caller.case(**SIZES | {"keys": keys} | rows_too, **kinds, dtype=dtype, inputs=inputs)
    )
    if problem.head_dim < CHANNELS or problem.key.shape[1] != keys:
        return None  # a layer of narrower heads, or of other lengths
    small, root = np.resize(SMALL, keys), math.sqrt(problem.head_dim)
    if rows.endswith("key"):
        small[0 if rows.startswith("first") else -1] += root * added
    if problem.query is problem.key:
        return None if problem.w_q is None else _from_one_array(problem, added, rows, small)
    query, key = np.zeros_like(problem.query), np.zeros_like(problem.key)
    step = problem.head_dim
    query[:, :, ::step] = 1
    key[:, :, ::step] = small[:, None]
    if at := ROWS.get(rows):
        query[:, at, 1::step] = root * added
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


def _inputs(caller: Caller) -> str:
    """Return the inputs of the base; keys of their own where nothing projects one array to both."""
    asked = caller.base.inputs
    if asked != "self" or caller.base.projection != "none":
        return asked
    offered = caller.candidate.offer["inputs"]
    return next((each for each in ("distinct", "cross") if each in offered), asked)


def _from_one_array(problem: Problem, added: float, rows: str, small: Array) -> Problem:
    """Return the same scores where q and k are projected from one array, by columns of their own.

    No value has a column that is as large as the constant. The columns that q and k leave out are
    drawn: values that are alike would give the same output with any weights.
    """
    step = problem.head_dim
    x = np.array(problem.query)
    x[:, :, ::step] = 1
    x[:, :, 1::step] = small[:, None]
    x[:, :, 2::step] = 0
    if at := ROWS.get(rows):
        x[:, at, 2::step] = math.sqrt(step) * added
    weights = {name: np.zeros_like(getattr(problem, name)) for name in ("w_q", "w_k")}
    for name, columns in (("w_q", (0, 2)), ("w_k", (1, 0))):  # q: 1 and the constant; k: small, 1
        for channel, column in enumerate(columns):
            for head in range(0, len(weights[name]), step):
                weights[name][head + channel, head + column] = 1
    w_v = np.array(problem.w_v)
    w_v[:, 1::step] = w_v[:, 2::step] = 0
    biases = {n: np.zeros_like(b) for n in ("b_q", "b_k") if (b := getattr(problem, n)) is not None}
    value = x if problem.value is problem.query else problem.value
    return problem.replace(query=x, key=x, value=value, w_v=w_v, **weights, **biases)
