"""Calls that require a cache of the user's own class: each gets an empty one of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mha_parity.targets.caches.cache_objects import new_caches
from mha_parity.targets.calls.target_call import with_arguments
from mha_parity.targets.convention_base.interpreted import InterpretedCalls
from mha_parity.targets.interpretations.empty_past import OBJECT

if TYPE_CHECKING:
    from mha_parity.targets.calls.target_call import Arguments, Call


class CallsWithCaches(InterpretedCalls):
    """A target that is called by an interpretation, in which a cache may be an object."""

    def layer_call(self, layer: Any, arguments: Arguments, *, training: bool = False) -> Call:
        """Return the call of a layer, or of the function, with the caches that it requires.

        Raises
        ------
        CandidateError
            Nothing in the user's code makes one.

        """
        call = super().layer_call(layer, arguments, training=training)
        wanted = {name for name, form in self.how.roles.states if form == OBJECT}
        if not wanted:
            return call
        named = [p for p in self.call_parameters if p.name in wanted]
        caches = new_caches(named, self.entry(), self.subject, call, arguments.problem)
        call = with_arguments(call, self.call_parameters, caches)
        return replace(call, filled=tuple(caches.values()))
