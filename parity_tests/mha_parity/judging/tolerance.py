"""Measure the order spread: the errors of legitimate evaluation orders on one problem.

Orders are computed only as they are needed. A wider order spread can only allow more, so judging
may stop as soon as what the orders computed so far allow is enough; most right answers need one.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

import numpy as np

from mha_parity.cases.rng import numpy_dtype
from mha_parity.oracle.eval_orders import EVAL_ORDERS, NARROW, EvalOrder, Prepared, attend_in_order
from mha_parity.oracle.torch_answers import active_record, kept_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output_groups import JudgedArray
    from mha_parity.oracle.reference import Reference


class OrderSpread:
    """The orders of one problem, computed when asked for."""

    def __init__(
        self,
        problem: Problem,
        orders: Sequence[EvalOrder] = EVAL_ORDERS,
        answers: Iterable[tuple[Array, Array]] = (),
    ) -> None:
        """Start with the output and the weights of the first orders, if they are known."""
        self._problem = problem
        self._orders = tuple(orders)
        self._answers = list(answers)
        self._narrow_samples: dict[int, tuple[Array, Array]] = {}

    @classmethod
    def of(
        cls, problem: Problem, reference: Reference, orders: Sequence[EvalOrder] = EVAL_ORDERS
    ) -> Self:
        """Return the cached order spread of a problem in these orders."""
        kept = _KEPT.setdefault(reference, {})
        return kept.setdefault(tuple(orders), cls(problem, orders))  # type: ignore[return-value]  # no subclasses

    @cached_property
    def _prepared(self) -> Prepared:
        return Prepared(self._problem)

    def answers(self) -> Iterator[tuple[Array, Array]]:
        """Yield output and weights of one order after the other."""
        for index, order in enumerate(self._orders):
            if index == len(self._answers):
                self._answers.append(attend_in_order(self._prepared, order))
            yield self._answers[index]

    def errors(self, quantity: JudgedArray) -> Iterator[Array]:
        """Yield, order after order, the largest finite error so far in each group."""
        if quantity.whole and self._orders == EVAL_ORDERS and active_record() is not None:
            kind = f"{SPREAD}{quantity.name}"
            yield from kept_result(kind, self._problem, lambda: self._all_errors(quantity))[
                "errors"
            ]
        else:
            yield from self._errors(quantity)

    def _all_errors(self, quantity: JudgedArray) -> dict[str, Array]:
        """Return what ``errors`` yields, as a record has it."""
        return {"errors": np.array(list(self._errors(quantity)))}

    def _errors(self, quantity: JudgedArray) -> Iterator[Array]:
        worst = np.zeros(quantity.scale.shape)
        for answer in self.answers():
            worst = np.maximum(worst, _finite(quantity.error(quantity.of(*answer))))
            yield worst

    def all_lost(self, quantity: JudgedArray, places: Array) -> bool:
        """Return whether at none of the places an order gives a number where the reference does."""
        if (places & ~quantity.finite).any():
            return False
        return not any((places & np.isfinite(quantity.of(*each))).any() for each in self.answers())

    def narrow_of(self, quantity: JudgedArray, sample: int) -> Array:
        """Return the errors in one sample of an order that sums in 16 bits; 0 for wider dtypes."""
        if self._problem.dtype.itemsize > 2:
            return np.zeros(quantity.scale.shape[1:])
        alone = quantity.of_sample(sample)
        if sample not in self._narrow_samples:
            prepared = self._prepared.of_sample(sample)
            self._narrow_samples[sample] = attend_in_order(prepared, NARROW)
        errors = _finite(alone.error(alone.of(*self._narrow_samples[sample])))
        return np.asarray(errors[0])

    @cached_property
    def _coarse(self) -> list[tuple[Array, Array]]:
        """The answers of orders in bfloat16, to the problem rounded to it."""
        problem, dtype = self._problem, numpy_dtype("bfloat16")
        floats = {
            each.name: array.astype(dtype)
            for each in fields(problem)
            if isinstance(array := getattr(problem, each.name), np.ndarray)
            and array.dtype == problem.dtype
        }
        with np.errstate(all="ignore"):  # what passes its range is no number there
            prepared = Prepared(problem.replace(**floats))
            return [attend_in_order(prepared, order) for order in EVAL_ORDERS[:COARSE_ORDERS]]

    def coarse(self, quantity: JudgedArray) -> Array:
        """Return the largest error in each group of products of 8 bits summed in float32.

        Infinity where such an answer is no number, and in 16-bit dtypes, of which it is one.
        """
        if self._problem.dtype.itemsize <= 2:
            return np.full(quantity.scale.shape, np.inf)
        worst = np.zeros(quantity.scale.shape)
        for answer in self._coarse:
            error = quantity.error(quantity.of(*answer))
            worst = np.maximum(worst, np.where(np.isfinite(error), error, np.inf))
        return worst


SPREAD = "orders "  # what the kind of result of a record begins with
COARSE_ORDERS = 4  # of the orders, those that differ most
_KEPT: WeakKeyDictionary[Reference, dict[tuple[EvalOrder, ...], OrderSpread]] = WeakKeyDictionary()


def _finite(errors: Array) -> Array:
    return np.asarray(np.where(np.isfinite(errors), errors, 0))
