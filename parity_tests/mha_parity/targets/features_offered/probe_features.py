"""Small calls that show what a candidate offers, more or less than its signature says.

A probe decides what is *offered*, that is, judged; it never judges. What a candidate raises on is
listed as not offered, with its own words.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import NOT_ASKED, Answer, CandidateError, place_of
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.core.features import DTYPES
from mha_parity.core.target_facts import takes_one_length
from mha_parity.targets.caches.cache_search import use_cache_of
from mha_parity.targets.caches.reset_methods import find_reset
from mha_parity.targets.calls.error_origin import attributed, is_refusal
from mha_parity.targets.convention_base.always_causal import CAUSAL
from mha_parity.targets.convention_base.interpreted_layers import LAYOUT_SWITCH
from mha_parity.targets.features_offered.claimed_features import claimed_cases, is_drawn
from mha_parity.targets.features_offered.log_sum_exp_search import find_log_sum_exp
from mha_parity.targets.features_offered.window_calls import use_windows_of
from mha_parity.targets.features_offered.withdrawn_features import (
    FLOAT_MASKS,
    gradients_of_nothing,
    leave_out_empty,
    leave_out_floats,
    limit_lengths,
    see_float32_masks,
)
from mha_parity.targets.masks.mask_meanings import fill_required, find_masks
from mha_parity.targets.static.documented_layout import documents_multiples
from mha_parity.targets.static.returned_names import named_scores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention, FeatureProbe

WHOLE_TILES = 128  # rows, which most tiles divide: those of other lengths may be left out
MASKS = frozenset({"attn", "padding"})
WITH_REMEDY = {("jax", "float64"): " unless JAX_ENABLE_X64=1 is set"}
NARROWER = {"float64": DTYPES[1:], "float32": DTYPES[2:]}


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe: whether the feature is offered, and if not, why."""

    offered: bool
    reason: str = ""


def probe_offer(convention: Convention) -> None:
    """Widen or narrow the convention's offer to what small calls prove."""
    _settle_dtype(convention)
    fill_required(convention)
    failing = set[tuple[str, str]]()  # what is offered all the same: the run says how it fails
    for probe in convention.probes():
        held = convention.offer[probe.axis]
        asked = (_in_trial_dtype(convention, case) for case in _cases_of(convention, probe))
        shown = [accepts(convention, case) for case in asked]
        reasons = [each.reason for each in shown if not each.offered]
        if not reasons or (probe.demanded and not any(map(_is_refusal, reasons))):
            convention.offer = convention.offer | {probe.axis: (*held, probe.value)}
            failing |= {(probe.axis, probe.value)} if reasons else set()
        else:
            convention.reasons[probe.axis, probe.value] = reasons[0]
    empty = gradients_of_nothing(convention)
    if empty is not None:
        leave_out_empty(convention, accepts(convention, _in_trial_dtype(convention, empty)).reason)
    _only_batches(convention)
    find_masks(convention, failing)
    _only_samples_with_masks(convention, failing)
    leave_out_floats(convention)
    if not convention.hides_future:  # a switch of the rule was found
        convention.remarks = tuple(each for each in convention.remarks if each != CAUSAL)
    _try_claims(convention, failing)
    convention.offer = convention.offer | {"dtype": _dtypes(convention)}
    find_reset(convention)
    use_cache_of(convention)
    use_windows_of(convention)
    find_log_sum_exp(convention)
    limit_lengths(convention)
    see_float32_masks(convention)
    if convention.masks is not None:
        convention.masks = convention.masks.with_raising_integers()


def _cases_of(convention: Convention, probe: FeatureProbe) -> tuple[Case, ...]:
    """Return the cases of a probe, with gradients too where a function beside the target has them.

    What its forward function takes, its backward function may not.
    """
    if getattr(convention, "beside", None) is None:
        return probe.cases
    without = (case for case in probe.cases if case.gradients == "no")
    return (*probe.cases, *(case.replace(gradients="yes") for case in without))


def _is_refusal(reason: str) -> bool:
    """Return whether a call or a constructor raised what a target refuses a layout by."""
    return reason.startswith(NOT_ASKED) or is_refusal(reason) or LAYOUT_SWITCH in reason


def _is_on_purpose(reason: str) -> bool:
    """Return whether an exception comes from a `raise` or `assert`: by its type where unknown."""
    place = place_of(reason)
    line = linecache.getline(*place).strip() if place else ""
    return line.startswith(("raise", "assert")) if line else is_refusal(reason)


def _is_mistake(convention: Convention, case: Case, size: str, reason: str) -> bool:
    """Return whether what a size raises is a failure of the run, and no limit of the target.

    One row or one key is a plain call, and so is a longer one where twice as many rows are
    answered: a buffer that is too short raises there too.
    """
    if size not in {"ones", "medium"} or not reason.startswith("raised ") or _is_on_purpose(reason):
        return False
    if size == "ones":
        return True
    if documents_multiples(convention.subject):
        return False
    return not _raised(convention, case.replace(queries=WHOLE_TILES, keys=WHOLE_TILES))


def _settle_dtype(convention: Convention) -> None:
    """Make small calls in a narrower dtype where that of the plain case makes them raise."""
    plain = _plain(convention)
    if not _raised(convention, plain):
        return
    for dtype in NARROWER.get(plain.dtype, ()):
        if dtype in convention.library.dtypes and not _raised(
            convention, plain.replace(dtype=dtype)
        ):
            convention.trial_dtype = dtype
            return


def _in_trial_dtype(convention: Convention, case: Case) -> Case:
    return case.replace(dtype=convention.trial_dtype) if convention.trial_dtype else case


def _try_claims(convention: Convention, failing: AbstractSet[tuple[str, str]]) -> None:
    """Take back what the signature claims and a call raises on, in the target's own words.

    What answers stays offered, right or wrong: that is for the run to judge. Every claim is tried,
    at most one for each value of an axis: under a limit of time what is offered, and the verdict
    with it, would depend on the load of the machine. What is known to be ``failing`` stays, and so
    do sizes of one that no exception refuses, and masks of which a documented shape raises.
    """
    plain = _plain(convention)
    if _raised(convention, plain):
        return  # then every call raises, and the run says so
    for axis, value, claimed in claimed_cases(plain, convention.offer):
        # A mask or layout that raised by itself is taken back already, and says nothing of memory.
        gone = axis == "memory" and not is_drawn(claimed, convention.offer)
        if gone or failing & {(axis, value), ("layout", claimed.layout)}:
            continue
        single = convention.masks is not None and convention.masks.only_one_sample(claimed)
        case = claimed.replace(batch=1) if single else claimed
        case = case.replace(keys=case.queries) if takes_one_length(convention.reasons) else case
        reason = _raised(convention, case) or _other_meaning(convention, case, axis)
        documented = axis in MASKS and convention.masks and convention.masks.documented_raises
        mistake = axis == "size" and _is_mistake(convention, case, value, reason)
        if reason and not (documented or mistake):
            left = tuple(each for each in convention.offer[axis] if each != value)
            convention.offer = convention.offer | {axis: left}
            convention.reasons[axis, value] = reason


def _raised(convention: Convention, case: Case) -> str:
    """Return what a call raised, or nothing; an answer of the wrong kind is an answer."""
    try:
        with attributed(convention.subject):
            convention(make_problem(case))
    except CandidateError as error:
        return str(error) if error.severity in {"crash", "inconclusive"} else ""
    return ""


def _other_meaning(convention: Convention, case: Case, axis: str) -> str:
    """Say where the first axis of several samples is taken for that of the heads.

    Each "sample" then gets the answer of one head of the whole width, and not its own.
    """
    offered = "unbatched" in convention.offer["layout"] and "one" in convention.offer["heads"]
    if (axis, case.layout) != ("layout", "batch_first") or case.heads == "one" or not offered:
        return ""
    problem = make_problem(case)
    whole = case.replace(heads_count=1, head_dim=case.embed_dim)
    try:
        together = convention(problem).output
        own = [convention(_sample(problem, i, case)).output[0] for i in range(case.batch)]
        one_head = [convention(_sample(problem, i, whole)).output[0] for i in range(case.batch)]
    except CandidateError:
        return ""
    alike = [
        together.shape == np.shape(each) and equal_up_to_rounding(np.stack(each), together)
        for each in (own, one_head)
    ]
    return "3-D inputs are taken as (heads, L, D)" if alike == [False, True] else ""


def _sample(problem: Problem, number: int, case: Case) -> Problem:
    """Return one sample of a problem without masks, unbatched."""
    kept: dict[int, Array] = {}
    rows = {
        name: kept.setdefault(id(array), array[number : number + 1])
        for name in ("query", "key", "value")
        for array in (getattr(problem, name),)
    }
    return problem.replace(case=case.replace(layout="unbatched", batch=1), **rows)


def _only_batches(convention: Convention) -> None:
    """Take back the plain layout where only another one is accepted."""
    plain = convention.trial_case()
    held = convention.offer["layout"]
    if len(held) > 1 and held[0] == "unbatched" and not accepts(convention, plain).offered:
        convention.offer = convention.offer | {"layout": held[1:]}


def _only_samples_with_masks(convention: Convention, failing: AbstractSet[tuple[str, str]]) -> None:
    """Take one sample without its axis back where a mask that was found has no call beside it.

    Its axis of samples makes one in the weights, or the call raises.
    """
    layout = convention.offer["layout"]
    if convention.masks is None or "unbatched" not in layout[1:]:
        return
    if ("layout", "unbatched") in failing:
        return
    plain = _plain(convention).replace(layout="unbatched", batch=1)
    weights = convention.offer["weights"][-1]
    for axis in ("attn", "padding"):
        for value in convention.offer[axis]:
            case = plain.replace(**{axis: value}, weights=weights)
            if value in {"none", "causal"} or (shown := accepts(convention, case)).offered:
                continue
            kept = tuple(each for each in layout if each != "unbatched")
            convention.offer = convention.offer | {"layout": kept}
            convention.reasons["layout", "unbatched"] = f"with a mask, {shown.reason}"
            return


def accepts(convention: Convention, case: Case) -> ProbeResult:
    """Return whether the call goes through and gives arrays of the right shape."""
    problem = make_problem(case)
    try:
        with attributed(convention.subject):
            answer = convention(problem)
    except CandidateError as error:
        return ProbeResult(offered=False, reason=str(error))
    if answer.output.shape != problem.output_shape:
        reason = f"the output has shape {answer.output.shape}, not {problem.output_shape}"
        return ProbeResult(offered=False, reason=reason)
    if case.gradients == "yes" and not answer.gradients:
        return ProbeResult(offered=False, reason="no gradients are returned")
    if case.weights != "none" and (name := named_scores(convention.entry(), answer.weights)):
        reason = f"what comes with the output is `{name}`: no weights, since some are negative"
        return ProbeResult(offered=False, reason=reason)
    return _has_weights(case, problem.weights_shape, answer)


def _has_weights(case: Case, whole: tuple[int, int, int, int], answer: Answer) -> ProbeResult:
    if case.weights == "none":
        return ProbeResult(offered=True)
    n, heads, *matrix = whole
    wanted = whole if case.weights == "per_head" else (n, *matrix)
    shape = None if answer.weights is None else answer.weights.shape
    if shape == wanted:
        return ProbeResult(offered=True)
    seen = f"what comes with the output has shape {shape}"
    seen = "no weights are returned" if shape is None else seen
    # One number a row, as kernels return for their backward pass.
    if shape in {(n, heads, matrix[0]), (n, heads, matrix[0], 1), (n, matrix[0], heads)}:
        seen = "one number a row comes with the output, as a log-sum-exp, and is not judged"
    return ProbeResult(offered=False, reason=seen)


def offer_unprobed(convention: Convention) -> None:
    """Offer what the signature claims, in both usual dtypes: for candidates that break a probe."""
    both = tuple(d for d in ("float64", "float32") if d in convention.library.dtypes)
    convention.offer = convention.offer | {"dtype": both or convention.library.dtypes}


def _dtypes(convention: Convention) -> tuple[str, ...]:
    """Return the dtypes to judge in: those in which answers come back as the inputs went in.

    Where none does, float64 and float32 as far as they are answered in narrower dtypes: a finding.
    """
    plain = _plain(convention)
    answers = dict(_answered(convention, plain))
    for said, masked, key in _with_masks(convention, plain):  # -1e9 is no number of float16
        changed = {d: answer for d, answer in _answered(convention, masked, key) if answer != d}
        errors = {d: answer[1:] for d, answer in changed.items() if answer.startswith("!")}
        changed |= {d: f"!with {said} it {error}" for d, error in errors.items()}
        answers |= {d: answer for d, answer in changed.items() if answers[d] == d}
    narrower = {d: answer for d, answer in answers.items() if answer in NARROWER.get(d, ())}
    kept = tuple(dtype for dtype, answer in answers.items() if dtype == answer)
    offered = kept or tuple(narrower) or ("float64",)
    for dtype, answer in answers.items():
        if dtype in offered:
            continue
        if dtype in narrower:
            convention.answer_dtypes[dtype] = answer
        convention.reasons["dtype", dtype] = _why(dtype, answer)
    return offered


def _plain(convention: Convention) -> Case:
    case = convention.trial_case()
    layout = convention.offer["layout"]
    if case.layout in layout:
        return case
    return case.replace(layout=layout[0], batch=1 if layout[0] == "unbatched" else 2)


ANY = ("", "")  # parameter and kind of a mask that the convention passes by itself


def _with_masks(convention: Convention, case: Case) -> Iterator[tuple[str, Case, tuple[str, str]]]:
    """Yield the plain case with a mask in each parameter that is one, and with a causal switch.

    Each with what is passed for it, the key of the parameter and the kind of its values, of which
    a mask of booleans and one of floats are tried.
    """
    if convention.masks is None:
        yield from _with_own_masks(convention, case)
        return
    asked = [(axis, each) for axis in ("attn", "padding") for each in convention.offer[axis]]
    masks = [each for each in asked if each[1] not in {"none", "causal"}]
    floats = [each for each in masks if each[1].startswith("float")]
    padding = [each for each in masks if each[0] == "padding"]
    switches = [each for each in asked if each[1] == "causal" != case.attn]
    for axis, value in dict.fromkeys((*masks[:1], *padding[:1], *floats[:1], *switches)):
        masked = case.replace(**{axis: value})
        for key, passed in convention.masks.by_parameter(make_problem(masked)).items():
            named = " and ".join(f"`{name.rpartition('.')[2]}`" for name in passed)
            yield named, masked, key


def _with_own_masks(
    convention: Convention, case: Case
) -> Iterator[tuple[str, Case, tuple[str, str]]]:
    """Yield the plain case with each mask of floats that the convention passes by itself."""
    for axis, name, values in FLOAT_MASKS:
        for value in [each for each in values if each in convention.offer[axis]][:1]:
            yield f"floats in `{name}`", case.replace(**{axis: value}), ANY


def _answered(
    convention: Convention, case: Case, key: tuple[str, str] = ANY
) -> Iterator[tuple[str, str]]:
    """Yield each dtype and the dtype of the answer to it, or what was said instead.

    ``key`` is that of the parameter that the mask of the case is passed in, with its kind.
    """
    for dtype in DTYPES:
        if dtype not in convention.library.dtypes:
            remedy = WITH_REMEDY.get((convention.library.name, dtype), "")
            yield dtype, f"!{convention.library.name} has no such arrays{remedy}"
            continue
        if dtype in convention.left_out_dtypes:
            yield dtype, f"!{convention.left_out_dtypes[dtype]}"
            continue
        problem = make_problem(case.replace(dtype=dtype))
        try:
            with attributed(convention.subject):
                if key != ANY and convention.masks is not None:
                    given = convention.masks.by_parameter(problem)[key]
                    yield dtype, convention.answer_with(problem, given).output.dtype.name
                else:
                    yield dtype, convention(problem).output.dtype.name
        except CandidateError as error:
            yield dtype, f"!{error}"


def _why(dtype: str, answer: str) -> str:
    """Return the target's own words, or in which dtype it computes instead."""
    if answer.startswith("!"):
        return answer[1:]
    narrower = answer in NARROWER.get(dtype, ())
    return f"computes in {answer}" if narrower else f"answered in {answer}"
