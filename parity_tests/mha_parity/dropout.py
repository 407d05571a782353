"""Dropout in training, judged though two right programs draw different numbers to drop.

With values that show the weights (``unit_values``) the output of a call in training shows what was
dropped; beside it stand the weights P of the same candidate without dropout. Whatever was drawn,

    dropped weight = 0 or P / (1 - p),  about p of them 0;  output = dropped weights V

must hold, and the gradients follow from which were dropped. A layer that drops nothing in training
is not failed: many take ``dropout`` and ignore it. Findings are the bare name of a check that was
asked and held, or ``name: what was seen``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.alike import differ, near, same
from mha_parity.beside import beside
from mha_parity.dropped_gradients import gradients
from mha_parity.making import make
from mha_parity.unit_values import one_hot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.candidate import Answer
    from mha_parity.case import Case
    from mha_parity.conventions.base import Call, Convention
    from mha_parity.features import Offer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

# Unlike 1 - p, so that no confusion of the two stays hidden; exact in binary.
P = 0.25
# The chance at which a right candidate fails in a run, or in the shrinking of one of its failures.
UNLUCKY = 1e-15

CHECKS = {
    "dropout off": "a layer in eval mode drops nothing, also between two trainings",
    "dropout on again": "a layer drops again when training goes on after an evaluation",
    "dropout on the weights": "dropout sets weights to 0, not elements of the output",
    "dropout after the softmax": "dropout takes away from a row's sum, and not from its logits",
    "dropout rescales": "what dropout p keeps is larger by 1/(1 - p)",
    "dropout rate": "dropout p drops the share p of the weights",
    "dropped weights returned": "weights returned in training are those that met the values",
    "dropout of everything": "with dropout 1 the output is its bias alone",
    "gradients with dropout": "the way back drops and rescales what the way forth did",
}


def chance(times: int) -> float:
    """Return the chance of an error that the ``times``-th question may have: all sum to UNLUCKY."""
    return UNLUCKY / (times * (times + 1))


def divergence(share: float) -> float:
    """Return the divergence of a share of dropped weights from p: Chernoff's exponent, per weight.

    Of M weights dropped by chance p, a share as far out as this has a chance below exp(-M d).
    """
    pairs = ((share, P), (1 - share, 1 - P))
    return sum(found * math.log(found / due) for found, due in pairs if found)


def posed(case: Case, offer: Offer, times: int) -> Problem | None:
    """Return a plain problem beside ``case``, with so many weights that p is told from 1 - p."""
    needed = -math.log(chance(times)) / divergence(0.5)
    sized = beside(case, offer, 1, 1, 1)
    if sized is None:
        return None
    blocks = sized.batch * sized.heads_count
    keys = math.ceil(math.sqrt((2 if sized.attn == "causal" else 1) * needed / blocks))
    sized = beside(case, offer, keys, keys, 2 * keys)
    # Weights are returned along another path in some: every second time they are asked for.
    wanted = [each for each in ("per_head", "averaged") if each in offer["weights"]]
    weights = wanted[0] if wanted and times % 2 else case.weights
    return None if sized is None else make(sized.replace(weights=weights))


def judged(bound: Convention, case: Case, times: int) -> Iterator[str]:
    """Yield what is found of a layer with dropout on a problem beside ``case``.

    Raises
    ------
    CandidateError
        The candidate refuses to be asked, or cannot answer.

    """
    problem = posed(case, bound.offer, times)
    if problem is None:
        return
    shown = one_hot(problem, 2)
    asked = bound.with_dropout(shown, P)
    if asked is None:
        return
    clean = _answer(bound, shown, bound.prepare(shown))
    if clean.output.shape != shown.output_shape:
        return
    first, between, again = (_answer(bound, shown, asked(mode)) for mode in (True, False, True))
    yield off(clean.output, between.output)
    if first.output.shape != clean.output.shape or same(clean.output, first.output):
        return
    trained = Trained(shown, clean, first)
    if trained.telling * -math.log(1 - P) > -math.log(chance(times)):
        stuck = same(clean.output, again.output)
        yield f"dropout on again: {STUCK}" if stuck else "dropout on again"
    found = list(_weights(bound, trained, times))
    yield from found
    if not any(": " in each for each in found):  # else dropout 1 would show the same once more
        yield from _everything(bound, problem)


def off(clean: Array, evaluated: Array) -> str:
    """Return what is found of an answer in evaluation, beside that of a layer without dropout."""
    if same(clean, evaluated):
        return "dropout off"
    return f"dropout off: {differ(clean, evaluated)} from a layer without dropout."


STUCK = "nothing is dropped in training after an evaluation, and before it something was."


def _answer(bound: Convention, problem: Problem, call: Call) -> Answer:
    return bound.answered(problem, call, call.make())


@dataclass(frozen=True, eq=False)
class Trained:
    """The answer in training beside the clean one; weights are (N, H, L, S), in float64."""

    problem: Problem
    clean: Answer
    answer: Answer

    @cached_property
    def weights(self) -> Array:
        """P, the weights without dropout."""
        return self._shown(self.clean)[..., 0, :]

    @cached_property
    def twice(self) -> Array:
        """The weights in training as both halves of each head show them, (N, H, L, 2, S)."""
        return self._shown(self.answer)

    @property
    def dropped(self) -> Array:
        """The weights that met the values in training."""
        return self.twice[..., 0, :]

    @property
    def near(self) -> float:
        """How far another order of sums moves a weight."""
        return near(self.clean.output) / (1 - P)

    @cached_property
    def visible(self) -> Array:
        """Which weights are so large that kept ones differ from 0."""
        return np.asarray(self.weights > 4 * self.near)

    @property
    def telling(self) -> int:
        """How many there are of these."""
        return int(self.visible.sum())

    @cached_property
    def gone(self) -> Array:
        """Which weights are 0 in training."""
        return np.asarray(np.abs(self.dropped) <= self.near)

    @property
    def rescaled(self) -> bool:
        """Whether each weight is 0 or larger by 1/(1 - p)."""
        kept = np.abs(self.dropped - self.weights / (1 - P)) <= self.near
        return bool((kept | self.gone).all())

    def _shown(self, answer: Answer) -> Array:
        n, h, length, total = self.problem.weights_shape
        keys = total - self.problem.appended
        blocks = answer.output.astype(np.float64).reshape(n, length, h, 2, keys)
        return np.moveaxis(blocks, 2, 1)


def _weights(bound: Convention, trained: Trained, times: int) -> Iterator[str]:
    """Judge which weights are dropped, and what becomes of the others."""
    apart = np.abs(trained.twice[..., 0, :] - trained.twice[..., 1, :])
    if not (apart <= trained.near).all():
        if bound.drops_as_torch:
            yield (
                "dropout on the weights: two columns of the output that one and the same weights "
                "make are unlike in training; drop weights, and nothing behind them."
            )
        return
    yield "dropout on the weights"
    if not trained.rescaled:
        yield _spoilt(trained)
        return
    yield from ("dropout after the softmax", "dropout rescales", _rate(trained, chance(times)))
    if bound.drops_as_torch:
        yield from _returned(trained)
    yield from gradients(trained.problem, trained.answer, trained.weights, ~trained.gone / (1 - P))


def _spoilt(trained: Trained) -> str:
    """Say what is wrong with weights that are neither 0 nor larger by 1/(1 - p)."""
    sums, due = (each.sum(axis=-1) for each in (trained.dropped, trained.weights))
    rows = np.isfinite(sums)  # a row whose logits are all dropped is NaN
    if (np.abs(sums - due)[rows] <= trained.weights.shape[-1] * trained.near).all():
        return (
            "dropout after the softmax: the weights change in training, and their rows sum to what "
            "they did without dropout; drop weights, and not logits."
        )
    kept = trained.visible & ~trained.gone
    factor = float(np.median((trained.dropped / np.where(kept, trained.weights, 1))[kept]))
    return (
        f"dropout rescales: with dropout {P} kept weights are {factor:.3g} of those without "
        f"dropout, but should be 1/(1 - {P}) = {1 / (1 - P):.3g}."
    )


def _rate(trained: Trained, allowed: float) -> str:
    dropped, telling = int((trained.gone & trained.visible).sum()), trained.telling
    if telling and telling * divergence(dropped / telling) > -math.log(allowed):
        return f"dropout rate: {dropped} of {telling} weights are dropped, but {P} is the dropout."
    return "dropout rate"


def _returned(trained: Trained) -> Iterator[str]:
    """Compare the weights that are returned with those that the output shows."""
    given, keys = trained.answer.weights, trained.weights.shape[-1]
    if given is None:
        return
    due = trained.dropped if given.ndim == trained.dropped.ndim else trained.dropped.mean(axis=1)
    own = given[..., :keys]
    if own.shape != due.shape:
        return
    name = "dropped weights returned"
    alike = same(own, due.astype(own.dtype))
    yield name if alike else f"{name}: {differ(due.astype(own.dtype), own)} from those in use."


def _everything(bound: Convention, problem: Problem) -> Iterator[str]:
    """Ask for dropout 1, where the layer takes it."""
    asked: Callable[[bool], Call] | None = bound.with_dropout(problem, 1.0)
    if asked is None:
        return
    output = _answer(bound, problem, asked(True)).output
    bias = 0 if problem.b_out is None else problem.b_out
    due = np.broadcast_to(np.asarray(bias, dtype=output.dtype), problem.output_shape)
    name = "dropout of everything"
    if same(due, output) or not (bound.drops_as_torch or output.any()):
        yield name
        return
    found = "the output is NaN" if np.isnan(output).any() else differ(due, output)
    yield f"{name}: with dropout 1 {found}, but the output should be its bias alone."
