"""Calls of a layer that is built already, and of copies of it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from mha_parity.targets.calls.target_call import Arguments, Call, target_errors
from mha_parity.targets.convention_base.convention import Convention
from mha_parity.targets.loading.callables import layer_inside
from mha_parity.targets.static.documented_scale import UNSCALED, documents_unscaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.built_layer import BuiltLayer

CALL = "call."  # how the keys of the parameters of a call begin


class InstanceCalls(Convention):
    """A convention that calls layers, new ones or one that is built already.

    ``instance`` is that one: problems with its weights go to it, others to copies.
    """

    instance: BuiltLayer | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of constructor and call; of a layer that is built already, of the call."""
        found = super().parameters
        return found if self.instance is None else tuple(p for p in found if p.key.startswith(CALL))

    @abstractmethod
    def build(self, problem: Problem, arguments: Arguments, *, dropout: float = 0.0) -> Any:
        """Return a layer that holds the problem's weights."""

    @abstractmethod
    def load(self, layer: Any, problem: Problem, arguments: Arguments) -> None:
        """Set the weights of a layer to the problem's."""

    @abstractmethod
    def layer_call(self, layer: Any, arguments: Arguments) -> Call:
        """Return the call of a layer on the problem of ``arguments``."""

    @property
    @abstractmethod
    def takes_dropout(self) -> bool:
        """Whether the constructor takes a probability of dropout."""

    @property
    def unscaled(self) -> bool:
        """Whether its class documents that scores are not scaled: its queries' weights are then."""
        return documents_unscaled(self.subject)

    @property
    def scale_remarks(self) -> tuple[str, ...]:
        """The remark on scores that are documented to be unscaled."""
        return (UNSCALED,) if self.unscaled else ()

    def call_of(self, layer: Any, problem: Problem) -> Call:
        """Return the call of a layer on a problem, whatever weights it has."""
        return self.layer_call(layer, Arguments(problem, self.library))

    def named_parameters(self, layer: Any) -> dict[str, Any]:
        """Return the parameters of a module by name, of a compiled one those of what it is of."""
        return dict(layer_inside(layer).named_parameters())

    def owned(self, problem: Problem) -> bool:
        """Return whether a problem is that of a layer that is built already."""
        return self.instance is not None and self.instance.own.are_of(problem)

    def of_instance(self, arguments: Arguments) -> Any:
        """Return the layer that is built already, a copy where a problem has other weights.

        None where there is none.

        Raises
        ------
        CandidateError
            No copy can have these weights.

        """
        if self.instance is None:
            return None
        if self.owned(arguments.problem):
            return self.instance.called
        return self._given(self.instance.copied(), arguments)

    def _given(self, copy: Any, arguments: Arguments) -> Any:
        """Return a copy of the layer with a problem's weights."""
        assert self.instance is not None  # noqa: S101  (a copy is one of it)
        self.instance.require_holdable(arguments.problem)
        with target_errors():
            self.load(layer_inside(copy), arguments.problem, arguments)
        self.instance.require_loaded(copy, arguments.problem)
        return copy

    def call_after_loading(
        self, problem: Problem, earlier: Problem, ask: Callable[[Call], object] = Call.make
    ) -> Call | None:
        """Return the call of a layer that answered ``earlier`` before it got its weights.

        A layer that is built already is not asked for that: it has its weights.
        """
        other_length = earlier.case.queries != problem.case.queries
        if self.instance is not None or (self.of_one_length and other_length):
            return None
        before, arguments = (Arguments(each, self.library) for each in (earlier, problem))
        layer = self.build(earlier, before)
        ask(self.layer_call(layer, before))
        with target_errors():
            self.load(layer, problem, arguments)
        return self.layer_call(layer, arguments)

    def dropping(self, problem: Problem, p: float) -> Any | None:
        """Return a layer that has a problem's weights and drops; None where there is none.

        Of a layer that is built already it is a copy, in which dropout above 0 is ``p``.
        """
        arguments = Arguments(problem, self.library)
        if self.instance is None:
            return self.build(problem, arguments, dropout=p) if self.takes_dropout else None
        copy = self.instance.dropping(p)
        return copy if copy is None or self.owned(problem) else self._given(copy, arguments)
