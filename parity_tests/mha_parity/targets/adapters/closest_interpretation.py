"""Lines for the author of an adapter: what was recognised of a target that no reading fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.candidate import TargetError
from mha_parity.targets.adapters.expressions import Expressions
from mha_parity.targets.adapters.template_lines import SIZES, of_one_head, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.interpretations.interpretation import Interpretation


def reading_lines(error: Exception, library: str) -> tuple[str, ...]:
    """Return what the reading says that a refusal calls the nearest; nothing of other refusals."""
    how: Interpretation | None = error.nearest if isinstance(error, TargetError) else None
    if how is None:
        return ()
    lines = _lines(how, Expressions(library), library)
    return tuple(lines if "many" in how.heads else map(of_one_head, lines))


def _lines(how: Interpretation, write: Expressions, library: str) -> Iterator[str]:
    """Yield the sizes that a layer is built from, what is an input, and which weight is which."""
    made = how.construction
    if made is not None:
        known = (f"{n}={SIZES[m]}" for n, m in made.meanings if m in SIZES)
        yield f"layer = Target({', '.join(known)})"
    form = "state_dict[{}] = {}" if library == "torch" else "{}: {}"
    yield from (line.removeprefix("    ") for line in write.assignments(how.slots, form))
    yield from (f"{name} = {write.of_argument(each)}" for name, each in how.roles.weights)
    yield from () if how.layout != "unbatched" else ("of each sample:",)
    yield from (f"{name} = {rows_of(how, role)}" for name, role in how.roles.inputs)
