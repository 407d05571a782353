"""Parameters of a call by their names, annotations and defaults: inputs, heads, holders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.argument_meanings import meanings
from mha_parity.targets.static.length_arguments import is_annotated
from mha_parity.targets.static.tile_names import is_required_tile

if TYPE_CHECKING:
    import inspect
    from collections.abc import Sequence

_HEADS = re.compile(r"head|^n?h$|^nh")
_INPUT_HEADS = re.compile(r"^(query|key|value)_heads$")
# What a dictionary of all weights is called.
_PARAMS = re.compile(
    r"^((\w+_)?(params?|parameters)|weights|theta|state|state_dict|sd|variables|p)$"
)
SCALES = frozenset({("head_dim",), ("root",)})
_OF_ROWS = re.compile(
    r"batch(_size)?|bsz|bs|seq_?len|(seq|sequence)_length"
    r"|(hidden|embed|emb|embedding|model)_(dim|size)|d_model|n_embd"
)
MATRIX = "w"  # may hold all weights, or be one packed matrix, which is tried after that


def is_input_of_heads(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is an input with an axis of heads: `query_heads` of no int."""
    given = parameter.default is parameter.empty and not is_annotated(parameter, int)
    return given and bool(_INPUT_HEADS.search(parameter.name.lower()))


def holder(named: Sequence[inspect.Parameter]) -> inspect.Parameter | None:
    """Return the parameter that may hold all weights; `p=0.0` is a probability."""
    kept = [p for p in named if p.default is p.empty or p.default is None]
    held = (p for p in kept if _PARAMS.search(p.name.lower()))
    return next(held, next((p for p in kept if p.name == MATRIX), None))


def is_configuration(parameter: inspect.Parameter) -> bool:
    """Return whether a required parameter is an object with sizes by its name, as `cfg`."""
    wanted = parameter.default is parameter.empty
    return wanted and call_parameters.role(parameter.name, "call") is Role.CONFIG


def counts_heads(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is the number of heads, by its name or its annotation."""
    name = parameter.name.lower()
    if is_input_of_heads(parameter) or names.WINDOW.search(name):
        return False
    if names.PART_OF_HEADS.search(name) or is_required_tile(parameter):
        return False
    if _HEADS.search(name) and not re.search(r"dim|size|emb|mask|weight", name):
        return parameter.default is parameter.empty or isinstance(parameter.default, int)
    wide = meanings(name)[:1] == ("head_dim",)
    return parameter.default is parameter.empty and is_annotated(parameter, int) and not wide


def size_meanings(parameter: inspect.Parameter) -> tuple[str, ...]:
    """Return the meaning of a size that a function requires; () if it is none.

    Of the width of a head, which it may want the scale by, or by its whole name of the rows.
    """
    known = meanings(parameter.name)
    if known[:1] in SCALES:
        return known
    return known[:1] if _OF_ROWS.fullmatch(parameter.name.lower()) else ()


def switched_off(left: Sequence[inspect.Parameter]) -> tuple[tuple[str, str], ...]:
    """Return the switches among required parameters, by their annotation: each is off."""
    found = (p for p in left if is_annotated(p, bool))
    return tuple(
        (p.name, "off") for p in found if call_parameters.role(p.name, "call") is Role.OTHER
    )
