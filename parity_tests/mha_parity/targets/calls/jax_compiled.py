"""Calls of functions of JAX's arrays under ``jax.jit``.

JAX compiles each operation for each size where a call is made as it stands, twenty of an attention,
and one program under ``jax.jit``, as its users call it. Every operation is rounded to its dtype as
by itself: XLA would leave roundings to 16 bits out otherwise. A program runs once or twice, so that
it is compiled without optimisations, and its loops in one piece and without the compiler's second
form for them, in a fifth of the time.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OPTIONS = {
    "xla_allow_excess_precision": False,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
UNKNOWN = re.compile(r"No such compile option: '(\w+)'")  # of XLA; other versions have others
PROGRAMS = 64  # that are kept
PLAIN = (int, float, str, bool, type(None))


class CompiledCalls:
    """Keeps the last programs: calls of the same function and sizes follow, with other numbers."""

    def __init__(self) -> None:
        # Of each the tree, the sizes, what is no array, and the program.
        self._known: deque[tuple[Any, Any, list[Any], Any]] = deque(maxlen=PROGRAMS)

    def __call__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the result of a call that is compiled as one program.

        JAX's arrays are traced wherever they stand, in containers and in a function that is a tree
        too; all else is as in the call itself. Raises whatever tracing raises.
        """
        import jax

        held, tree = jax.tree_util.tree_flatten((function, tuple(args), dict(kwargs)))
        traced = [place for place, each in enumerate(held) if isinstance(each, jax.Array)]

        def of_arrays(*arrays: Any) -> Any:
            given = list(held)
            for place, array in zip(traced, arrays, strict=True):
                given[place] = array
            function, args, kwargs = jax.tree_util.tree_unflatten(tree, given)
            return function(*args, **kwargs)

        arrays = [held[place] for place in traced]
        sizes = [(each.shape, each.dtype) for each in arrays]
        rest = [each for each in held if not isinstance(each, jax.Array)]
        alike = (each for each in self._known if each[:2] == (tree, sizes))
        known = next((each for each in alike if _are_alike(each[2], rest)), None)
        if known is None:
            program = compiled(jax.jit(of_arrays).lower(*arrays))
            known = tree, sizes, rest, program
            self._known.appendleft(known)
        return known[3](*arrays)


def compiled(lowered: Any) -> Any:
    """Return the program of what ``jax.jit`` lowered; options that XLA does not know are left out.

    Raises whatever compiling raises.
    """
    while True:
        try:
            return lowered.compile(compiler_options=dict(OPTIONS))
        except RuntimeError as error:
            unknown = UNKNOWN.search(str(error))
            if unknown is None or OPTIONS.pop(unknown[1], None) is None:
                raise


def _are_alike(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether the parts that are no arrays are equal numbers or names, or the same."""
    return all(
        a is b or (isinstance(a, PLAIN) and type(a) is type(b) and a == b)
        for a, b in zip(first, second, strict=True)
    )


call_compiled = CompiledCalls()
