"""The reference gradients: torch autograd in float64, met by a second one in NumPy.

Where the problem is in float64 the reference is the second one in long double, met by torch's.

A row that sees no key makes all of torch's gradients NaN on the pinned path (pytorch#41508). Such a
row has no gradient to give: the reference leaves it out, and is then the second oracle's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import mha_torch
from mha_parity.cases.generate import cotangent
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.oracle.backward import backward
from mha_parity.oracle.error_bound import ErrorModel, error_model, smallest_number
from mha_parity.oracle.reference import AGREEING_ROUNDINGS
from mha_parity.oracle.torch_answers import torch_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference


GRADIENTS = "gradients"  # the kind of result of a record


@dataclass(frozen=True, eq=False, slots=True)
class ReferenceGradient:
    """The right gradient of one array, and what rounding can do to it."""

    value: Array
    limit: Array


def reference_gradients(problem: Problem, reference: Reference) -> dict[str, ReferenceGradient]:
    """Return the reference gradients by the name of their array.

    Raises
    ------
    mha_torch.OraclesDisagreeError
        Torch and the second oracle differ by more than rounding
        explains.

    """
    given = cotangent(problem)
    found = backward(problem, reference, given, error_model(problem.dtype))

    def met_by_torch() -> dict[str, Array]:
        own = {name: each.value for name, each in found.items()}
        unseen = np.asarray(problem.masked_rows()).any()
        by_torch = {} if unseen else torch_gradients(problem, given)
        require_agreement(problem, reference, given, own, by_torch)
        return by_torch

    by_torch = torch_result(GRADIENTS, problem, met_by_torch)
    extended = problem.dtype == np.float64
    return {
        name: ReferenceGradient(
            each.value if extended else by_torch.get(name, each.value), each.error
        )
        for name, each in found.items()
    }


def torch_gradients(problem: Problem, given: Array) -> dict[str, Array]:
    """Return what torch autograd gives in float64."""
    if problem.case.form == "mha":
        return mha_torch.gradients(
            problem.query,
            problem.key,
            problem.value,
            problem.state(),
            given,
            num_heads=problem.num_heads,
            add_zero_attn=problem.add_zero_attn,
            key_padding_mask=problem.key_padding_mask,
            attn_mask=problem.attn_mask,
            is_causal=problem.is_causal,
        )
    return _torch_core(problem, given)


def _torch_core(problem: Problem, given: Array) -> dict[str, Array]:
    """Return the gradients of attention on projected Q, K, V; masks are given as one float mask."""
    found = mha_torch.sdpa_gradients(
        split_heads(problem.query, problem.num_heads),
        split_heads(problem.key, problem.num_kv_heads),
        split_heads(problem.value, problem.num_kv_heads),
        split_heads(given, problem.num_heads),
        attn_mask=np.where(problem.hidden(), -np.inf, problem.additive()),
        scale=problem.given_scale,
        enable_gqa=problem.num_kv_heads != problem.num_heads,
    )
    rows = {name: merge_heads(found[name]) for name in ("query", "key", "value")}
    return rows | problem.mask_sums(found["attn_mask"])


def require_agreement(
    problem: Problem,
    reference: Reference,
    given: Array,
    own: Mapping[str, Array],
    by_torch: Mapping[str, Array],
) -> None:
    """Raise where the oracles differ by more than rounding in float64 explains."""
    tolerance = AGREEING_ROUNDINGS * float(np.finfo(np.float64).eps)
    differing = [
        name
        for name, other in by_torch.items()
        if not (np.abs(other - own[name]) <= tolerance * np.abs(other).max(initial=0)).all()
    ]
    if not differing:
        return
    twice = ErrorModel(2.0**-52, 2.0**-52, smallest_number(np.dtype(np.float64)))
    limits = backward(problem, reference, given, twice)
    for name in differing:
        if not (np.abs(by_torch[name] - own[name]) <= limits[name].error).all():
            raise mha_torch.OraclesDisagreeError(
                f"gradient of {name}: torch autograd and NumPy differ by "
                f"{np.abs(by_torch[name] - own[name]).max():.3g}, which rounding does not explain."
            )
