"""Refinements of an interpretation that fits: lengths, optional weights, the order of channels."""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets.calls.weights_from_torch import torch_taker
from mha_parity.targets.interpretations.interpretation import ALONG_ONE_AXIS
from mha_parity.targets.interpretations.placeholder_arguments import FILLERS
from mha_parity.targets.interpretations.roles import is_no_input, may_be_keys
from mha_parity.targets.interpretations.try_interpretations import (
    MISSHAPED,
    SMALL,
    WIDTH_FIRST,
    Search,
    trial_problem,
)
from mha_parity.targets.interpretations.weight_arguments import weight_readings
from mha_parity.targets.layers.build_layer import plain_lists
from mha_parity.targets.layers.weights import with_width_first
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.argument_meanings import LayerSizes, meanings
from mha_parity.targets.static.call_parameters import role

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.parameter_assignment import ParameterAssignment
    from mha_parity.targets.interpretations.try_interpretations import Ask, InterpretationResult
    from mha_parity.targets.layers.constructor_arguments import Construction
    from mha_parity.targets.layers.weights import WeightArgument

# What is the largest length by its name: a call without masks may need none.
_LARGEST = re.compile(
    r"max_?\w*(seq|len|pos|tok|context|ctx)|(seq|len|pos|tok|context|ctx)\w*_?max"
)
LONGEST_ASKED = 1024  # a longer default is a bound that few cases reach
ALL_WIDTH_FIRST = WIDTH_FIRST.format("split and merged")
PERMUTED = (
    "the heads take every H-th channel of {}: channel d * H + h there is channel h * D + d of "
    "torch's layer, in whose order its weights compute something else; it was judged with weights "
    "in its own."
)
# What a configuration gives, as the report calls it.
VALUES = {
    "width": "embed_dim", "heads": "num_heads", "kv_heads": "the number of key heads",
    "length": "the length or more", "window": "twice that",
    "odd_window": "one more than twice that", "bias": "True where a case has biases",
    "off": "False", "on": "True", "dropout": "0.0", "zero": "0", "device": "'cpu'", "none": "None",
    "root": "sqrt(head_dim)", "inverse_root": "1 / sqrt(head_dim)",
}  # fmt: skip
TORCHS_NAMES = frozenset({"in_proj_weight", "q_proj_weight"})  # weights that torch's layer has too


def along_one_axis(
    best: InterpretationResult, search: Search, *, plane: bool
) -> InterpretationResult:
    """Return the fit along one axis of a grid of positions, where the grid itself fits less.

    Layers of graphs and of blocks attend along the last axis of positions alone, and layers of
    videos and of bodies' joints along the first. Of a ``plane``, of a height and a width, that one
    alone is no attention over all of it.
    """
    if best.exact and best.interpretation.arrangement != "grid":
        return best
    grids = [
        each.interpretation
        for each in search.trials
        if each.interpretation.arrangement == "grid" and not each.raised
    ]
    # Of a prime number of positions a grid is a single column, along which each of them attends.
    found = [] if best.exact and grids else [best]
    planes = Search(search.ask, search.dtype, base=SMALL.replace(queries=6, keys=8))
    along = [each for each in ALONG_ONE_AXIS if not (plane and each == "second_axis")]
    for how, arrangement in itertools.product(grids, ("grid", *along)):
        found.append(planes.tried(replace(how, arrangement=arrangement)))
        if found[-1].exact:
            return found[-1]
    if best.interpretation.arrangement != "grid":
        return best  # of wrong answers others may come nearer to attention by chance
    answered = [each for each in found if not each.raised] or [best]
    return max(answered, key=lambda each: round(each.correlation, 6))


def with_samples(fit: InterpretationResult, search: Search) -> InterpretationResult:
    """Return an inexact fit as one of rows (N, L, E), where these are answered sample by sample.

    Of wrong answers those in another layout may come nearer to attention by chance.
    """
    how = fit.interpretation
    usual = replace(how, layout="batch_first", arrangement="rows")
    if fit.exact:
        return _with_a_mask_of_samples(fit, usual, search)
    if how == usual or not how.parts:
        return fit
    problem = trial_problem(usual, "self", search.dtype, search.base)
    rows = problem.query.copy()
    rows[1:] += 1
    changed = problem.replace(query=rows, key=rows, value=rows)
    try:
        first, other = (search.ask(usual, each).output for each in (problem, changed))
    except CandidateError:
        return fit
    alone = first.shape == problem.output_shape and np.array_equal(first[0], other[0])
    return search.tried(usual) if alone else fit


def _with_a_mask_of_samples(
    fit: InterpretationResult, usual: Interpretation, search: Search
) -> InterpretationResult:
    """Return the fit of one sample as one of several, where a required mask has a shape for that.

    Judged of one sample alone, a mask that reaches other samples or heads would not be seen.
    """
    if fit.interpretation.layout != "unbatched" or not usual.roles.none:
        return fit
    for filler in FILLERS:
        found = search.tried(replace(usual, roles=replace(usual.roles, filler=filler)))
        if found.exact:
            return found
    return fit


def with_keys(
    fit: InterpretationResult, named: Sequence[inspect.Parameter], search: Search
) -> InterpretationResult:
    """Return the fit of one input with a further one as the keys, if it has these.

    A right answer shows it, or its name says so where calls are answered: what raises there and is
    called `key` means something else.
    """
    how = fit.interpretation
    roles = how.roles
    if how.construction is None or not how.parts or fit.causal or len(roles.inputs) != 1:
        return fit
    for name, is_named in may_be_keys(named):
        given = replace(roles, inputs=(*roles.inputs, (name, "key")))
        found = search.tried_with(replace(how, roles=given), "cross")
        if found.exact or (is_named and not found.raised):
            return replace(fit, interpretation=found.interpretation)
    return fit


def with_channels_permuted(
    fit: InterpretationResult, subject: object, search: Search
) -> InterpretationResult:
    """Return the fit with weights in the order in which a layer's heads take its channels.

    Where all projections are the layer's own, and named as it pleases, heads that are split into
    every H-th channel, and merged so, are torch's up to one permutation. Split in one order and
    merged in another, they contradict themselves: that is for the judge.
    """
    how = fit.interpretation
    own = how.construction is not None and {*names.ROWS, "out"} <= how.parts
    as_torch = any(slot.path in TORCHS_NAMES for slot in how.slots) or torch_taker(subject)
    if fit.missed != ALL_WIDTH_FIRST or not own or as_torch:
        return fit
    found = search.tried(replace(how, slots=tuple(map(with_width_first, how.slots))))
    return found if found.exact else fit


def with_optional(
    fit: InterpretationResult, named: Sequence[inspect.Parameter], search: Search
) -> InterpretationResult:
    """Return the fit with weights of a function that default to None, where a call then answers.

    Their names say what they are: whether they are used so is for the judge.
    """
    how = fit.interpretation
    roles = with_optional_weights(how.roles, named)
    if roles is None or how.construction is not None:
        return fit
    found = search.tried(replace(how, roles=roles))
    return fit if found.raised else replace(fit, interpretation=found.interpretation)


def with_optional_weights(
    roles: ParameterAssignment, named: Sequence[inspect.Parameter]
) -> ParameterAssignment | None:
    """Return the roles in which what is called after a projection gets its weight or bias.

    None where nothing is left at None that is, or where it is called as what is passed already.
    """
    held = dict(roles.weights)
    passed = _projections(held.values())
    optional = [
        p.name
        for p in named
        if p.default is None
        and p.name not in roles.filled
        and names.is_part(p.name)
        and not is_no_input(p)
    ]
    if not held or not optional:
        return None
    for given in weight_readings([*held, *optional]):
        found = dict(given)
        more = {name: replace(found[name], optional=True) for name in optional}
        said = _projections(more.values())
        alike = all(found[name] == each for name, each in held.items())
        if alike and not said & passed and len(said) == sum(len(e.parts) for e in more.values()):
            return replace(roles, weights=(*roles.weights, *more.items()))
    return None


def _projections(given: Iterable[WeightArgument]) -> set[tuple[str, bool]]:
    """Return the projections that have an array, each with whether it is the bias."""
    return {(part, each.bias) for each in given for part in each.parts}


def with_lengths(
    fit: InterpretationResult, named: Sequence[inspect.Parameter], ask: Ask, dtype: str
) -> InterpretationResult:
    """Return the fit with the largest lengths that the layer is built for, and no other number."""
    made = fit.interpretation.construction
    if made is None or not fit.exact:
        return fit
    fit = _of_unknown_name(fit, made, ask, dtype)
    for name, default in _default_lengths(made, named):
        longer = _search(ask, dtype, default + 1)
        fit = replace(fit, interpretation=_without_tile(fit.interpretation, name, longer))
    return _of_its_rule(fit, named, ask, dtype)


def _of_its_rule(
    fit: InterpretationResult, named: Sequence[inspect.Parameter], ask: Ask, dtype: str
) -> InterpretationResult:
    """Return the fit as a layer of one length, where its causal rule is right at that length alone.

    Some layers keep a mask of the largest length, and do not cut it.
    """
    how, square = fit.interpretation, Search(ask, dtype, SMALL.replace(keys=SMALL.queries))
    made = how.construction
    switches = [p.name for p in named if p.default is False and _is_causal(p)]
    if made is None or made.longer_by is not None or not made.has("length") or not switches:
        return fit
    others = tuple(each for each in made.meanings if each[0] != switches[0])
    causal = replace(made, meanings=(*others, (switches[0], "on")))
    if not square.tried_with(replace(how, construction=causal), "self").raised:
        return fit
    own_length = square.tried_with(replace(how, construction=replace(causal, longer_by=0)), "self")
    if not (own_length.exact and own_length.causal):
        return fit
    return replace(fit, interpretation=replace(how, construction=replace(made, longer_by=0)))


def _is_causal(parameter: inspect.Parameter) -> bool:
    return role(parameter.name, "constructor", parameter.default) is Role.CAUSAL


def _of_unknown_name(
    fit: InterpretationResult, made: Construction, ask: Ask, dtype: str
) -> InterpretationResult:
    """Return the fit with a number of unknown name as the largest length, where it is that.

    A call as long as the number is right, one of twice the length raises, and does not where
    the layer is built with a larger number.
    """
    for name, meaning in made.meanings:
        if meanings(name) or meaning not in {"width", "head_dim"}:
            continue
        size = LayerSizes(SMALL.embed_dim, SMALL.heads_count).value(meaning)
        longer = tuple((n, "length" if n == name else m) for n, m in made.meanings)
        how = replace(fit.interpretation, construction=replace(made, meanings=longer))
        once, twice = (_search(ask, dtype, length) for length in (size, 2 * size))
        short = once.tried(fit.interpretation).exact
        if short and twice.tried(fit.interpretation).raised:
            found = twice.tried(how)
            fit = found if found.exact else fit
    return fit


def _without_tile(how: Interpretation, name: str, longer: Search) -> Interpretation:
    """Return the interpretation in which a number that bounds no length stays at its default.

    `block_size` is the largest length of one layer and the keys of a tile of another: with the
    default one length more raises in the first, and is answered, rightly or not, in the second.
    """
    made = how.construction
    if made is None:
        return how
    fewer = replace(made, meanings=tuple(each for each in made.meanings if each[0] != name))
    other = replace(how, construction=fewer)
    return other if longer.tried(other).correlation > MISSHAPED else how


def _default_lengths(
    made: Construction, named: Sequence[inspect.Parameter]
) -> Iterator[tuple[str, int]]:
    """Yield the arguments that are given a length, and the numbers that they default to."""
    given = dict(made.meanings)
    for each in named:
        known = isinstance(each.default, int) and 0 < each.default <= LONGEST_ASKED
        if known and given.get(each.name) == "length" and not _LARGEST.search(each.name):
            yield each.name, each.default


def _search(ask: Ask, dtype: str, length: int) -> Search:
    """Return a search on small problems of one length."""
    return Search(ask, dtype, base=SMALL.replace(queries=length, keys=length))


def built_remarks(
    how: Interpretation,
    new: Callable[[Construction, LayerSizes], Any],
    switches: Collection[str],
) -> Iterator[str]:
    """Yield what is said of a layer's configuration, length, channels, and lists hidden from torch.

    ``new`` builds the layer at other sizes; ``switches`` of its
    configuration have all values.
    """
    made = how.construction
    if asked := {} if made is None else {n: m for n, m in made.asked.items() if n not in switches}:
        yield f"built with a configuration of {'; '.join(_configured(asked))}."
    if made is not None and made.longer_by is not None:
        more = f" less {made.longer_by}" if made.longer_by else ""
        yield f"it takes one length alone: for each call it was built for that{more}."
    if permuted := how.width_first:
        yield PERMUTED.format(", ".join(f"`{path}`" for path in permuted))
    for path in _plain_lists(made, new) if made else ():
        yield (
            f"`{path}` is a plain list: torch neither trains, moves nor saves the modules in "
            "it; it was judged as a torch.nn.ModuleList."
        )


def _configured(asked: Mapping[str, str]) -> Iterator[str]:
    """Yield the names that a configuration was asked for, with the value that they got."""
    named: dict[str, list[str]] = {}
    for name, meaning in asked.items():
        named.setdefault(VALUES.get(meaning, meaning), []).append(f"`{name}`")
    for value, each in named.items():
        yield f"{', '.join(each)} = {value}"


def _plain_lists(
    made: Construction, new: Callable[[Construction, LayerSizes], Any]
) -> tuple[str, ...]:
    """Return the lists of modules of a layer that can be built with several heads, or one."""
    for heads in (SMALL.heads_count, 1):
        with suppress(CandidateError):
            return tuple(plain_lists(new(made, LayerSizes(SMALL.embed_dim, heads))))
    return ()
