"""Gradients by a function that stands beside the target, as `backward` beside `forward`.

It is found by its name, in the module of the target. Of its arguments the cotangent is found by
its name, those that are called as the target's are the same, one that is called as the output is
that, and the others are what the target returned beside its output, in their order. What it returns
are gradients of the target's arguments: by their names where its `return` has names like `dq`, or
else in the order of the arguments.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.core.problem import INPUTS
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.source import syntax_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Names of a forward function -> those that its backward function may have.
_NAMES = (
    (re.compile(r"(^|_)forward(?=_|$)"), r"\1backward"),
    (re.compile(r"(^|_)fwd(?=_|$)"), r"\1bwd"),
    (re.compile(r"$"), "_backward"),
    (re.compile(r"$"), "_bwd"),
    (re.compile(r"^"), "backward_"),
)
_COTANGENT = re.compile(
    r"(grad(ient)?|d|g|up(stream)?)_*(o(ut(puts?)?)?|ys?|z|attn\w*|attention\w*|context|ctx|result)?"
    r"|\w*(upstream|cotangent|grad_out\w*|grad_y|output_grad)\w*|do(ut)?",
    re.IGNORECASE,
)
_OUTPUT = re.compile(r"(o|out(puts?)?|y|attn_out|result)(_\w+)?", re.IGNORECASE)
_MARKS = re.compile(r"^(grad(ient)?s?|d)_*|_*grad(ient)?s?$", re.IGNORECASE)


@dataclass(frozen=True)
class BackwardFunction:
    """A function of a cotangent and what a target took and returned, which returns gradients."""

    function: Callable[..., Any]
    takes: tuple[inspect.Parameter, ...]
    returns: tuple[str, ...] = ()

    def has(self, names: Iterable[str]) -> bool:
        """Return whether its `return` names a gradient of one of some arguments."""
        return not {_core(name) for name in names}.isdisjoint(map(_core, self.returns))

    @property
    def name(self) -> str:
        """Its name in the module of the target."""
        return self.function.__name__

    def gradients(
        self, cotangent: Any, given: Mapping[str, Any], output: Any, beside: list[Any]
    ) -> dict[str, Any]:
        """Return gradients by the names of the target's arguments.

        ``given`` are these arguments, ``beside`` what it returned beside its output.

        Raises
        ------
        CandidateError
            Not all of its arguments are known, or no gradient is one of an argument.

        """
        held = list(self._arguments(cotangent, given, output, beside))
        found = self.function(**dict(held))
        if isinstance(found, dict):
            named = list(found.items())
        else:
            several = [*found] if isinstance(found, tuple | list) else [found]
            by_name = self.returns if len(self.returns) == len(several) else ()
            named = list(zip(by_name or given, several, strict=False))
        by_mark = {_core(name): array for name, array in named}
        gradients = {name: by_mark[_core(name)] for name in given if _core(name) in by_mark}
        if not gradients and not isinstance(found, dict):
            gradients = dict(zip(given, (array for _, array in named), strict=False))
        if not gradients:
            raise CandidateError("structure", f"`{self.name}` returns no gradient of an argument.")
        return gradients

    def _arguments(
        self, cotangent: Any, given: Mapping[str, Any], output: Any, beside: list[Any]
    ) -> Iterator[tuple[str, Any]]:
        """Yield what each of its parameters gets."""
        first = next((p.name for p in self.takes if _COTANGENT.fullmatch(p.name)), "")
        rest = [p for p in self.takes if p.name != first and p.name not in given]
        outputs = [p.name for p in rest if _OUTPUT.fullmatch(p.name) and p.default is p.empty]
        rest = [p for p in rest if p.name not in outputs and p.default is p.empty]
        if not first or (rest and len(rest) not in {1, len(beside)}) or (rest and not beside):
            unknown = ", ".join(f"`{p.name}`" for p in rest) or "its cotangent"
            raise CandidateError("structure", f"`{self.name}` takes {unknown}, which is unknown.")
        yield first, cotangent
        yield from ((p.name, given[p.name]) for p in self.takes if p.name in given)
        yield from ((name, output) for name in outputs)
        kept = beside if len(rest) == len(beside) else [tuple(beside)]
        yield from ((p.name, each) for p, each in zip(rest, kept, strict=False))


def pulled_beside(
    backward: BackwardFunction,
    given: Mapping[str, Any],
    cotangent: Any,
    leaves: Mapping[str, str],
    split: Callable[[Any], tuple[Any, list[Any]]],
    *,
    of_one_array: bool,
) -> Callable[[Any], dict[str, Any]]:
    """Return what turns a target's result into gradients, by the keys that ``leaves`` has by name.

    Those of other arguments, as masks, have their names. ``split`` returns the output and what came
    beside it. Where the inputs are one array (``of_one_array``), what is returned for them is
    summed: the parts of its gradient.

    Raises
    ------
    CandidateError
        When it is called: there is no gradient of one of them.

    """

    def pulled(result: Any) -> dict[str, Any]:
        output, beside = split(result)
        named = backward.gradients(cotangent, given, output, beside)
        missing = ", ".join(f"`{name}`" for name in leaves if named.get(name) is None)
        if missing:
            raise CandidateError(
                "structure", f"`{backward.name}` returns no gradient of {missing}."
            )
        more = {name: array for name, array in named.items() if array is not None}
        found = {leaves.get(name, name): array for name, array in more.items()}
        rows = [role for role in INPUTS if role in found]
        if of_one_array and len(rows) > 1:
            found["query"] = sum(found.pop(role) for role in rows)
        return found

    return pulled


def backward_beside(subject: Any) -> BackwardFunction | None:
    """Return the function that stands beside a function and computes its gradients, by its name."""
    module = sys.modules.get(getattr(subject, "__module__", None) or "")
    if module is None or not inspect.isfunction(subject):
        return None
    names = (
        pattern.sub(other, subject.__name__, count=1)
        for pattern, other in _NAMES
        if pattern.search(subject.__name__)
    )
    found = (vars(module).get(name) for name in names)
    for each in found:
        if inspect.isfunction(each) and each is not subject and each.__module__ == module.__name__:
            return BackwardFunction(each, tuple(call_parameters.of_callable(each)), _returned(each))
    return None


def _core(name: str) -> str:
    """Return a name without the mark of a gradient: that of an argument and of its gradient."""
    return _MARKS.sub("", name.lower()).replace("_", "") or name.lower()


def _returned(function: Any) -> tuple[str, ...]:
    """Return the names in a function's last `return` of several names; () where it has none."""
    nodes = ast.walk(syntax_of(function))
    for each in reversed([node for node in nodes if isinstance(node, ast.Return)]):
        held = each.value.elts if isinstance(each.value, ast.Tuple | ast.List) else []
        if held and all(isinstance(name, ast.Name) for name in held):
            return tuple(name.id for name in held if isinstance(name, ast.Name))
    return ()
