"""Find out what the mask parameters of a convention's subject mean, and offer what they can say."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.parameters import ESSENTIAL, ONE_SAMPLE, Role
from mha_parity.targets.calls.mask_format import (
    ADDED,
    LENGTHS,
    SWITCH,
    MaskSearchResult,
    axes_text,
)
from mha_parity.targets.calls.mask_plan import MaskPlan
from mha_parity.targets.masks.demanded_meaning import requirement
from mha_parity.targets.masks.documented_meaning import (
    documents_booleans,
    says_booleans,
    with_documented_integers,
    without_floats,
)
from mha_parity.targets.masks.finite_fill import take_back_regimes
from mha_parity.targets.masks.hidden_keys import MaskExperiment, mask_problem, weights_shown
from mha_parity.targets.masks.mask_dependencies import (
    enabling_pairs,
    exclusive_pairs,
    mask_switches,
)
from mha_parity.targets.masks.mask_gradients import with_gradients_tried
from mha_parity.targets.masks.mask_search import search
from mha_parity.targets.masks.opposite_meaning import opposite_option
from mha_parity.targets.masks.outer_product_masks import beside_queries
from mha_parity.targets.masks.unjudged_values import answered_otherwise
from mha_parity.targets.static.call_parameters import says_starts
from mha_parity.targets.static.documented_masked_rows import documents_a_key, documents_zero_rows

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from mha_parity.core.parameters import Parameter
    from mha_parity.targets.convention_base.convention import Convention

MANY = 4  # shapes that a sentence names
READ_WITH = {"self": "read in self-attention alone", "cross": "read with further keys alone"}
_OF_SELF_ALONE = frozenset({Role.MASK, Role.LENGTHS, Role.CAUSAL})
IN_PLACE = "is passed in place of the causal rule that the target has without it."
NO_ROW_LEFT = "of one sample without visible keys no row is left to compare"
INTEGERS_RAISE = "integers of 0 and 1, which its documentation allows, raise"
INTEGERS_UNLIKE = (
    "integers of 0 and 1, which its documentation allows, hide other keys than the same booleans"
)


def fill_required(convention: Convention) -> None:
    """Find what hides nothing in a mask that is required, before anything else is tried."""
    required = [p for p in _searched(convention) if p.required]
    if required:
        found = {each: _found(convention, each, required) for each in ("batch_first", "unbatched")}
        convention.masks = MaskPlan(found)


def find_masks(convention: Convention, failing: AbstractSet[tuple[str, str]]) -> None:
    """Search every mask, lengths, score bias and causal switch, and widen the offer by them.

    In layouts that are known to be ``failing`` they are passed as in the first of the others.
    """
    wanted = _searched(convention)
    if wanted:
        layouts = convention.offer["layout"]
        found = {
            each: _found(convention, each, wanted)
            for each in layouts
            if ("layout", each) not in failing
        }
        found = {each: found.get(each, next(iter(found.values()))) for each in layouts}
        if "yes" in convention.offer["gradients"]:
            found = {
                layout: tuple(with_gradients_tried(convention, layout, each) for each in results)
                for layout, results in found.items()
            }
        _settle(convention, found)
    elif convention.hides_future:
        take_back_regimes(convention)


def _searched(convention: Convention) -> list[Parameter]:
    """Return the parameters to search; none where the convention passes masks itself."""
    if convention.own_masks:
        return []
    known = {*convention.without, *convention.filled}
    return [
        p
        for p in convention.parameters
        if (p.role in ESSENTIAL or _may_be_a_mask(convention, p))
        and (p.of == "call" or p.role is Role.CAUSAL)
        and p.role not in {Role.KEYWORDS, Role.WINDOW}
        and not (p.name in known or says_starts(p.name))
    ]


def _may_be_a_mask(convention: Convention, parameter: Parameter) -> bool:
    """Whether a name that says nothing may be that of a mask: None by default, or required.

    One that says that it is rows, as `hidden`, where its documentation says booleans.
    """
    optional = parameter.default == "None"
    if parameter.role is Role.INPUT:
        subject, entry = convention.subject, convention.entry()
        known = documents_booleans, says_booleans
        return optional and any(each(subject, entry, parameter.name) for each in known)
    return parameter.role is Role.OTHER and (parameter.required or optional)


def _found(
    convention: Convention, layout: str, wanted: list[Parameter]
) -> tuple[MaskSearchResult, ...]:
    """Return what is taken by each parameter in one layout."""
    experiments = _experiments(convention, layout)
    subject, entry, square = convention.subject, convention.entry(), experiments[-1]

    def found(parameter: Parameter) -> MaskSearchResult:
        asked = requirement(convention, parameter)
        result = search(experiments, parameter, asked)
        if parameter.name in convention.mask_meanings:
            _require_marks(result, convention.mask_meanings[parameter.name])
        else:
            result = without_floats(subject, entry, result, asked.said)
        return with_documented_integers(subject, entry, square, result)

    results = tuple(found(each) for each in wanted)
    results = beside_queries(convention, results, found)
    if any(taken.kind == SWITCH for each in results for taken in each.taken):
        results = tuple(replace(each, replaces_causal=False) for each in results)  # it has the rule
    return _by_inputs(convention, layout, results)


def _require_marks(result: MaskSearchResult, given: str) -> None:
    """Make sure that a mask of a given meaning of True is not added to the scores alone.

    Raises
    ------
    TargetError
        It takes floats that are added, of which a True hides nothing and keeps nothing.

    """
    meaning, name = given.partition(":")[0], result.parameter.name
    if meaning != "additive" and {each.kind for each in result.taken} == {ADDED}:
        raise TargetError(
            f"got --masks {name}={given}, but `{name}` is added to the scores, where a True "
            f"neither hides nor keeps; leave the option out, or say {name}=additive."
        )


def _by_inputs(
    convention: Convention, layout: str, results: tuple[MaskSearchResult, ...]
) -> tuple[MaskSearchResult, ...]:
    """Return what self-attention alone reads of masks that further keys leave unread.

    A layer of a decoder may have a mask for either; then those of further keys are passed with
    these alone. If self-attention reads nothing else, a mask that it ignores is for the judge. A
    causal switch may be refused with further keys.
    """
    both = {"self", "cross"} <= {*convention.offer["inputs"]}
    unread = [r for r in results if not r.taken and r.parameter.role in _OF_SELF_ALONE]
    switches = any(each.parameter.role is Role.CAUSAL for each in unread)
    if not (both and unread and (switches or any(each.taken for each in results))):
        return results
    alone = (MaskExperiment.of(convention, layout, square=True, inputs="self"),)

    def found(result: MaskSearchResult) -> MaskSearchResult:
        return search(alone, result.parameter, requirement(convention, result.parameter))

    own = {each.parameter.key: found(each) for each in unread}
    if not any(each.taken for each in own.values()):
        return results
    return tuple(
        replace(own[r.parameter.key], inputs="self") if r in unread
        else r if found(r).taken else replace(r, inputs="cross")
        for r in results
    )  # fmt: skip


def _leave_open_other_samples(
    convention: Convention, by_layout: dict[str, tuple[MaskSearchResult, ...]]
) -> None:
    """Keep of which masks beside a causal rule of the target's own one sample alone is asked.

    A mask (L, S) can say the padding of one sample there: what fails is wrong, and what holds for
    one may reach no other.
    """
    found = [r for layout, each in by_layout.items() if layout != "unbatched" for r in each]
    for each in found if convention.hides_future else ():
        axes = {axis for taken in each.taken for axis in taken.axes}
        marks = all(taken.kind not in {SWITCH, LENGTHS} for taken in each.taken)
        if each.taken and marks and not axes & {"N", "NH"}:
            convention.untried[each.parameter.key] = ONE_SAMPLE


def _experiments(convention: Convention, layout: str) -> tuple[MaskExperiment, ...]:
    """Return the experiment with unequal numbers of queries and keys, then that with equal ones."""
    if "cross" not in convention.offer["inputs"]:
        return (MaskExperiment.of(convention, layout, square=True),)
    return tuple(MaskExperiment.of(convention, layout, square=square) for square in (False, True))


def _settle(convention: Convention, by_layout: dict[str, tuple[MaskSearchResult, ...]]) -> None:
    """Keep the layouts in which something is known of every mask, and offer what they can say."""
    _leave_out_single_samples(convention, by_layout)
    _say_meanings(convention, by_layout)
    known = {name: sum(bool(each.taken) for each in found) for name, found in by_layout.items()}
    if not any(known.values()):
        return
    for layout, count in known.items():
        if count < max(known.values()):
            reason = next(each.reason for each in by_layout.pop(layout) if not each.taken)
            convention.reasons["layout", layout] = f"with masks it is not understood: {reason}"
    _leave_out_raising(convention, by_layout)
    taken = [each for found in by_layout.values() for one in found for each in one.taken]
    replaced = [each for found in by_layout.values() for each in found if each.replaces_causal]
    if replaced or any(each.kind == SWITCH for each in taken):
        convention.hides_future = False
    in_place = (f"`{each.parameter.name}` {IN_PLACE}" for each in replaced)
    convention.remarks = (*convention.remarks, *dict.fromkeys(in_place))
    exclusive = exclusive_pairs(convention, by_layout)
    enabling = enabling_pairs(convention, by_layout)
    read = dict.fromkeys(answered_otherwise(convention, by_layout))
    convention.remarks = (*convention.remarks, *read)
    convention.masks = MaskPlan(by_layout, convention.hides_future, exclusive, enabling)
    _leave_open_other_samples(convention, by_layout)
    offer = convention.offer | {"layout": tuple(by_layout)}
    plain = convention.plain_case()
    convention.offer = convention.masks.offered(offer, plain)
    convention.masks = convention.masks.of_gradients(offer, plain)
    _ask_masked_rows(convention)
    take_back_regimes(convention)


def _leave_out_single_samples(
    convention: Convention, by_layout: dict[str, tuple[MaskSearchResult, ...]]
) -> None:
    """Leave out what is known of masks of one sample, if those of several are not understood.

    Most likely they reach other samples or heads there, which a verdict on one would not show.
    Numbers of keys may be those of one sample by their meaning.
    """
    batched = [found for layout, found in by_layout.items() if layout != "unbatched"]
    known = {each.parameter.key for found in batched for each in found if each.taken}

    def left(each: MaskSearchResult) -> MaskSearchResult:
        numbers = all(taken.kind == LENGTHS for taken in each.taken)
        if not batched or numbers or each.parameter.key in known:
            return each
        reason = f"`{each.parameter.name}` is understood of one sample alone"
        convention.untried[each.parameter.key] = reason
        return replace(each, taken=(), reason=reason)

    if "unbatched" in by_layout:
        by_layout["unbatched"] = tuple(left(each) for each in by_layout["unbatched"])


def _say_meanings(
    convention: Convention, by_layout: dict[str, tuple[MaskSearchResult, ...]]
) -> None:
    """Keep what each parameter means, or why it could not be tried."""
    # A layout that says more of lengths comes first: a parameter has one sentence for all.
    every = sorted(itertools.chain(*by_layout.values()), key=lambda each: not each.short)
    convention.mask_switches = {
        switch: mask
        for layout, results in by_layout.items()
        for switch, mask in mask_switches(convention, layout, results)
    }
    for found in every:
        if mask := convention.mask_switches.get(found.parameter.key):
            convention.meanings[found.parameter.key] = f"False leaves `{mask}` unread"
        elif found.taken:
            said = meaning(found) + opposite_option(convention, found)
            convention.meanings.setdefault(found.parameter.key, said)
        elif found.parameter.role is not Role.OTHER:
            convention.untried.setdefault(found.parameter.key, found.reason)
    for key in convention.meanings:  # known in another layout
        convention.untried.pop(key, None)


def _leave_out_raising(
    convention: Convention, by_layout: dict[str, tuple[MaskSearchResult, ...]]
) -> None:
    """Leave out layouts in which a mask is taken at some lengths alone, if others serve all."""
    raising = {
        layout: next((each.parameter.name for each in found if _is_of_some_lengths(each)), "")
        for layout, found in by_layout.items()
    }
    if all(raising.values()) or "cross" not in convention.offer["inputs"]:
        return
    for layout in [each for each, name in raising.items() if name]:
        del by_layout[layout]
        reason = f"with `{raising[layout]}` calls of other lengths raise"
        convention.reasons["layout", layout] = reason


def _is_of_some_lengths(found: MaskSearchResult) -> bool:
    """Return whether a mask is taken, and raises at some lengths or wherever S is not L."""
    return found.raises or (bool(found.taken) and all(each.square for each in found.taken))


def _ask_masked_rows(convention: Convention) -> None:
    """Offer fully masked rows where they come to NaN, zeros, or the mean of the values."""
    offer = convention.offer
    masked = "attn" if {"bool2d", "bool3d"} & {*offer["attn"]} else "padding"
    if len(offer[masked]) < 2:
        return
    if convention.joins_heads:
        convention.reasons["masked_rows", "some"] = "its identity spreads NaN over all heads"
        return
    if documents_a_key(convention.subject):
        convention.reasons["masked_rows", "some"] = "its documentation demands a key for each row"
        return
    padded = convention.plain_case().replace(padding="lengths")
    of_one = convention.masks is not None and convention.masks.only_one_sample(padded)
    if masked == "padding" and (of_one or set(offer["layout"]) == {"unbatched"}):
        convention.reasons["masked_rows", "some"] = NO_ROW_LEFT
        return
    problem = mask_problem(convention, offer["layout"][-1], square=True)
    if masked == "attn":
        hidden = np.zeros((problem.case.queries, problem.case.keys), dtype=bool)
        hidden[1] = True
        problem = problem.replace(attn_mask=hidden)
    else:
        hidden = np.zeros((problem.case.batch, problem.case.keys), dtype=bool)
        hidden[0] = True
        problem = problem.replace(key_padding_mask=hidden)
    try:
        shown_weights = weights_shown(problem, convention(problem).output)
    except CandidateError as error:
        convention.reasons["masked_rows", "some"] = str(error)
        return
    rows = shown_weights[:, :, 1] if masked == "attn" else shown_weights[0]
    zero_or_nan = not np.nan_to_num(rows).any()
    uniform = np.allclose(rows, 1 / problem.case.keys, atol=1e-3)
    if zero_or_nan or uniform or documents_zero_rows(convention.subject):
        convention.offer = offer | {"masked_rows": ("none", "some")}
    else:
        convention.reasons["masked_rows", "some"] = "such rows attend as if some keys were visible"


def meaning(found: MaskSearchResult) -> str:
    """Say what was found of one parameter."""
    said: dict[str, list[str]] = {}
    kinds = {taken.kind for taken in found.taken} & {"bool", "int"}
    for taken in found.taken:
        if taken.axes in found.raising:
            continue
        text = taken.meaning
        if taken.kind in kinds and len(kinds) > 1:
            text = replace(taken, kind="bool").meaning.replace("True", "True or 1", 1)
        shapes = said.setdefault(text, [])
        shape = axes_text(taken.axes) if taken.axes else ""
        shapes += [shape] if shape and shape not in shapes else []
    three = (
        found.three_axes and f"its three axes are {axes_text(found.three_axes)}, not (N*H, L, S)"
    )
    every = (f"{text}{_shapes(shapes)}" for text, shapes in said.items())
    rows = " or ".join(map(axes_text, found.short))
    short = rows and f"short calls alone take {rows}, which is not asked: longer ones raise"
    unlike = INTEGERS_UNLIKE if found.integers_unlike else found.integers_raise and INTEGERS_RAISE
    read = READ_WITH.get(found.inputs, "")
    rows = " or ".join(map(axes_text, found.raising))
    raising = rows and f"documented as {rows}, which raises"
    return "; ".join((*every, *(each for each in (three, short, raising, unlike, read) if each)))


def _shapes(shapes: list[str]) -> str:
    if len(shapes) > MANY:
        return f", taken in {len(shapes)} shapes: {shapes[0]} to {shapes[-1]}"
    return f", taken as {' or '.join(shapes)}" if shapes else ""
