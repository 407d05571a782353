"""Roles of the parameters of a call: the candidates by names, likeliest first."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.interpretations.empty_past import empty_states
from mha_parity.targets.interpretations.identity_rotations import rotations
from mha_parity.targets.interpretations.parameter_assignment import (
    CONFIGURATION,
    KV_HEADS,
    ParameterAssignment,
)
from mha_parity.targets.interpretations.placeholder_arguments import FILLERS, PLAINEST
from mha_parity.targets.interpretations.weight_arguments import (
    in_dictionary,
    in_order,
    weight_parts,
    weight_readings,
)
from mha_parity.targets.layers.removed_parts import parts_taken_out
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.argument_meanings import meanings, size_of_heads, whole_windows
from mha_parity.targets.static.length_arguments import is_annotated, is_length, is_pair, map_sizes
from mha_parity.targets.static.parameter_kinds import (
    MATRIX,
    counts_heads,
    holder,
    is_configuration,
    is_input_of_heads,
    size_meanings,
    switched_off,
)
from mha_parity.targets.static.signatures import by_letter
from mha_parity.targets.static.tile_names import is_required_tile

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterator, Sequence

    from mha_parity.targets.interpretations.weight_arguments import Records

ROWS = ("query", "key", "value")
_CONTEXT = re.compile(
    r"^(k|keys?|kv|c|h|ctx|cond|context|memory|mem|source|src|y|xa|x_?kv|xv|enc.*|.*context|.*memory"
    r"|key_value.*|encoder_hidden_states|cross.*)$"
)
_VALUE = re.compile(r"^(x_?)?(v|val|values?)$")
_KEY = re.compile(r"^(x_?)?(k|keys?)$")
_LAST_QUERY = re.compile(r"(^|_)(q|query|queries)$")
_LAST_KEY = re.compile(r"(^|_)(k|kv|keys?|key_values?|context|memory)$")
RANDOM = "random"  # what a source of random numbers means
FIRST_ROW = "zero"  # what the number of rows before those of a call means
_FIRST_ROW = re.compile(
    r"^start_?pos(ition)?$|^(pos|offset|(cache|past)_(position|len|length))$"
    r"|^(pos(ition)?|start|seq(uence)?|cache|past|kv)_offset$"
)


def infer_inputs(named: Sequence[inspect.Parameter]) -> tuple[tuple[str, str], ...]:
    """Return which parameters get query, key and value, by their names and order."""
    required = [p.name for p in named if p.default is p.empty]
    optional = [p.name for p in named if p.default is None]
    if len(required) >= len(ROWS):
        return tuple((required[i], ROWS[p]) for i, p in enumerate(by_letter(required[:3])))
    lowered = [name.lower() for name in required]
    if len(required) == 2 and _LAST_KEY.search(lowered[0]) and _LAST_QUERY.search(lowered[1]):
        return (required[0], "key"), (required[1], "query")
    rest = [*required[1:], *optional]
    keys = [n for n in rest if _CONTEXT.match(n.lower()) or _KEY.match(n.lower())]
    if not keys and len(required) == 2:  # two inputs, whatever the second is called
        keys = required[1:]
    values = [name for name in rest if _VALUE.match(name.lower())]
    found = list(zip(required[:1], ROWS, strict=False))
    if keys and (keys[0] in required or not is_key(keys[0]) or values):
        found.append((keys[0], "key"))
    if len(found) == 2 and values:
        found.append((values[0], "value"))
    return tuple(found)


def may_be_keys(named: Sequence[inspect.Parameter]) -> Iterator[tuple[str, bool]]:
    """Yield what defaults to None and may be the keys, and whether its name says that it is.

    A name may say nothing, or `key` where there is no `value`, or of random numbers beside a mode.
    """
    modes = any(p.name in call_parameters.MODES for p in named)
    inputs = filter(is_key, _optional(named, Role.INPUT))
    yield from ((name, not (modes and name == "key")) for name in inputs)
    yield from ((name, False) for name in _optional(named, Role.OTHER))


def _optional(named: Sequence[inspect.Parameter], role: Role) -> Iterator[str]:
    """Yield the names of the parameters of a role that default to None."""
    optional = (p.name for p in named if p.default is None)
    yield from (name for name in optional if call_parameters.role(name, "call", None) is role)


def is_key(name: str) -> bool:
    """Return whether a name is that of keys alone, which have values beside them."""
    return bool(_KEY.match(name.lower()))


def of_layer(
    named: Sequence[inspect.Parameter], *, with_heads: bool = False
) -> Iterator[ParameterAssignment]:
    """Yield the roles of the parameters of a layer's call.

    ``with_heads``: it may get the number of heads, and their width, by whole names of these.
    """
    for rows in (frozenset[str](), *_state_of_a_reader(named)):
        for roles in _of_layer(named, with_heads=with_heads, rows=rows):
            for turned in _with_rotations(roles, of_positions(named, "call")):
                yield from _with_states(turned)


def _state_of_a_reader(named: Sequence[inspect.Parameter]) -> Iterator[frozenset[str]]:
    """Yield what is called a state and may be the queries: the first of two required inputs.

    Of `state, memory` the first reads the second; elsewhere a state is one of earlier calls.
    """
    required = [p for p in named if p.default is p.empty]
    roles = [call_parameters.role(p.name, "call") for p in required]
    if len(required) == 2 and roles[0] is Role.CACHE and roles[1] in _INPUTS:
        yield frozenset({required[0].name})


def _with_rotations(
    roles: ParameterAssignment, names_of: Sequence[str]
) -> Iterator[ParameterAssignment]:
    """Yield roles in which tables of positions are rotations by 0, where a call requires some."""
    left = tuple(name for name in roles.none if name not in names_of)
    if left == roles.none:
        yield roles
    elif left or roles.filler == FILLERS[0]:
        for found in rotations([name for name in roles.none if name in names_of]):
            yield replace(roles, none=left, rotations=found)


def _with_states(roles: ParameterAssignment) -> Iterator[ParameterAssignment]:
    """Yield roles, and the same in which required states of earlier calls hold no row yet."""
    yield roles
    states = [name for name in roles.none if call_parameters.role(name, "call") is Role.CACHE]
    left = tuple(name for name in roles.none if name not in states)
    if states and (left or roles.filler == FILLERS[0]):
        for found in empty_states(states):
            yield replace(roles, none=left, states=found)


def _of_layer(
    named: Sequence[inspect.Parameter], *, with_heads: bool, rows: frozenset[str]
) -> Iterator[ParameterAssignment]:
    """Yield the same with None for positions; ``rows`` are inputs whatever they are called."""
    named = _rows_required([p for p in named if p.name not in call_parameters.MODES])
    required = [p for p in named if with_heads and p.default is p.empty]
    of_heads = {p.name: said for p in required if (said := size_of_heads(p.name))}
    named = [p for p in named if p.name not in of_heads]
    given = [
        (p.name, RANDOM if is_random_source(p.name) else FIRST_ROW)
        for p in named
        if p.default is p.empty and (is_random_source(p.name) or counts_rows_before(p))
    ]
    if given:
        yield from _with_given(named, given)
        return
    height, width = map_sizes([p.name for p in named if p.default is p.empty])
    other = [p for p in named if call_parameters.role(p.name, "call", p.default) not in _INPUTS]
    other = [p for p in other if p.name not in rows]
    named = [p for p in named if p.name not in {height, width}]
    windows = whole_windows(named)
    numbers = {p.name for p in named if is_annotated(p, int)}
    sequences = [p for p in named if p not in other and p.name not in {*windows, *numbers}]
    required = [p for p in sequences if p.default is p.empty]
    if not required:  # the names say nothing: the first of them are inputs
        required = [p for p in named if p.default is p.empty][:1]
        sequences = [*required, *(p for p in sequences if p not in required)]
    found = infer_inputs(sequences)
    if not found:
        return
    left = [p for p in named if p.default is p.empty and p.name not in dict(found)]
    lengths = tuple(p.name for p in left if is_length(p))
    off = switched_off([p for p in left if p.name not in lengths])
    none = tuple(p.name for p in left if p.name not in (*lengths, *dict(off)))
    sized = ParameterAssignment(
        found,
        heads=next((name for name, meaning in of_heads.items() if meaning == "heads"), ""),
        sizes=(*((name, each) for name, each in of_heads.items() if each != "heads"), *off),
        none=none,
        lengths=(*lengths, *filter(None, (height,))),
        pairs=tuple(p.name for p in left if p.name in lengths and is_pair(p)),
        ones=tuple(filter(None, (width,))),
    )
    for filler in FILLERS if none else FILLERS[:1]:
        yield replace(sized, filler=filler)
    if len(found) > 1 and len(required) == 1:
        yield replace(sized, inputs=found[:1])
    if len(found) == len(ROWS) > len(required):  # what is called value may be no rows
        yield replace(sized, inputs=found[:2])


def _rows_required(named: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters, with no default of query, key and value where the query has one.

    `query=None, key=None, value=None` stand before masks, `key=None, query=None` behind the value.
    Behind other rows (`x, query=None`) they are further inputs.
    """
    rows = [p for p in named if p.name.lower() in ROWS]
    optional = [p for p in rows if p.default is None]
    others = any(p.default is p.empty and p not in rows for p in named)
    if others or len(rows) < len(ROWS) or all(p.name.lower() != ROWS[0] for p in optional):
        return list(named)
    return [p.replace(default=p.empty) if p in optional else p for p in named]


def with_optional_masks(named: Sequence[inspect.Parameter]) -> Iterator[ParameterAssignment]:
    """Yield the roles of a layer's call in which masks that default to None hide nothing instead.

    Some layers shape a mask without a look at whether there is one.
    """
    may = tuple(_optional(named, Role.MASK))
    every = [*of_layer(named)] if may else []  # several, where tables of positions are required
    for each, filler in (*product(every[:1], FILLERS[1:]), *product(every[1:], PLAINEST)):
        yield replace(each, none=(*each.none, *may), always=may, filler=filler)


def with_optional_rotations(
    named: Sequence[inspect.Parameter],
) -> Iterator[ParameterAssignment]:
    """Yield the roles of a layer's call in which positions that default to None turn nothing.

    Some layers rotate without a look at whether there is a table.
    """
    may = {*_optional(named, Role.POSITIONS)}
    if may:
        required = [p.replace(default=p.empty) if p.name in may else p for p in named]
        yield from of_layer(required)


def with_random_keys(named: Sequence[inspect.Parameter]) -> Iterator[ParameterAssignment]:
    """Yield the roles of a layer's call whose second parameter, `key`, is one of random numbers."""
    required = [p.name for p in named if p.default is p.empty]
    if "jax" in sys.modules and required[1:2] == ["key"]:
        yield from _with_given(named, [("key", RANDOM)])


def _with_given(
    named: Sequence[inspect.Parameter], given: Sequence[tuple[str, str]]
) -> Iterator[ParameterAssignment]:
    """Yield the roles of a layer's call in which some parameters have meanings already."""
    names_given = dict(given)
    for roles in of_layer([p for p in named if p.name not in names_given]):
        yield replace(roles, sizes=(*roles.sizes, *given))


def counts_rows_before(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is the number of rows before those of a call, as decoding has."""
    whole = is_annotated(parameter, int) or type(parameter.default) is int
    by_name = parameter.name.lower().startswith("start")
    return (whole or by_name) and bool(_FIRST_ROW.search(parameter.name.lower()))


def is_random_source(name: str) -> bool:
    """Return whether a name is that of a source of random numbers; `key` may be that of keys."""
    return meanings(name)[:1] == (RANDOM,) and name != "key"


def is_one_by_default(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a scale of the scores by its name, and 1 where none is given.

    Kernels have it that want theirs of the caller, as those of JAX: then each call gets torch's.
    """
    scales = call_parameters.role(parameter.name, "call", parameter.default) is Role.SCALE
    return scales and type(parameter.default) in {int, float} and parameter.default == 1


_INPUTS = frozenset({Role.INPUT, Role.OTHER, Role.SIZE, Role.WEIGHTS})


def function_roles(
    named: Sequence[inspect.Parameter],
    keys: Sequence[str] = (),
    unpacked: Records = (),
) -> Iterator[ParameterAssignment]:
    """Yield the roles of the parameters of a function of inputs and weights, likeliest first.

    ``keys`` are strings that it reads, which may be those of a dictionary of weights, and
    ``unpacked`` names that may be those of a tuple of weights, or classes with such fields.
    """
    config = [(p.name, CONFIGURATION) for p in named if is_configuration(p)]
    others = [p for p in named if not is_configuration(p)]
    for each in _of_others(others, keys, unpacked):
        for turned in _with_rotations(each, of_positions(named, "call")):
            for roles in _with_states(turned):
                yield replace(roles, sizes=(*roles.sizes, *config)) if config else roles


def _of_others(
    named: Sequence[inspect.Parameter], keys: Sequence[str], unpacked: Records
) -> Iterator[ParameterAssignment]:
    """Yield the same where no parameter is a configuration."""
    params = holder(named)
    if params is not None and (entries := [*in_dictionary(keys), *in_order(unpacked)]):
        for roles, held in product(
            _of_others([p for p in named if p is not params], (), ()), entries
        ):
            if not roles.weights:
                yield replace(roles, weights=((params.name, held),))
        if params.name != MATRIX:
            return
    required = [p for p in named if p.default is p.empty]
    of_keys = [p for p in named if meanings(p.name)[:1] == KV_HEADS and not is_input_of_heads(p)]
    number = next((p for p in named if p not in of_keys and counts_heads(p)), None)
    drawn = [p for p in required if is_random_source(p.name)]
    sized = [p for p in required if size_meanings(p) and p is not number]
    unscaled = [p for p in named if is_one_by_default(p)]
    sized += [*of_keys, *drawn, *unscaled]
    tiled = [p for p in required if is_required_tile(p)]
    weighed = [p for p in required if weight_parts(p.name) and p not in (*sized, *tiled)]
    rest = [p for p in required if p not in (*weighed, *sized) and p is not number]
    other = [p for p in rest if call_parameters.role(p.name, "call", p.default) in _NEVER_INPUT]
    windows = whole_windows(rest)
    sequences = [p for p in rest if p not in (*other, *tiled) and p.name not in windows]
    kept = call_parameters.kept_rows(other) if len(sequences) == 1 + len(weighed) == 1 else []
    sequences, other = [*sequences, *kept], [p for p in other if p not in kept]
    optional = [p for p in named if p.default is None and not is_no_input(p)]
    found = infer_inputs([*sequences, *optional])
    if not found:
        return
    taken = {name for name, _ in found}
    extra = [p for p in sequences if p.name not in taken]
    said = {names.parts(p.name) for p in sequences[: len(names.ROWS)]}
    rows = said == {(part,) for part in names.ROWS}  # query, key and value by name
    # X, A, B, C: weights in torch's order.
    if extra and not weighed and not rows and len(sequences) in {4, 5}:
        found, weighed, extra = ((sequences[0].name, "query"),), sequences[1:], []
    if not weighed and len(sequences) in {2, 3} and found and len(found) < len(sequences):
        extra = []
    off = switched_off([*other, *extra])
    none = tuple(p.name for p in (*other, *extra) if p.name not in dict(off))
    heads = number.name if number is not None else ""
    # A default may stay: `num_groups` may count the query heads that share a key head.
    left = {p.name: ("",) for p in sized if p not in required}
    known = {p.name: size_meanings(p) or meanings(p.name) for p in sized}
    known |= {p.name: (RANDOM,) for p in drawn}
    known |= {p.name: ("", INVERSE) for p in unscaled}
    each = [
        [(name, m) for m in dict.fromkeys((*known[name], *left.get(name, ())))] for name in known
    ]
    chosen = [tuple(size for size in sizes if size[1]) for sizes in product(*each)]
    for filler in FILLERS if none else FILLERS[:1]:
        for given, sizes in product(weight_readings([p.name for p in weighed]), chosen):
            yield ParameterAssignment(
                found,
                given,
                heads,
                none,
                filler,
                sizes=(*sizes, *off),
                lengths=tuple(sorted(windows)),
                pairs=tuple(p.name for p in rest if p.name in windows and is_pair(p)),
                tiles=tuple(p.name for p in tiled if p not in other),
            )


INVERSE = "inverse_root"  # what a factor of the scores gets, 1 / sqrt(head_dim)
_NEVER_INPUT = frozenset({
    Role.MASK, Role.LENGTHS, Role.SCORE_BIAS, Role.CAUSAL, Role.DROPOUT, Role.CACHE, Role.RETURN,
    Role.POSITIONS,
})  # fmt: skip


def is_no_input(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter of a call is a mask, a switch or a cache by its name: no input."""
    return call_parameters.role(parameter.name, "call", parameter.default) in _NEVER_INPUT


def of_positions(named: Sequence[inspect.Parameter], of: str) -> tuple[str, ...]:
    """Return the required parameters that speak of positions: torch's layer knows none.

    Those of a call are of no use where a part is taken out: they get None then, as trials show.
    """
    if of == "call" and parts_taken_out():
        return ()
    required = [p for p in named if p.default is p.empty and not counts_rows_before(p)]
    return tuple(p.name for p in required if call_parameters.role(p.name, of) is Role.POSITIONS)
