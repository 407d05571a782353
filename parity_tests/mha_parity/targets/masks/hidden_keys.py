"""The experiment on a mask: which keys lose weight when it is passed.

Values are unit vectors, one a key, so that the output shows the weights of every head; all logits
are positive, so that a key also loses where its score is multiplied by 0. What a mask does is read
from the logarithms of the ratios of the weights with it to those without, whatever else the target
does wrong, and compared with what each meaning predicts: a mask applied after the softmax, to one
head or to a neighbouring key still lies nearest to the meaning that it misses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core import head_projections
from mha_parity.core.arrays import softmax, split_heads
from mha_parity.core.candidate import CandidateError
from mha_parity.core.features import AXES, has_one_kv_head
from mha_parity.core.problem import INPUTS
from mha_parity.targets.calls.mask_format import SWITCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.mask_format import MaskFormat
    from mha_parity.targets.convention_base.convention import Convention

BATCH, HEADS, QUERIES, KEYS, HEAD_DIM = 2, 3, 5, 7, 8
MIN_KEYS = 4  # that fewer can be hidden in several ways
MIN_WEIGHT = 1e-7  # of a weight, before its logarithm is taken
FARTHEST = 8.0  # a logarithm of a ratio beyond it says no more
SILENT = 1e-3  # a mask whose effect on all logarithms is smaller has none
SEED = 11


@dataclass(frozen=True, eq=False)
class MaskExperiment:
    """A target, the problem it is asked, and its weights (N, H, L, S) without a mask."""

    convention: Convention
    problem: Problem
    plain: Array

    @classmethod
    def of(
        cls, convention: Convention, layout: str, *, square: bool, inputs: str = ""
    ) -> MaskExperiment:
        """Return the experiment for a layout; ``square``: as many keys as queries."""
        problem = mask_problem(convention, layout, square=square, inputs=inputs)
        return cls._of(convention, problem)

    def of_one_head(self) -> MaskExperiment | None:
        """Return the experiment on a head alone, None where the target has no such calls."""
        case = self.problem.case
        own = self.convention.own_weights is not None
        if own or case.heads_count == 1 or "one" not in self.convention.offer["heads"]:
            return None
        single = make_problem(case.replace(heads_count=1, kv_heads_count=0))
        return self._of(self.convention, with_readable_weights(single))

    @classmethod
    def _of(cls, convention: Convention, problem: Problem) -> MaskExperiment:
        try:
            plain = weights_shown(problem, convention.answer_with(problem, {}).output)
        except CandidateError:  # a mask that is required: the weights as they should be
            plain = unmasked_weights(problem)
        return cls(convention, problem, plain)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """N, H, L, S."""
        n, h, length, keys = self.plain.shape
        return n, h, length, keys

    @property
    def lift(self) -> float:
        """Number that a True adds where it is cast to one; inf where it is not by itself.

        Of TensorFlow's tensors `True * -1e9` is True.
        """
        return 1.0 if self.convention.library.name in {"keras", "tensorflow"} else np.inf

    def weights(self, given: Mapping[str, Any]) -> Array:
        """Return the weights that the output shows when these parameters are passed.

        Raises
        ------
        CandidateError
            The target raised, or returned another shape.

        """
        return weights_shown(self.problem, self.convention.answer_with(self.problem, given).output)

    def answers(self, parameter: Parameter, taken: MaskFormat, **sizes: int) -> bool:
        """Return whether a call of these sizes does not raise: with a switch, or hiding nothing.

        A switch is passed as True.
        """
        problem = make_problem(self.problem.case.replace(**sizes))
        value = True if taken.kind == SWITCH else taken.hiding_nothing(problem)
        return self._answers(problem, {parameter.key: value})

    def answers_without(self, **sizes: int) -> bool:
        """Return whether a call of these sizes without masks does not raise."""
        return self._answers(make_problem(self.problem.case.replace(**sizes)), {})

    def _answers(self, problem: Problem, given: Mapping[str, Any]) -> bool:
        try:
            self.convention.answer_with(problem, given)
        except CandidateError as error:
            return error.severity != "crash"
        return True

    def departs(self, shown: Array) -> bool:
        """Return whether weights are not those of a call without a mask."""
        return bool(np.abs(shown - self.plain).max() > SILENT)

    def effect(self, shown: Array) -> Array:
        """Return the change of the logarithms of all weights, each row's mean taken off."""
        return self.centred(log_ratio(shown, self.plain))

    def centred(self, change: Array) -> Array:
        """Return changes of visible weights without the mean of each row, 0 elsewhere."""
        seen = self.plain > SILENT
        whole = np.broadcast_to(change, self.shape)
        count = np.maximum(seen.sum(axis=-1, keepdims=True), 1)
        mean = np.where(seen, whole, 0.0).sum(axis=-1, keepdims=True) / count
        return np.where(seen, whole - mean, 0.0)

    def hidden(self, axes: tuple[str, ...]) -> Array:
        """Return an asymmetric pattern that varies along these axes, (N, H, L, S).

        Every row has visible and hidden keys whichever of both a True stands for.
        """
        return self._ranks(axes) < self.shape[-1] // 2

    def addends(self, axes: tuple[str, ...]) -> Array:
        """Return numbers from -2 to 2 that vary along these axes, none of them 0, and in no order.

        Shape (N, H, L, S).
        """
        return -1.9 + 4 * self._ranks(axes) / (self.shape[-1] - 1)

    def _ranks(self, axes: tuple[str, ...]) -> Array:
        named = {"N", "H", *axes} if "NH" in axes else {*axes}
        sizes = [n if axis in named else 1 for axis, n in zip("NHLS", self.shape, strict=True)]
        ranks = np.random.default_rng(SEED).random(sizes).argsort(axis=-1)
        return np.broadcast_to(ranks, self.shape)

    def visible_counts(self, axes: tuple[str, ...]) -> Array:
        """Return how many keys are visible, from 2 to S - 1, unlike along these axes."""
        n, h, length, keys = self.shape
        samples, rows = np.arange(n)[:, None], np.arange(length)[None, :]
        if "L" in axes:
            counts = 2 + (2 * samples + rows) % (keys - 2)
        else:
            counts = 2 + np.broadcast_to(3 * samples * ("N" in axes), (n, length)) % (keys - 2)
        return np.broadcast_to(counts[:, None, :], (n, h, length))


def mask_problem(convention: Convention, layout: str, *, square: bool, inputs: str = "") -> Problem:
    """Return the problem of the experiment: unit vectors as values, positive logits.

    ``inputs``: "self" for keys that are the queries, where they could be others.
    """
    offer = convention.offer
    cross = "cross" in offer["inputs"] and inputs != "self"
    square = square or not cross
    case = convention.plain_case().replace(
        layout=layout,
        inputs="cross" if cross else "self",
        batch=1 if layout == "unbatched" else BATCH,
        heads_count=HEADS if "many" in offer["heads"] else 1,
        queries=QUERIES,
        keys=QUERIES if square else KEYS,
        head_dim=HEAD_DIM if "many" in offer["heads"] else 2 * HEAD_DIM,
        v_head_dim=0,
        kv_heads_count=int(has_one_kv_head(offer)),
        dtype=convention.trial_dtype
        or next(dtype for dtype in AXES["dtype"] if dtype in convention.library.dtypes),
        seed=SEED,
    )
    own = convention.own_weights
    if own is not None and own.multiple:
        case = case.in_multiples(own.trial_multiple)
        case = case.replace(head_dim=case.keys)  # the values are unit vectors, one a key
    elif own is not None:
        case = case.replace(**own.sizes)
        fewer = max(case.head_dim, MIN_KEYS)  # the values are unit vectors, one a key
        keys = min(case.keys, fewer)
        case = case.replace(keys=keys, queries=keys if square else min(case.queries, keys - 1))
    return with_readable_weights(make_problem(case))


def with_readable_weights(problem: Problem) -> Problem:
    """Return the problem with unit vectors for values and alike rows for queries and keys.

    Where one array is all three its rows are the unit vectors.
    """
    case, width = problem.case, problem.query.shape[-1]
    rng = np.random.default_rng(SEED)
    common = rng.standard_normal(width)

    def rows(count: int) -> Array:
        spread = 0.5 * rng.standard_normal((case.batch, count, width))
        return np.asarray(common + spread)

    units = np.tile(np.eye(case.keys, case.head_dim), (case.batch, 1, case.heads_count))
    query = rows(case.queries)
    key = query if case.inputs == "self" else rows(case.keys)
    dtype = problem.dtype
    if case.form == "qkv":
        value = units.reshape(case.batch, case.keys, -1)
        if case.projection == "one_array":
            return problem.replace(**dict.fromkeys(INPUTS, value.astype(dtype)))
        arrays = {"query": query, "key": key, "value": value}
        return problem.replace(**{name: a.astype(dtype) for name, a in arrays.items()})
    if case.projection in head_projections.PROJECTIONS:
        return _with_readable_blocks(problem, rng)
    projection = rng.standard_normal((width, width)) / np.sqrt(width)
    if case.kv_heads == "fewer":
        projection = np.tile(projection[: case.head_dim], (case.heads_count, 1))
    flat = key.reshape(-1, width)
    w_v = np.linalg.pinv(flat) @ np.tile(
        np.eye(case.keys, case.head_dim), (case.batch, case.heads_count)
    )
    query, key = query.astype(dtype), query.astype(dtype) if key is query else key.astype(dtype)
    key = query if case.inputs == "self" else key
    w = projection.astype(dtype)
    return problem.replace(query=query, key=key, value=key, w_q=w, w_k=w, w_v=w_v.T.astype(dtype))


def _with_readable_blocks(problem: Problem, rng: np.random.Generator) -> Problem:
    """Return the problem so where each head projects its own channels, all heads and samples alike.

    A head has D channels to tell its keys by.
    """
    case, dtype = problem.case, problem.dtype
    common = rng.standard_normal(case.head_dim)

    def rows(count: int) -> Array:
        own = common + 0.5 * rng.standard_normal((count, case.head_dim))
        return np.tile(own, (case.batch, 1, case.heads_count)).astype(dtype)

    query = rows(case.queries)
    key = query if case.inputs == "self" else rows(case.keys)
    block = rng.standard_normal((case.head_dim, case.head_dim)) / np.sqrt(case.head_dim)
    units = np.linalg.pinv(key[0, :, : case.head_dim].astype(np.float64))
    w_v = (units @ np.eye(case.keys, case.head_dim)).T
    w, w_v = (np.kron(np.eye(case.heads_count), each).astype(dtype) for each in (block, w_v))
    return problem.replace(query=query, key=key, value=key, w_q=w, w_k=w, w_v=w_v)


def weights_shown(problem: Problem, output: Array) -> Array:
    """Return the weights (N, H, L, S) that an output shows.

    Raises
    ------
    CandidateError
        The output has another shape.

    """
    if problem.case.head_dim < problem.case.keys:
        raise CandidateError("structure", f"heads of width {problem.case.head_dim} show no weights")
    if output.shape != problem.output_shape:
        message = f"the output has shape {output.shape}, not {problem.output_shape}"
        raise CandidateError("structure", message)
    case = problem.case
    return split_heads(output.astype(np.float64), case.heads_count)[..., : case.keys]


def unmasked_weights(problem: Problem) -> Array:
    """Return the weights (N, H, L, S) that no mask changes."""
    case = problem.case

    def heads(rows: Array, weight: Array | None) -> Array:
        return split_heads(rows if weight is None else rows @ weight.T, case.heads_count)

    scores = heads(problem.query, problem.w_q) @ heads(problem.key, problem.w_k).swapaxes(-1, -2)
    scores = scores * problem.scale
    if problem.is_causal:
        scores = np.where(np.tri(case.queries, case.keys, dtype=bool), scores, -np.inf)
    return softmax(scores)


def is_causal(weights: Array) -> bool:
    """Return whether weights (N, H, L, S) leave out each key behind its query."""
    return bool((np.triu(np.abs(np.nan_to_num(weights)), k=1) < SILENT).all())


def log_ratio(masked: Array, plain: Array) -> Array:
    """Return the logarithm of the ratio of weights, 0 where one is NaN, within +-FARTHEST."""
    with np.errstate(invalid="ignore"):
        change = np.log(np.maximum(masked, MIN_WEIGHT)) - np.log(np.maximum(plain, MIN_WEIGHT))
    return np.asarray(np.clip(np.nan_to_num(change, nan=0.0), -FARTHEST, FARTHEST))


def cosine(effect: Array, predicted: Array) -> float:
    """Return the cosine of an effect and of what a meaning predicts; 0 where either is none."""
    predicted = np.broadcast_to(predicted, effect.shape)
    sizes = float(np.linalg.norm(effect)), float(np.linalg.norm(predicted))
    if min(sizes) < SILENT:
        return 0.0
    return float((effect * predicted).sum() / (sizes[0] * sizes[1]))


def effect_ratio(effect: Array, predicted: Array) -> float:
    """Return by how much the effect grows with what is predicted, in the least squares."""
    size = float((predicted**2).sum())
    return float((effect * predicted).sum()) / size if size else 0.0
