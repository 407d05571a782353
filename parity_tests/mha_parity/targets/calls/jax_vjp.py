"""Gradients of functions of JAX's arrays, by ``jax.vjp``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.jax_compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OUT_OF_REACH = "the call does not get {name} as an argument"


class JaxVJP:
    """A function called through ``jax.vjp``: its result, and the gradients of what it is given.

    ``leaves`` are arrays among the arguments, in containers too, or in the function where that is a
    tree of JAX's; ``given`` is the cotangent of the output, found in the result by ``output_of``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        leaves: Mapping[str, Any],
        given: Any,
        output_of: Callable[[Any], Any],
    ) -> None:
        self._function = function
        self._leaves = dict(leaves)
        self._given = given
        self._output_of = output_of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result, and keep the gradients."""
        result, self._pulled = self._both(args, kwargs)(*self._leaves.values())
        return result

    def compiled(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of both ways compiled as one program, and keep the gradients."""
        import jax

        program = compiled(jax.jit(self._both(args, kwargs)).lower(*self._leaves.values()))
        result, self._pulled = program(*self._leaves.values())
        return result

    def _both(self, args: Any, kwargs: Any) -> Callable[..., tuple[Any, Any]]:
        """Return a function of the leaves that returns the result and their gradients."""
        import jax

        held, tree = jax.tree_util.tree_flatten((self._function, args, kwargs))
        places = {id(leaf): place for place, leaf in enumerate(self._leaves.values())}
        among = {id(each) for each in held}
        for name, leaf in self._leaves.items():
            if id(leaf) not in among:
                raise CandidateError("structure", OUT_OF_REACH.format(name=name))

        def of_leaves(*values: Any) -> tuple[Any, Any]:
            given = [values[places[id(x)]] if id(x) in places else x for x in held]
            function, args, kwargs = jax.tree_util.tree_unflatten(tree, given)
            result = function(*args, **kwargs)
            return self._output_of(result), result

        def both(*values: Any) -> tuple[Any, Any]:
            output, pull, result = jax.vjp(of_leaves, *values, has_aux=True)
            given = self._given
            if given.size == output.size:  # an axis of 1 more is no other output
                given = given.reshape(output.shape)
            return result, pull(given.astype(output.dtype))

        return both

    def pulled(self, result: Any) -> dict[str, Any]:
        """Return the gradients by name."""
        del result
        return dict(zip(self._leaves, self._pulled, strict=True))
