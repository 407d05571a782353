"""All experiments on one target, and what they found: causes for a report, or an identity card."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.core.candidate import without_place
from mha_parity.diagnose.experiments.arrays.error_places import contents, places
from mha_parity.diagnose.experiments.arrays.projection_parts import parts_read
from mha_parity.diagnose.experiments.arrays.replaced_inputs import replaced
from mha_parity.diagnose.experiments.arrays.shared_arrays import REMEDY as SHARED_REMEDY
from mha_parity.diagnose.experiments.arrays.shared_arrays import shared_arrays
from mha_parity.diagnose.experiments.conditions.correct_digits import (
    ALIKE,
    ErrorAnalysis,
    error_analysis,
    narrower,
)
from mha_parity.diagnose.experiments.conditions.features import features
from mha_parity.diagnose.experiments.conditions.sizes import Scan, coincidences, scans
from mha_parity.diagnose.experiments.conditions.state import (
    KEEP_NOTHING,
    earlier_calls,
)
from mha_parity.diagnose.experiments.conditions.values import NO_KEYS, values
from mha_parity.diagnose.experiments.designs.perturbation import influences
from mha_parity.diagnose.experiments.designs.weights_from_output import (
    read_problem,
    read_wider,
    wrong_sums,
)
from mha_parity.diagnose.experiments.examination import Examination, ExperimentFinding, is_telling
from mha_parity.diagnose.experiments.masks.masks import RETURNED, MaskEffect, mask_pairs, masks
from mha_parity.diagnose.experiments.returned import returned
from mha_parity.diagnose.experiments.scores.exponential import exponential_errors
from mha_parity.diagnose.experiments.scores.head_count import head_count
from mha_parity.diagnose.experiments.scores.scale import measured
from mha_parity.diagnose.experiments.weights import (
    causes,
    causes_of_falling_scores,
    causes_of_rows,
    readings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.diagnose.experiments.designs.calls import Caller

FINE = 40  # bits that are right: fewer in float64 are not lost to the last roundings
COARSE = 14  # bits: a table or a grid of scores is coarser
WORTH = 64  # calls: of a sample that is wrong where no other is, its weights
SHOWN = 4  # kinds of masks that have one effect
UNKNOWN = "no experiment explains it"
BOOLEANS_FIRST = "make booleans of the mask before all else: ~ of the integers 0 and 1 is never 0"
BY_PLACE = "know each axis by its place, or by an argument that names their order"
RETURN_USED = "return the weights that the values are multiplied with"


def run_experiments(caller: Caller, *, whole: bool = False, two_masks: bool = False) -> Examination:
    """Return what the experiments see: all with ``whole``; with ``two_masks`` pairs first."""
    seen = Examination(unanswered=caller.unanswered)
    seen.earlier = earlier_calls(caller)
    seen.digits = error_analysis(caller)
    if not whole and (dtype := narrower(caller, seen.digits)):
        seen.narrow = _examine_in(caller.in_dtype(dtype))
    _examine_plain(caller, seen)
    plain_wrong = bool(seen.causes or seen.wrong)
    seen.shared = "" if plain_wrong else shared_arrays(caller)
    # Weights are read with values of their own, by which more would look wrong.
    if not seen.shared:
        if two_masks and not plain_wrong:
            seen.masks = list(mask_pairs(caller))
        if not any(each.understood for each in seen.masks):
            _examine_further(caller, seen, plain_wrong=plain_wrong, whole=whole)
    return seen


def _examine_in(caller: Caller) -> Examination:
    """Try what may be wrong beyond the digits that the caller's narrower dtype does not have."""
    seen = Examination(digits=error_analysis(caller))
    if seen.digits is not None and seen.digits.right:
        _examine_further(caller, seen, plain_wrong=False, whole=False)
    return seen


def _examine_plain(caller: Caller, seen: Examination) -> None:
    """Read weights and scan sizes of plain problems."""
    seen.readings = list(readings(caller))
    if not _is_surely_rounded(seen):
        seen.causes = causes(caller, seen.readings)
    seen.scans = list(scans(caller))
    if seen.wrong and not _is_surely_rounded(seen):
        seen.split = _replaced(seen)
    if not seen.wrong and not any(each.understood for each in seen.causes):
        seen.causes = causes_of_falling_scores(caller) or seen.causes
    elif not seen.causes and not _is_surely_rounded(seen):
        _read_where_wrong(caller, seen)
    understood = any(each.understood for each in seen.causes)
    if not (seen.split or understood):
        factors = causes_of_rows(caller, seen.wrong, seen.readings)
        understood = any(each.understood for each in factors)
        seen.causes = factors if understood else seen.causes or factors
    if seen.split is None and not understood and (text := coincidences(seen.scans)):
        seen.split = ExperimentFinding(text, BY_PLACE, stage="sizes")


def _examine_further(caller: Caller, seen: Examination, *, plain_wrong: bool, whole: bool) -> None:
    """Try masks, features and values where plain problems are right, else what narrows it down."""
    if not plain_wrong:
        seen.features = list(features(caller))
        seen.returned = list(returned(caller))
        seen.values = list(values(caller))
    if whole or not plain_wrong:
        seen.masks = list(masks(caller, plain_wrong=plain_wrong))
    if not plain_wrong and not any(each.effect for each in seen.masks):
        seen.masks += mask_pairs(caller)
    plan = caller.candidate.masks
    seen.as_integers = () if plan is None else plan.unlike_as_integers
    if whole:
        seen.scales = measured(caller)
        seen.exponential = exponential_errors(caller)
    unknown = plain_wrong and not any(each.understood for each in seen.causes)
    if unknown and seen.split is None:
        seen.split = _other_split(caller)
    if whole or unknown:
        seen.influences = list(influences(caller))


def _other_split(caller: Caller) -> ExperimentFinding | None:
    """Return into which other heads or parts what is projected is split, where that is all."""
    if heads := head_count(caller):
        text = f"the output is that of {heads}, expected H heads of width D"
        remedy = "look at what num_heads becomes, and at the order of sizes in view or reshape"
        return ExperimentFinding(text, remedy, stage="heads")
    if parts := parts_read(caller):
        remedy = "part the stacked rows as torch stacks them: in_proj_weight.chunk(3) is q, k, v"
        return ExperimentFinding(parts, remedy, stage="parts")
    return None


def _replaced(seen: Examination) -> ExperimentFinding | None:
    """Return what stands in place of what, where wrong plain outputs are right for that."""
    text, remedy = replaced(seen.wrong)
    square = {t.problem.case.queries == t.problem.case.keys for t in seen.wrong} == {True}
    tied = all(each.problem.query is each.problem.key for each in seen.wrong)
    where = "wherever L = S: " if square and not tied else ""
    return ExperimentFinding(f"{where}{text}", remedy, stage="replaced") if text else None


def _read_where_wrong(caller: Caller, seen: Examination) -> None:
    """Read the weights at sizes of wrong answers: those read so far were right."""
    for each in seen.scans:
        wrong = [t for t in each.trials if t.wrong and is_telling(t)]
        worst = max(wrong, key=lambda t: t.largest_error, default=None)
        if worst is None:
            continue
        sample = int(worst.off.any(axis=(1, 2, 3)).argmax())
        found = read_problem(caller, worst.problem, sample, WORTH)
        if found := found or read_wider(caller, worst.problem):
            seen.readings.append(found)
    seen.causes = causes(caller, seen.readings)


def _is_surely_rounded(seen: Examination) -> bool:
    """Return whether errors are those of rounding, by their stage or by their size."""
    digit = seen.digits
    rounded = digit is not None and digit.rounding and not digit.right and digit.bits <= FINE
    return rounded and digit is not None and (digit.alike >= ALIKE or digit.bits > COARSE)


def _is_rounded(seen: Examination) -> bool:
    """Return whether errors are those of rounding: no function of the score gives them."""
    digit = seen.digits
    rounded = digit is not None and digit.rounding and not digit.right and digit.bits <= FINE
    understood = any(each.understood for each in seen.causes)
    return _is_surely_rounded(seen) or (rounded and not understood)


def cause_findings(seen: Examination) -> list[ExperimentFinding]:
    """Return the causes that the experiments found, the most telling first."""
    if seen.earlier.changes:  # what else is measured may follow from it
        return _earlier(seen)
    found = _crashes(seen)
    if seen.wrong or seen.causes or _is_surely_rounded(seen):
        found += _plain(seen)
    if seen.shared:
        found.append(ExperimentFinding(seen.shared, SHARED_REMEDY, stage="arrays"))
    found += [*_masked(seen), *_featured(seen)]
    found += [ExperimentFinding.of(each, "values") for each in seen.values]
    found += [ExperimentFinding(each, RETURN_USED, stage="returned") for each in seen.returned]
    narrow = list(_narrow(seen, found))
    # What is wrong without keys alone explains less than lost digits do.
    return sorted([*narrow, *found], key=lambda each: each.text.startswith(NO_KEYS))


def _narrow(seen: Examination, found: list[ExperimentFinding]) -> Iterator[ExperimentFinding]:
    """Yield what is wrong by more than lost digits: it shows in the narrower dtype too."""
    known = {each.text for each in found}
    for each in [] if seen.narrow is None else cause_findings(seen.narrow):
        if each.understood and each.stage not in {"digits", "state"} and each.text not in known:
            yield each


def _masked(seen: Examination) -> Iterator[ExperimentFinding]:
    """Yield what masks do, kinds of one effect together, that of the most kinds first."""
    kinds: dict[str, list[MaskEffect]] = {}
    understood = any(each.understood for each in seen.masks)
    effects = [e for e in seen.masks if e.effect and (e.understood or not understood)]
    if any(each.effect and each.name.startswith("weights=") for each in seen.features):
        effects = [each for each in effects if RETURNED not in each.name]  # wrong without a mask
    # The causal rule and floats are passed otherwise, and said by themselves.
    misread = [e for e in effects if seen.as_integers and re.search("bool|lengths", e.name)]
    if misread:
        said = f"`{seen.as_integers[0]}` of integers 0 and 1 is not read as one of booleans"
        text = f"{said}: {misread[0].effect}"
        yield ExperimentFinding(text, BOOLEANS_FIRST, stage="mask")
    effects = [each for each in effects if each not in misread]
    of_attn = {each.effect for each in effects if each.name.startswith("attn=")}
    for each in effects:
        # A padding mask may be passed as an attn_mask too: right in other ways, it is wrong by it.
        if each.always or each.name.startswith("attn=") or each.effect not in of_attn:
            kinds.setdefault(each.effect, []).append(each)
    for alike in sorted(kinds.values(), key=len, reverse=True):
        names = [each.name for each in alike]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN + 1 else ""
        shown = ", ".join(names[:SHOWN] if more else names)
        if cause := alike[0].cause:
            yield ExperimentFinding.of(cause.within(f"with {shown}{more}: "), "mask")


def _featured(seen: Examination) -> Iterator[ExperimentFinding]:
    """Yield which features alone are wrong."""
    for each in seen.features:
        if cause := each.cause:
            remedy = cause.remedy or f"look at what the code does only for {each.name}"
            found = replace(cause.within(f"with {each.name}: "), remedy=remedy)
            yield ExperimentFinding.of(found, "feature")


def _crashes(seen: Examination) -> list[ExperimentFinding]:
    """Return where calls fail, by the first size that decides it."""
    found = [
        ExperimentFinding(
            f"{_raised(error)} with {name}, and is answered without it", stage="crash"
        )
        for name, error in seen.unanswered.items()
    ]
    failing = [each for each in seen.scans if any(each.crashed.values())]
    if not failing:
        return found
    decided = [each for each in failing if each.crash_rule]
    first = decided[0] if decided else failing[0]
    rules = " or ".join(dict.fromkeys(str(each.crash_rule) for each in decided))
    where = f"wherever {rules}" if rules else f"at {_some(first)}"
    # What never answers, or answers no array, is not mended by the end of a loop.
    ends = bool(rules) and first.error.startswith("raised")
    remedy = "let a loop or reshape end where the array ends, whatever its length" if ends else ""
    text = f"{_raised(first.error)} {where}"
    return [*found, ExperimentFinding(text, remedy, stage="crash")]


def _raised(error: str) -> str:
    """Return what a call raised, or what was the matter with its answer, without the place."""
    said = without_place(error).rstrip(".")
    return f"{'' if said.startswith('the ') else 'the call '}{said}"


def _some(scan: Scan) -> str:
    failed = [value for value, flag in scan.crashed.items() if flag]
    if len(failed) == len(scan.crashed):
        return "every size that was tried"
    return f"{len(failed)} of {len(scan.crashed)} values of {scan.letter}, such as {failed[0]}"


def _earlier(seen: Examination) -> list[ExperimentFinding]:
    text = "; ".join(seen.earlier.changes[:2])
    return [
        ExperimentFinding(text, KEEP_NOTHING, evidence=wrong_sums(seen.readings), stage="state")
    ]


def _plain(seen: Examination) -> list[ExperimentFinding]:
    """Return why plain problems are answered wrongly."""
    where = _where(seen)
    if seen.digits is not None and _is_rounded(seen):
        return [_rounded(seen.digits, where)]
    if seen.split:
        return [replace(seen.split, evidence=where)]
    mixed = [each for each in seen.influences if not each.independent]
    if mixed and not any(each.understood for each in seen.causes):
        remedy = (
            f"compute each {mixed[0].word} from its own inputs: look at reshapes that put "
            f"{mixed[0].word}s and another axis into one or part them again, and for what is kept "
            "from one "
        )
        text = f"{mixed[0].word}s are not independent: {mixed[0].sentence}"
        evidence = "; ".join([where, *(each.text for each in seen.causes)])
        return [ExperimentFinding(text, f"{remedy}to the next", evidence, stage="influence")]
    if seen.causes:
        return [ExperimentFinding.of(each, "weights", where) for each in seen.causes]
    if seen.readings:
        return [_behind(seen, where)]
    return [ExperimentFinding(f"plain problems are wrong: {UNKNOWN}", "", where, understood=False)]


def _rounded(digit: ErrorAnalysis, where: str) -> ExperimentFinding:
    stage = f"the stage `{digit.stage}` is" if digit.stage else "some stage is"
    if digit.stage and digit.alike < ALIKE:
        stage = f"`{digit.stage}`, and perhaps what follows, is"
    heads = f" in {digit.heads}" if digit.heads else ""
    to = digit.dtype if digit.stage else f"about as few digits as {digit.dtype} has"
    return ExperimentFinding(
        f"{stage} rounded to {to}{heads}: {digit.bits:.1f} bits are right",
        "keep every stage in the dtype of the inputs", where, stage="digits",
        operation="narrower dtype",
    )  # fmt: skip


def _behind(seen: Examination, where: str) -> ExperimentFinding:
    """Say of right weights with a wrong output what is known."""
    spots = places(seen.wrong)
    text = contents(seen.wrong)
    if spots:
        stands = f" is {text}" if text else " is wrong"
        return ExperimentFinding(f"{', '.join(spots)} of the output{stands}; the weights are right",
                       "compute and write every row, head and column: look at the bounds of loops",
                       where, stage="output")  # fmt: skip
    return ExperimentFinding(
        "the weights read out are right, the output is not: projection of v, mixing, merge or "
        f"output projection; {UNKNOWN}", "", where, understood=False, stage="output",
    )  # fmt: skip


def _where(seen: Examination) -> str:
    """Return for which sizes and at which places plain problems are wrong."""
    rules = [
        f"wrong wherever {each.wrong_rule}"
        for each in seen.scans
        if each.wrong_rule and not each.always and any(each.wrong.values())
    ]
    spots = places(seen.wrong)
    text = contents(seen.wrong) if spots else ""
    off = [f"off: {', '.join(spots)}" + (f", {text} there" if text else "")] if spots else []
    tried = sum(len(each.trials) for each in seen.scans)
    return "; ".join([*rules[:3], *off, f"{tried} calls at sizes from 1 on"])
