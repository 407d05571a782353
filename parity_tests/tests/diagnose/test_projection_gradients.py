"""Gradients of projections that are of other rows, or transposed, are said so in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue.gradients import with_gradients
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.gradients.gradients import NO_FACTOR, gradient_effects
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


def read_as_rows(heads: Array) -> Array:
    """Return (N, H, L, D) in the order in which its memory lies, as (N, L, H D)."""
    samples, count, rows, width = heads.shape
    return np.ascontiguousarray(heads).ravel().reshape(samples, rows, count * width)


def transposed(found: dict[str, Array], *names: str) -> dict[str, Array]:
    """Return gradients, those of some square weights transposed."""
    return found | {name: found[name].T for name in names if name in found}


MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "output": (
        {"merged_output": lambda s: read_as_rows(s.heads)},
        "gradient of out_proj.weight is taken of heads that are not merged",
    ),
    "inputs": (
        {"merged": lambda _, heads: read_as_rows(heads)},
        "gradients dQ, dK and dV are not merged before the projections",
    ),
    "transposed": (
        {"gradients": lambda s, d: transposed(VJP.gradients(s, d), "out_proj.weight")},
        "gradient of out_proj.weight is the transpose of the right one",
    ),
    "parts": (
        {"weight_gradient": lambda _, rows, inputs: inputs.T @ rows},
        "gradient of each part of in_proj_weight is the transpose of the right one",
    ),
}


def effects(steps: dict[str, object]) -> tuple[str, ...]:
    """Return what is measured of a backward pass with other steps."""
    offer = whole_offer() | {"dtype": ("float64",), "gradients": ("yes",)}
    candidate = FunctionCandidate("steps", with_gradients(type("Steps", (VJP,), steps))(), offer)
    return tuple(each.text for each in gradient_effects(Caller(candidate, lambda: True)))


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_said_once(name: str) -> None:
    """Whatever gradients follow from it."""
    steps, said = MISTAKES[name]
    (found,) = effects(steps)
    assert found.startswith(said)


def test_nothing_is_said_of_the_right_ones() -> None:
    """Nor of a step that is written otherwise."""
    assert () == effects({"weight_gradient": lambda _, rows, inputs: (inputs.T @ rows).T})


def test_what_none_of_them_gives_keeps_its_sentence() -> None:
    """Kills the acceptance of the first mistake. The rows of another sample have no factor."""
    (found,) = effects({"merged_output": lambda s: read_as_rows(s.heads)[::-1]})
    assert NO_FACTOR in found
