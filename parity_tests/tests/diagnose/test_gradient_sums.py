"""What is subtracted in the gradient of the softmax is found by the gradients that it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue.gradients import with_gradients
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.designs.variants import without_masks
from mha_parity.diagnose.experiments.gradients.gradients import (
    NO_FACTOR,
    UNMASKED,
    gradient_effects,
)
from mha_parity.oracle.eval_orders import Prepared
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.oracle.eval_orders import EvalOrder

    Level = Callable[[VJP, Array, Array], Array]


BOOLEAN = ("none", "causal", "bool2d")


def effects(level: Level) -> tuple[str, ...]:
    """Return what is measured of a backward pass that subtracts something else."""
    kind = type("Level", (VJP,), {"subtracted_row_term": level})
    offer = whole_offer() | {"dtype": ("float64",), "gradients": ("yes",)}
    asked = Caller(FunctionCandidate("level", with_gradients(kind)(), offer), lambda: True)
    return tuple(each.text for each in gradient_effects(asked))


def of_tiles(products: Array) -> Array:
    """Return the sums over the four keys that each key is among, or over the last ones."""
    tile = np.arange(products.shape[-1]) // 4
    return np.asarray(products @ (tile[:, None] == tile).astype(products.dtype))


LEVELS: dict[str, tuple[Level, str]] = {
    "heads": (
        lambda s, d, h: (
            0 * d[..., :1] + VJP.subtracted_row_term(s, d, h).sum(axis=1, keepdims=True)
        ),
        "summed over heads",
    ),
    "samples": (
        lambda s, d, h: (
            0 * d[..., :1] + VJP.subtracted_row_term(s, d, h).mean(axis=0, keepdims=True)
        ),
        "averaged over samples",
    ),
    "tiles": (lambda s, d, _: of_tiles(s.p * d), "summed over each tile of 4 keys alone"),
    "diagonal": (
        lambda s, d, _: s.p * d,
        "P * dP of each key alone: dS = P * (1 - P) * dP, the diagonal",
    ),
    "columns": (
        lambda s, d, _: (s.p * d).sum(axis=-2, keepdims=True),
        "summed over the rows, for each key",
    ),
    "mean": (lambda _, d, __: d.mean(axis=-1, keepdims=True), "the mean of dP over the keys"),
}


@pytest.mark.parametrize("name", LEVELS)
def test_a_sum_over_other_axes_is_said(name: str) -> None:
    """One sentence for dQ and dK, which both follow from it."""
    level, said = LEVELS[name]
    (found,) = effects(level)
    assert f"what is subtracted from dP is {said}" in found


@pytest.mark.parametrize(
    "level",
    [
        lambda s, d, h: VJP.subtracted_row_term(s, d, h) ** 2,
        lambda s, d, h: (
            0 * d[..., :1] + VJP.subtracted_row_term(s, d, h).max(axis=1, keepdims=True)
        ),
    ],
    ids=["square", "maximum"],
)
def test_another_number_is_no_sum(level: Level) -> None:
    """What no sum or mean gives stays not understood."""
    (found,) = effects(level)
    assert NO_FACTOR in found
    assert "subtracted" not in found


@pytest.mark.parametrize(("place", "word"), [(-1, "last"), (0, "first")])
@pytest.mark.parametrize(
    ("letters", "named"), [("k", "dK is"), ("v", "dV is"), ("kv", "dK, dV are")]
)
def test_the_one_query_head_of_a_sum_is_said(
    letters: str, named: str, place: int, word: str
) -> None:
    """A backward pass that assigns what it should add leaves one query head of each group."""

    def one_head(self: VJP, which: str, gradient: Array) -> Array:
        size = self.problem.num_heads // (
            self.problem.case.kv_heads_count or self.problem.num_heads
        )
        kept = np.arange(self.problem.num_heads) % size == place % size
        return np.where(kept[:, None, None], gradient, 0) if which in letters else gradient

    kind = type("OneHead", (VJP,), {"summed_over_group": one_head})
    offer = whole_offer() | {"dtype": ("float64",), "gradients": ("yes",)}
    (found,) = gradient_effects(
        Caller(FunctionCandidate("one head", with_gradients(kind)(), offer), lambda: True)
    )
    said = f"with grouped-query heads: gradient {named} that of the {word} query head of each group"
    assert found.text.startswith(said)


class ForgetsMasks(VJP):
    """The backward pass computes the scores again, without the masks."""

    def __init__(self, prepared: Prepared, order: EvalOrder) -> None:
        """Take the masks off."""
        super().__init__(Prepared(without_masks(prepared.problem)), order)


def test_a_backward_pass_without_the_masks_is_said() -> None:
    """One sentence for all masks and all gradients."""
    offer = whole_offer() | {"dtype": ("float64",), "gradients": ("yes",), "attn": BOOLEAN}
    offer |= {"padding": ("none", "bool")}
    candidate = FunctionCandidate("forgets", with_gradients(ForgetsMasks)(), offer)
    (found,) = gradient_effects(Caller(candidate, lambda: True))
    assert f"with padding=bool, attn=causal, attn=bool2d: {UNMASKED}" == found.text


def test_right_sums_are_not_spoken_of() -> None:
    """Right gradients have no effect."""
    assert () == effects(VJP.subtracted_row_term)
