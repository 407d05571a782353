"""Calls of a function with its gradients by another function, which stands beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.caches.required_caches import CallsWithCaches
from mha_parity.targets.calls.canonical_layout import one_by_one
from mha_parity.targets.calls.target_call import with_same_numbers
from mha_parity.targets.calls.vjp import DIFFERENTIATE
from mha_parity.targets.static.companion_backward import (
    BackwardFunction,
    backward_beside,
    pulled_beside,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.convention_base.fitted_gradients import Pull


class CallsBeside(CallsWithCaches):
    """A target that is called by an interpretation; of a function also the one beside it."""

    # The function of its module that computes its gradients, where small calls show that it does.
    beside: BackwardFunction | None = None

    def settle_backward(self, case: Case) -> None:
        """Take the function beside the target for its gradients, where a small call shows some."""
        self.beside = backward_beside(self.subject) if self.how.construction is None else None
        if self.beside is None:
            return
        try:
            self(make_problem(case.replace(gradients="yes")))
        except CandidateError as error:
            name = f"`{self.beside.name}`"
            why = str(error).removeprefix(f"{name} ").rstrip(".")
            remark = f"{name} was not asked for gradients: it {why}."
            self.remarks, self.beside = (*self.remarks, remark), None

    def lacks_gradients_of(self, masks: Iterable[str]) -> bool:
        """Return whether what computes its gradients returns none of these masks.

        A `backward` of its own returns those of its rows, and leaves those of its weights.
        """
        if self.beside is not None:
            return not self.beside.has(masks)
        return self.library.name not in DIFFERENTIATE

    @property
    def gradient_facts(self) -> dict[str, bool]:
        """Whether its weights are converted, and whether a function beside it has gradients."""
        converted = self.takes_torchs and self.converts
        return {"converted": converted, "beside": self.beside is not None}

    def pull_of(self, problem: Problem) -> Callable[[Call, Any], Pull] | None:
        """Return what computes gradients by the function beside the target; None without one."""
        return None if self.beside is None else partial(self._pulled, problem, self.beside)

    def _pulled(self, problem: Problem, backward: BackwardFunction, call: Call, given: Any) -> Pull:
        names = [p.name for p in self._named[1]]
        passed = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
        weights_of = [name for name, _ in self.how.roles.weights if name in passed]
        keys = {name: f"weight {at}" for at, name in enumerate(weights_of)}
        leaves = {name: role for name, role in self.how.roles.inputs if name in passed} | keys

        def split(result: Any) -> tuple[Any, list[Any]]:
            several = one_by_one(result)
            place = self.output_of(problem, several)[0] if self.place is None else self.place
            return several[place], [each for at, each in enumerate(several) if at != place]

        alike = problem.query is problem.key is problem.value  # projected rows are three arrays
        same = replace(backward, function=with_same_numbers(call.function, backward.function))
        return pulled_beside(same, passed, given, leaves, split, of_one_array=alike)
