"""Measurements of a candidate from outside, within what it offers.

With values that are one-hot, the output *is* the attention weights: v_j = e_j gives
output_i = sum_j P_ij e_j. From the weights follow row and column sums (over which axis the softmax
runs), and log-ratios (the effective scale, a mask, a hidden bias); changed inputs show who
influences whom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.candidate import CandidateError
from mha_parity.case import Case
from mha_parity.making import make
from mha_parity.wrong import Attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.candidate import Candidate
    from mha_parity.features import Offer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

SEED = 77
SIZES = {"batch": 3, "queries": 4, "keys": 5, "head_dim": 7}
EXACT = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2, "bfloat16": 2e-1}


@dataclass(frozen=True, eq=False)
class Reading:
    """Attention weights read from a candidate's output, beside the right ones.

    Shapes (N, H, L, S); ``dots`` are the right q k^T without scale or masks.
    """

    problem: Problem
    weights: Array
    right: Array
    dots: Array

    @property
    def near(self) -> float:
        """What counts as equal in the problem's dtype."""
        return EXACT[self.problem.case.dtype]


def plain_case(offer: Offer, **changes: object) -> Case:
    """Return a small case of the plainest offered features, in the most exact offered dtype."""
    fixed = {
        axis: values[0]
        for axis, values in offer.items()
        if axis not in {"heads", "size", "regime", "memory", "kv_heads", "v_dim"}
    }
    fixed["dtype"] = next(d for d in EXACT if d in offer["dtype"])
    sizes = dict(SIZES)
    if fixed["inputs"] == "self":
        sizes["queries"] = sizes["keys"]
    if fixed["layout"] == "unbatched":
        sizes["batch"] = 1
    sizes["heads_count"] = 3 if "many" in offer["heads"] else 1
    if fixed["projection"] == "separate":
        sizes |= {"kdim": 23, "vdim": 25}
    if offer["kv_heads"] == ("fewer",):
        sizes |= {"heads_count": 4, "kv_heads_count": 2}
    return Case(seed=SEED, **{**sizes, **fixed, **changes})  # type: ignore[arg-type]  # fields vary


def one_hot(problem: Problem) -> Problem:
    """Return the problem with value heads v_j = e_j, and nothing added to the output."""
    n, s, _ = problem.value.shape
    heads, width = problem.num_kv_heads, problem.v_head_dim
    hot = np.tile(np.eye(s, width, dtype=problem.dtype), (n, 1, heads))
    changes: dict[str, object] = {}
    if problem.w_v is None:
        return problem.replace(value=hot)
    rows = problem.value
    if rows.shape[2] != hot.shape[2]:
        rows = np.zeros_like(rows)
        rows[..., : hot.shape[2]] = hot
    else:
        rows = hot
    changes["w_v"] = np.eye(hot.shape[2], rows.shape[2], dtype=problem.dtype)
    for name in ("b_v", "b_out"):
        bias = getattr(problem, name)
        changes[name] = None if bias is None else np.zeros_like(bias)
    if problem.w_out is not None:
        changes["w_out"] = np.eye(len(problem.w_out), dtype=problem.dtype)
    same = {name: rows for name in ("query", "key") if getattr(problem, name) is problem.value}
    return problem.replace(**changes, **same, value=rows)


def read(candidate: Candidate, case: Case) -> Reading | None:
    """Return the weights that the candidate mixes the values with, or None without an answer."""
    problem = one_hot(make(case))
    output = _output(candidate, problem)
    if output is None:
        return None
    n, h, length, total = problem.weights_shape
    own = total - problem.appended
    heads = output.reshape(n, length, h, problem.v_head_dim).swapaxes(1, 2)
    right = Attention(problem)
    right.answer()
    q, k = right.stages["query heads"], right.stages["key heads"]
    dots = (q @ k.swapaxes(-1, -2))[..., :own]
    return Reading(problem, heads[..., :own], right.stages["weights"][..., :own], dots)


def _output(candidate: Candidate, problem: Problem) -> Array | None:
    try:
        output = candidate(problem).output
    except CandidateError:
        return None
    shaped = output.shape == problem.output_shape
    return np.asarray(output, dtype=np.float64) if shaped else None


def measure(candidate: Candidate, running: Callable[[], bool] = lambda: True) -> tuple[str, ...]:
    """Return what the probes find odd, each as a sentence with numbers; nothing odd: nothing."""
    return tuple(_findings(candidate, running))


def _findings(candidate: Candidate, running: Callable[[], bool]) -> Iterator[str]:
    reading = read(candidate, plain_case(candidate.offer))
    if reading is None:
        yield "the candidate does not answer the plainest problem that it offers"
        return
    yield f"it first departs from torch at: {stage(candidate, reading)}"
    for probe in (sums, scales, hidden_cells):
        yield from probe(reading)
    if running():
        yield from channels(candidate)
    if running():
        yield from samples(candidate)
    if running():
        yield from rows(candidate)


def stage(candidate: Candidate, reading: Reading) -> str:
    """Return the first stage at which candidate and right answer part."""
    found = (look(candidate, reading) for look in (_in_weights, _in_features, _after_weights))
    nowhere = "nowhere in plain problems: only with particular sizes, values or features"
    return next((name for name in found if name), nowhere)


def _in_weights(_: Candidate, reading: Reading) -> str | None:
    """Return the stage of plain problems that the weights themselves show."""
    if not _off(reading):
        return None
    if _sums_off(reading):
        return "softmax (its rows do not sum to 1)"
    slopes, misfit = slope(reading)
    if slopes is None or misfit > math.sqrt(reading.near):
        return "projection, split or scores of q and k"
    return "scale" if np.abs(slopes - reading.problem.scale).max() > reading.near else "softmax"


def _in_features(candidate: Candidate, _: Reading) -> str | None:
    """Return the feature with which the weights depart."""
    names = {
        "padding": "mask",
        "attn": "mask",
        "bias_kv": "appended keys",
        "bias": "biases of q, k",
    }
    names["zero_attn"] = names["bias_kv"]
    for axis, name in names.items():
        for value in candidate.offer[axis]:
            reading = None if value in {"none", "no"} else _try(candidate, {axis: value})
            if reading is not None and _off(reading):
                return f"{name} ({axis}={value})"
    return None


def _after_weights(candidate: Candidate, _: Reading) -> str | None:
    """Return the stage behind the weights at which plain problems depart."""
    offered = candidate.offer["out_proj"]
    if _departs(candidate, {"out_proj": offered[0]}):
        return "projection of v, mixing, merge or output projection"
    if "general" in offered and _departs(candidate, {"out_proj": "general"}):
        return "output projection"
    return None


def _off(reading: Reading) -> bool:
    return bool(np.abs(reading.weights - reading.right).max(initial=0) > reading.near)


def _try(candidate: Candidate, changes: dict[str, object]) -> Reading | None:
    return read(candidate, plain_case(candidate.offer, **changes))


def _departs(candidate: Candidate, changes: dict[str, object]) -> bool:
    problem = make(plain_case(candidate.offer, **changes))
    output = _output(candidate, problem)
    if output is None:
        return False
    right = np.asarray(Attention(problem).answer().output, dtype=np.float64)
    scale = max(1.0, float(np.abs(right).max(initial=0)))
    return bool(np.abs(output - right).max(initial=0) > 10 * EXACT[problem.case.dtype] * scale)


def _sums_off(reading: Reading) -> bool:
    return bool(np.abs(reading.weights.sum(axis=-1) - 1).max(initial=0) > 10 * reading.near)


def sums(reading: Reading) -> Iterator[str]:
    """Say over which axis the weights sum to 1, where that is not the keys."""
    if not _sums_off(reading):
        return
    weights, near = reading.weights, 10 * reading.near
    names = {
        "each column (over the queries)": weights.sum(axis=-2),
        "each cell over the heads": weights.sum(axis=1),
        "each cell over the samples": weights.sum(axis=0),
        "each query over heads and keys": weights.sum(axis=(1, 3)),
        "each head's whole matrix": weights.sum(axis=(2, 3)),
    }
    for name, total in names.items():
        if total.size and np.abs(total - 1).max() <= near:
            yield f"weights sum to 1 in {name}, but should in each row (over the keys)"
            return
    row = weights.sum(axis=-1)
    yield f"rows of weights sum to {row.min():.4g} ... {row.max():.4g}, but should to 1"


def slope(reading: Reading) -> tuple[Array | None, float]:
    """Return the effective scale of each head from log-ratios, and how ill a line fits.

    log(P_ij / P_i0) = scale (q_i k_j - q_i k_0), whatever the softmax divides by.
    """
    weights = reading.weights
    if weights.size == 0 or weights.shape[-1] < 2 or (weights <= 0).any():
        return None, math.inf
    logs = np.log(weights)
    left = (logs - logs[..., :1]).swapaxes(0, 1).reshape(weights.shape[1], -1)
    right = (reading.dots - reading.dots[..., :1]).swapaxes(0, 1).reshape(left.shape)
    slopes = (left * right).sum(axis=1) / (right * right).sum(axis=1)
    rest = np.abs(left - slopes[:, None] * right).max()
    return slopes, float(rest / max(float(np.abs(left).max()), 1e-300))


def scales(reading: Reading) -> Iterator[str]:
    """Say the effective scale, and which size it is made of."""
    slopes, misfit = slope(reading)
    if slopes is None:
        yield "some weights are zero or negative, so that no scale can be read"
        return
    due, near = reading.problem.scale, math.sqrt(reading.near)
    if misfit > near:
        yield (
            f"log-ratios of the weights are not proportional to q k^T (misfit {misfit:.2g}): "
            "q, k or their split differ, or something is added to the scores"
        )
    elif np.ptp(slopes) > near:
        yield f"each head has its own scale: {', '.join(f'{s:.4f}' for s in slopes)}"
    elif abs(slopes[0] - due) > near * due:
        found = float(slopes.mean())
        meaning = "; ".join(named_sizes(reading.problem, found))
        known = f"; {meaning}" if meaning else ""
        yield f"effective scale {found:.4f}, expected {due:.4f} = 1/sqrt(head_dim){known}"


def named_sizes(problem: Problem, found: float) -> Iterator[str]:
    """Yield the formulas in the sizes of the problem that give the number found."""
    case = problem.case
    sizes = {
        "d_model": case.embed_dim, "num_heads": case.heads_count, "head_dim": case.head_dim,
        "S": case.keys, "L": case.queries, "N": case.batch, "64": 64,
    }  # fmt: skip
    for name, size in sizes.items():
        for text, value in (
            (f"1/sqrt({name})", size**-0.5),
            (f"1/{name}", 1 / size),
            (f"sqrt({name})", size**0.5),
            (f"ln 2/sqrt({name})", math.log(2) / size**0.5),
        ):
            if abs(value - found) < 1e-4 * found:
                yield f"{found:.4f} = {text}"
    if abs(found - 1) < 1e-4:
        yield "the scores are not scaled"


def hidden_cells(reading: Reading) -> Iterator[str]:
    """Say which keys get no weight though they should."""
    lost = (np.abs(reading.weights) < 1e-12) & (reading.right > 1e-6)
    if not lost.any():
        return
    always = lost.all(axis=(0, 1))
    length, keys = always.shape
    shapes = {
        "keys after the query (a causal mask nobody asked for)": np.triu(always * 0 + 1, 1),
        "the key at the query's own place": np.eye(length, keys),
        "the last key": np.arange(keys) + 0 * always == keys - 1,
        "the first key": np.arange(keys) + 0 * always == 0,
    }
    for name, pattern in shapes.items():
        if np.array_equal(always, pattern.astype(bool)):
            yield f"hidden without reason: {name}"
            return
    yield f"{int(lost.sum())} of {lost.size} weights are 0, but should not be"


def channels(candidate: Candidate) -> Iterator[str]:
    """Say which output channels a channel of v reaches, where that is not its own."""
    problem = make(plain_case(candidate.offer))
    if problem.num_kv_heads != problem.num_heads or problem.w_out is not None:
        return
    first = _output(candidate, problem)
    if first is None:
        return
    width = problem.num_heads * problem.v_head_dim
    for channel in (1, width // 2, width - 1):
        second = _output(candidate, _negated(problem, channel))
        if second is None:
            return
        moved = np.flatnonzero(np.abs(second - first).max(axis=(0, 1)) > EXACT[problem.case.dtype])
        if moved.tolist() != [channel]:
            shown = ", ".join(map(str, moved[:6])) + (" ..." if len(moved) > 6 else "")
            yield f"channel {channel} of v reaches output channels {shown or 'none'}"
            return


def _negated(problem: Problem, channel: int) -> Problem:
    """Return the problem with one channel of v negated."""
    name = "value" if problem.w_v is None else "w_v"
    array = getattr(problem, name).copy()
    at = (..., channel) if problem.w_v is None else (channel,)
    array[at] *= -1
    changes = {name: array}
    if problem.b_v is not None:
        changes["b_v"] = problem.b_v.copy()
        changes["b_v"][channel] *= -1
    return problem.replace(**changes)


def samples(candidate: Candidate) -> Iterator[str]:
    """Say whether one sample reaches the answer to another."""
    problem = make(plain_case(candidate.offer))
    if problem.case.batch < 2:
        return
    moved = _moved(candidate, problem, np.arange(problem.case.batch) == 0, axis=0)
    if moved is not None and moved[1:].any():
        yield f"changing sample 0 changes the answers to samples {np.flatnonzero(moved).tolist()}"


def rows(candidate: Candidate) -> Iterator[str]:
    """Say whether one query row reaches the answer to another."""
    problem = make(plain_case(candidate.offer))
    if problem.query is problem.key:
        return
    moved = _moved(candidate, problem, np.arange(problem.case.queries) == 1, axis=1)
    if moved is not None and np.flatnonzero(moved).tolist() != [1]:
        yield f"changing query row 1 changes output rows {np.flatnonzero(moved).tolist()}"


def _moved(candidate: Candidate, problem: Problem, where: Array, axis: int) -> Array | None:
    """Return which samples (0) or rows (1) of the output move when inputs change there."""
    cells = where[:, None, None] if axis == 0 else where[None, :, None]
    names = ("query", "key", "value") if axis == 0 else ("query",)
    changed: dict[int, Array] = {}
    changes: dict[str, object] = {}
    for name in names:
        array = getattr(problem, name)
        changes[name] = changed.setdefault(id(array), np.where(cells, -array, array))
    first = _output(candidate, problem)
    second = _output(candidate, problem.replace(**changes))
    if first is None or second is None:
        return None
    others = tuple(i for i in range(3) if i != axis)
    return np.asarray(np.abs(second - first).max(axis=others) > EXACT[problem.case.dtype])
