"""Name conduct that no formula explains: nondeterminism, state, side effects, stored answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue
from mha_parity.catalogue.state import INPUTS
from mha_parity.checks import cached_rows, further_checks, nonfinite_inputs, statelessness
from mha_parity.checks.altered_problems import with_masks_of
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.compare import as_float64
from mha_parity.core.features import PLAIN, label
from mha_parity.core.problem import WEIGHTS
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.evidence import Observation, Prediction, observe
from mha_parity.diagnose.experiments.arrays.replaced_inputs import (
    SKIPPED,
    common_variant,
    skipped_variants,
)
from mha_parity.diagnose.experiments.designs.calls import CallResult
from mha_parity.diagnose.experiments.designs.variants import without_masks
from mha_parity.diagnose.read_weights import plain_case_for, read_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.problem import Problem

MUTATES = "mutates-inputs"
# The checks of conduct whose failure has a name in the catalogue.
NAMES = {
    "inputs unchanged": MUTATES,
    "dropout off": "dropout-in-eval",
    "forbidden modules": "torch-behind",
    "dropout on again": "sticky-eval",
    "dropout on the weights": "dropout-on-output",
    "dropout after the softmax": "dropout-before-softmax",
    "dropout rescales": "dropout-no-rescale",
    "dropout rate": "dropout-keeps-p",
    "dropped weights returned": "weights-before-dropout",
    "dropout of everything": "dropout-one-nan",
    "gradients with dropout": "grad-dropout-scale",
    "rejects mismatched K/V lengths": "kv-length-mismatch",
    nonfinite_inputs.NAME: "nan-replaced",
}
RELOADED = "weights reloaded"
ALIASING = "output aliasing"
REMEDIES = {
    "determinism": "write every element of the array that is returned: memory of np.empty or "
    "torch.empty holds what was there before; or look for dropout",
    "statelessness": "keep nothing from one call to the next, or only under what it depends on: "
    "look for buffers, caches and attributes that a call writes",
    "global state unchanged": "draw from a generator of your own (np.random.default_rng, "
    "torch.Generator), and put back what is set",
    RELOADED: "read the weights in each call, and keep nothing from one call to the next: look for "
    "copies of weights, buffers and attributes that a call writes",
    cached_rows.NAME: "append the keys and values of each call behind those of the cache, sample "
    "by sample, return both, and let row t of a sequence see rows 0 to t",
    **further_checks.REMEDIES,
    ALIASING: "return an array of its own: neither an input, nor a buffer that is used again",
}
# By what a finding says, before the remedies of its check.
BY_SENTENCE = {
    "state_dict()": "let state_dict() return the arrays that load_state_dict() was given, in their "
    "layout",
    cached_rows.GROUPED: "with a cache too, repeat each key head for all query heads of its group: "
    "repeat_interleave",
    **further_checks.BY_SENTENCE,
}
EXTRA_CHECKS = {*further_checks.CHECKS} - {"dropout off"}
SEEDS = 8
CASES_A_SIDE = 5  # cases on either side that a border between sizes rests on
PARTLY = 0.5  # explained by what calls do with one feature alone: less than all
NOT_REPEATED = "determinism"  # a plain failing case has it too, or it is not why that one fails
ASKED_AGAIN = 6  # failing cases, of which one feature may have all whose equal calls differ
ALONE_IN = 2  # cases with a finding, from which on what they share is said
ALIKE = 1e-3  # kept weights share one factor to this accuracy
# Sizes that are asked for nowhere else.
UNUSUAL = {"batch": 2, "queries": 6, "keys": 8, "head_dim": 13}


def from_findings(
    failing: Sequence[Observation],
) -> tuple[tuple[Diagnosis, ...], tuple[Diagnosis, ...]]:
    """Return the findings on the calls themselves, and those on further problems, each check once.

    A finding on a further problem does not explain why the answer to a case is wrong.
    """
    notes = [note for each in failing if each.answer for note in each.answer.notes]
    first = {note.partition(": ")[0]: note for note in reversed(notes)}
    if "statelessness" in first:  # what a call leaves stays for the calls that other checks make
        for check in (RELOADED, "memory layout"):
            first.pop(check, None)
        if "inputs unchanged" in first:  # asked again with arrays that it changed
            first.pop("statelessness")
    named_checks = {
        check: _from_finding(note, _shared(failing, check))
        for check, note in reversed(first.items())
    }
    return (
        tuple(each for check, each in named_checks.items() if check not in EXTRA_CHECKS),
        tuple(
            replace(each, explains=_share(failing, check))
            for check, each in named_checks.items()
            if check in EXTRA_CHECKS
        ),
    )


def _share(failing: Sequence[Observation], check: str) -> float:
    """Return the share of the failing cases that have a finding of a check."""
    return sum(_has(each, check) for each in failing) / len(failing)


def _has(each: Observation, check: str) -> bool:
    notes = () if each.answer is None else each.answer.notes
    return any(note.startswith(f"{check}: ") for note in notes)


def _shared(failing: Sequence[Observation], check: str) -> str:
    """Return the one feature of all cases with a finding that other failing cases lack; or ""."""
    sides: dict[bool, list[dict[str, str]]] = {True: [], False: []}
    for each in failing:
        sides[_has(each, check)].append(each.problem.case.features())
    if len(sides[True]) < ALONE_IN:
        return ""
    first, *others = sides[True]
    alone = [
        label(axis, value) for axis, value in first.items()
        if value != PLAIN.get(axis) and all(f[axis] == value for f in others)
        and any(f[axis] != value for f in sides[False])
    ]  # fmt: skip
    return alone[0] if len(alone) == 1 else ""


def _from_finding(note: str, shared: str = "") -> Diagnosis:
    """Return a finding under the catalogue's name where it has one."""
    check, _, sentence = note.partition(": ")
    if statelessness.OLD_WEIGHTS in sentence:
        return _known("stale-weights", sentence)[0]
    clauses = {**statelessness.CAUSES, **cached_rows.CAUSES}
    causes = (bug for clause, bug in clauses.items() if clause in sentence)
    bug = NAMES.get(check) or next(causes, None)
    if bug is not None:
        return _known(bug, sentence)[0]
    by_sentence = (remedy for said, remedy in BY_SENTENCE.items() if said in sentence)
    return Diagnosis(
        bug=None, title=f"with {shared}, {sentence}" if shared else sentence,
        explains=PARTLY if shared or check == NOT_REPEATED else 1.0, evidence=f"the check: {check}",
        remedy=next(by_sentence, REMEDIES.get(check, "")),
    )  # fmt: skip


def name_state(
    candidate: Candidate, failing: Sequence[Observation], running: Callable[[], bool]
) -> tuple[Diagnosis, ...]:
    """Return the name of nondeterminism or of a state between calls, or nothing.

    Chance in cases with one feature explains no others: the check of equal calls has said it.
    """
    if not failing or not running():
        return ()
    found = nondeterminism(candidate, failing[0])
    if found and _needs_feature(candidate, failing):
        return ()
    return found or state_between_calls(candidate, failing)


def _needs_feature(candidate: Candidate, failing: Sequence[Observation]) -> bool:
    """Return whether equal calls differ in all cases with one feature, and in no others."""
    sides: dict[bool, list[dict[str, str]]] = {True: [], False: []}
    for each in failing[:: max(len(failing) // ASKED_AGAIN, 1)]:
        sides[bool(nondeterminism(candidate, each))].append(each.problem.case.features())
    return len(sides[False]) >= ALONE_IN and any(
        value != PLAIN.get(axis)
        and all((f[axis] == value) is unlike for unlike, cases in sides.items() for f in cases)
        for axis, value in (sides[True] or [{}])[0].items()
    )


def _known(bug_id: str, evidence: str) -> tuple[Diagnosis, ...]:
    bug = catalogue()[bug_id]
    return (
        Diagnosis(
            bug=bug_id,
            title=bug.title,
            remedy=bug.remedy,
            explains=1.0,
            confident=True,
            aliases=bug.aliases,
            evidence=evidence,
            seen_in=", ".join(bug.sources[:3]),
        ),
    )


def answer_or_none(candidate: Candidate, problem: Problem) -> Answer | None:
    """Return the candidate's answer, or None where it gives none."""
    try:
        return candidate(problem)
    except CandidateError:
        return None


def nondeterminism(candidate: Candidate, seen: Observation) -> tuple[Diagnosis, ...]:
    """Ask the same thing twice: rounding may differ, the answer may not."""
    first, second = answer_or_none(candidate, seen.problem), answer_or_none(candidate, seen.problem)
    if first is None or second is None or first.output.shape != second.output.shape:
        return ()
    distance = seen.gap(
        Prediction(first, seen.right.largest_score), Prediction(second, seen.right.largest_score)
    )
    if distance <= 1:
        return ()
    unlike = float(np.nanmax(np.abs(as_float64(first.output) - as_float64(second.output))))
    sentence = f"two identical calls differ by {unlike:.3g}"
    rate = _dropped(candidate)
    if rate is None:
        return (Diagnosis(bug=None, title=sentence, evidence="the same problem asked twice",
                          explains=1.0, remedy="look for dropout, or memory that is read before "
                          "it is written"),)  # fmt: skip
    part = f"{sentence}; weights are zero or larger by 1/(1 - {rate:.2f})"
    return _known("dropout-in-eval", part)


def _dropped(candidate: Candidate) -> float | None:
    """Return the rate of dropout if weights are zero in places and too large by one factor else."""
    reading = read_weights(candidate, plain_case_for(candidate))
    if reading is None or not reading.weights.size:
        return None
    with np.errstate(all="ignore"):
        ratio = reading.weights / reading.right
    kept = ratio[ratio != 0]
    if not 0 < kept.size < ratio.size or np.ptp(kept) > ALIKE or kept.mean() <= 1:
        return None
    return float(1 - 1 / kept.mean())


def state_between_calls(
    candidate: Candidate, failing: Sequence[Observation]
) -> tuple[Diagnosis, ...]:
    """Ask problems of the same unusual shapes: later ones may get something of the first."""
    for each in failing[:4]:
        case = each.problem.case
        sizes = UNUSUAL | ({"keys": UNUSUAL["queries"]} if case.inputs == "self" else {})
        if case.layout == "unbatched":
            sizes |= {"batch": 1}
        seeds = (case.seed + 1, 5, 6)
        first, second, third = (
            observe(candidate, make_problem(case.replace(seed=seed, **sizes))) for seed in seeds
        )
        # Two answers with the same thing of the first problem in them: one may be chance.
        found, again = _recalled(first, second), _recalled(first, third)
        if found and again and found[0].bug == again[0].bug:
            return found
    return ()


def _recalled(earlier: Observation, later: Observation) -> tuple[Diagnosis, ...]:
    if not later.failing or earlier.failing or later.answer is None or earlier.answer is None:
        return ()
    if np.array_equal(later.answer.output, earlier.answer.output, equal_nan=True):
        return _known("cached-answer", "a second problem of the same shapes got the first answer")
    for bug_id, names in (
        ("stale-mask", INPUTS[3:]),
        ("stale-weights", WEIGHTS),
        ("stale-weights", WEIGHTS[:3]),
        ("cached-answer", INPUTS[:3]),
        ("cached-answer", INPUTS[:1]),
        ("cached-answer", INPUTS[1:3]),
    ):
        old = {name: getattr(earlier.problem, name) for name in names}
        mixed = Observation(later.problem.replace(**old), later.answer, failing=True)
        if mixed.error_in_tolerances <= 1 and not _without(later, names):
            return _known(
                bug_id,
                f"the second of two problems got the answer for {_words(names)} of the first",
            )
    return ()


def _without(later: Observation, names: tuple[str, ...]) -> bool:
    """Return whether the answer is the right one without any masks: then none is remembered."""
    if names != INPUTS[3:]:
        return False
    bare = without_masks(later.problem)
    return Observation(bare, later.answer, failing=True).error_in_tolerances <= 1


def _words(names: tuple[str, ...]) -> str:
    return {INPUTS[3:]: "the masks", INPUTS[:3]: "the inputs", INPUTS[:1]: "the query"}.get(
        names, "the keys and values" if names == INPUTS[1:3] else "the weights"
    )


def stored_answers(
    candidate: Candidate, failing: Sequence[Observation], running: Callable[[], bool]
) -> tuple[Diagnosis, ...]:
    """Say that answers are keyed to inputs: some inputs of one size are right, others wrong.

    A formula that departs at some values (a clipped score, a pruned weight) is right at others as
    well; its wrong answers depend on the inputs. Proof is one constant in place of each wrong one.
    """
    for each in failing[:2]:
        case = each.problem.case
        answers = []
        for seed in range(SEEDS):
            if not running():
                return ()
            problem = make_problem(case.replace(seed=seed))
            # What some masks alone do wrong is no matter of the inputs.
            problem = with_masks_of(problem, each.problem) or problem
            answers.append(observe(candidate, problem))
        right = sum(o.answer is not None and o.error_in_tolerances <= 1 for o in answers)
        wrong = [o for o in answers if o.failing]
        if right and wrong and all(_constant(o.answer) for o in (*wrong, each)):
            sentence = (
                f"of {SEEDS} seeds of one case {right} are answered rightly, {len(wrong)} by one "
                "constant"
            )
            return _known("input-keyed-shortcut", sentence)
    return ()


SIZES = {
    "queries": "L", "keys": "S", "batch": "N", "heads_count": "H", "head_dim": "D",
}  # fmt: skip


def size_border(seen: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Say which size decides between right and wrong: what is made up there is a shortcut."""
    answered = [each for each in seen if each.answer is not None]
    wrong = [each for each in answered if each.failing]
    right = [each for each in answered if not each.failing]
    if min(len(wrong), len(right)) < CASES_A_SIDE:
        return ()
    for name, letter in SIZES.items():
        low, high = ([getattr(o.problem.case, name) for o in group] for group in (right, wrong))
        if max(low) < min(high):
            border = (
                f"right wherever {letter} <= {max(low)}, wrong wherever {letter} >= {min(high)}"
            )
        elif max(high) < min(low):
            border = (
                f"right wherever {letter} >= {min(low)}, wrong wherever {letter} <= {max(high)}"
            )
        else:
            continue
        if all(_constant(each.answer) for each in wrong):
            return _known("size-keyed-shortcut", f"{border}, by one constant")
        if squeezed := _squeezed(wrong, letter):
            return (squeezed,)
        if skipped := common_variant([_as_call(o) for o in wrong], skipped_variants):
            return (
                Diagnosis(
                    bug=None, title=f"{border}: there {skipped}", explains=1.0, remedy=SKIPPED,
                    evidence=f"{len(wrong)} cases",
                ),
            )  # fmt: skip
        return (Diagnosis(bug=None, title=border, explains=1.0, evidence=f"{len(answered)} cases"),)
    return ()


def _as_call(each: Observation) -> CallResult:
    return CallResult(each.problem, each.answer)


def _squeezed(wrong: Sequence[Observation], letter: str) -> Diagnosis | None:
    """Return that outputs lack their axes of one element, where that is all their shape lacks."""
    shapes = [(o.answer.output.shape, o.right.answer.output.shape) for o in wrong
              if o.answer is not None and o.right.answer is not None]  # fmt: skip
    if any(
        a == b or tuple(n for n in b if n > 1) != tuple(n for n in a if n > 1) for a, b in shapes
    ):
        return None
    found, expected = shapes[0]
    return Diagnosis(
        bug=None, explains=1.0, evidence=f"{len(wrong)} cases",
        title=f"the output loses an axis where {letter} = 1: its shape is {found}, "
        f"expected {expected}",
        remedy="squeeze only an axis that the call itself has added, by its number",
    )  # fmt: skip


def _constant(answer: Answer | None) -> bool:
    if answer is None:
        return False
    output: Array = as_float64(answer.output)
    return bool(output.size and np.ptp(output) == 0)
