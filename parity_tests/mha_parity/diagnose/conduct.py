"""Conduct that no formula explains: chance, memory, writing into inputs, answers by heart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity import dropout, unusual
from mha_parity.candidate import Answer, CandidateError
from mha_parity.diagnose.evidence import Observation, Prediction, as_float, observe
from mha_parity.making import make
from mha_parity.reading import plain_case, read
from mha_parity.verdict import Diagnosis
from mha_parity.wrong import catalogue
from mha_parity.wrong.state import INPUTS, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.candidate import Candidate
    from mha_parity.problem import Problem
    from mha_parity.values import Array

# The checks of conduct whose failure has a name in the catalogue.
NAMES = {
    "inputs unchanged": "mutates-inputs",
    "weights reloaded": "stale-weights",
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
    "unlike lengths": "kv-length-mismatch",
}
BESIDE = ({*dropout.CHECKS} - {"dropout off"}) | {*unusual.CHECKS}
SEEDS = 8
APART = 5  # cases on either side that a border between sizes rests on
ALIKE = 1e-3  # kept weights share one factor to this accuracy
# Sizes that are asked for nowhere else.
UNUSUAL = {"batch": 2, "queries": 6, "keys": 8, "head_dim": 13}


def noted(
    failing: Sequence[Observation],
) -> tuple[tuple[Diagnosis, ...], tuple[Diagnosis, ...]]:
    """Return what was noted during the calls themselves, and beside them, each check once.

    What was noted on problems beside the cases says nothing of why an answer to a case is wrong.
    """
    notes = [note for each in failing if each.answer for note in each.answer.notes]
    first = {note.partition(": ")[0]: note for note in reversed(notes)}
    told = {check: _noted(note) for check, note in reversed(first.items())}
    return (
        tuple(each for check, each in told.items() if check not in BESIDE),
        tuple(each for check, each in told.items() if check in BESIDE),
    )


def _noted(note: str) -> Diagnosis:
    """Return a note under the catalogue's name where it has one."""
    check, _, sentence = note.partition(": ")
    if check in NAMES:
        return _known(NAMES[check], sentence)[0]
    return Diagnosis(bug=None, title=sentence, explains=1.0, evidence=f"the check: {check}")


def named(
    candidate: Candidate, failing: Sequence[Observation], running: Callable[[], bool]
) -> tuple[Diagnosis, ...]:
    """Return the name of chance or memory at work, or nothing."""
    if not failing or not running():
        return ()
    return chance(candidate, failing[0]) or memory(candidate, failing)


def _known(bug_id: str, evidence: str, *, confident: bool = True) -> tuple[Diagnosis, ...]:
    bug = catalogue()[bug_id]
    return (
        Diagnosis(
            bug=bug_id,
            title=bug.title,
            remedy=bug.remedy,
            explains=1.0,
            confident=confident,
            aliases=bug.aliases,
            evidence=evidence,
            source=", ".join(bug.sources[:3]),
        ),
    )


def ask(candidate: Candidate, problem: Problem) -> Answer | None:
    """Return the candidate's answer, or None where it gives none."""
    try:
        return candidate(problem)
    except CandidateError:
        return None


def chance(candidate: Candidate, seen: Observation) -> tuple[Diagnosis, ...]:
    """Ask the same thing twice: rounding may differ, the answer may not."""
    first, second = ask(candidate, seen.problem), ask(candidate, seen.problem)
    if first is None or second is None or first.output.shape != second.output.shape:
        return ()
    apart = seen.gap(Prediction(first, seen.right.reach), Prediction(second, seen.right.reach))
    if apart <= 1:
        return ()
    unlike = float(np.nanmax(np.abs(as_float(first.output) - as_float(second.output))))
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
    reading = read(candidate, plain_case(candidate.offer))
    if reading is None or not reading.weights.size:
        return None
    with np.errstate(all="ignore"):
        ratio = reading.weights / reading.right
    kept = ratio[ratio != 0]
    if not 0 < kept.size < ratio.size or np.ptp(kept) > ALIKE or kept.mean() <= 1:
        return None
    return float(1 - 1 / kept.mean())


def memory(candidate: Candidate, failing: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Ask problems of the same unusual shapes: later ones may get something of the first."""
    for each in failing[:4]:
        case = each.problem.case
        sizes = UNUSUAL | ({"keys": UNUSUAL["queries"]} if case.inputs == "self" else {})
        if case.layout == "unbatched":
            sizes |= {"batch": 1}
        seeds = (case.seed + 1, 5, 6)
        first, second, third = (
            observe(candidate, make(case.replace(seed=seed, **sizes))) for seed in seeds
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
        if mixed.fault <= 1 and not _without(later, names):
            return _known(
                bug_id,
                f"the second of two problems got the answer due with {_words(names)} of the first",
            )
    return ()


def _without(later: Observation, names: tuple[str, ...]) -> bool:
    """Return whether the answer is the one due with no masks at all: then none is remembered."""
    if names != INPUTS[3:]:
        return False
    case = later.problem.case.replace(padding="none", attn="none", masked_rows="none")
    bare = later.problem.replace(case=case, **dict.fromkeys(names))
    return Observation(bare, later.answer, failing=True).fault <= 1


def _words(names: tuple[str, ...]) -> str:
    return {INPUTS[3:]: "the masks", INPUTS[:3]: "the inputs", INPUTS[:1]: "the query"}.get(
        names, "the keys and values" if names == INPUTS[1:3] else "the weights"
    )


def by_heart(
    candidate: Candidate, failing: Sequence[Observation], running: Callable[[], bool]
) -> tuple[Diagnosis, ...]:
    """Ask the same case with other seeds: a formula is right for all of them or for none."""
    for each in failing[:2]:
        case = each.problem.case
        answers = []
        for seed in range(SEEDS):
            if not running():
                return ()
            answers.append(observe(candidate, make(case.replace(seed=seed))))
        right = sum(o.answer is not None and o.fault <= 1 for o in answers)
        wrong = [o for o in answers if o.failing]
        if not right or not wrong:
            continue
        sentence = (
            f"of {SEEDS} seeds of one case {right} are answered rightly, {len(wrong)} wrongly"
        )
        constant = all(_constant(o.answer) for o in wrong)
        return _known("input-keyed-shortcut", sentence, confident=constant)
    return ()


SIZES = {
    "queries": "L", "keys": "S", "batch": "N", "heads_count": "H", "head_dim": "D",
}  # fmt: skip


def by_size(seen: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Say which size decides between right and wrong: what is made up there is a shortcut."""
    answered = [each for each in seen if each.answer is not None]
    wrong = [each for each in answered if each.failing]
    right = [each for each in answered if not each.failing]
    if min(len(wrong), len(right)) < APART:
        return ()
    for name, letter in SIZES.items():
        low, high = ([getattr(o.problem.case, name) for o in group] for group in (right, wrong))
        if max(low) < min(high):
            told = f"right wherever {letter} <= {max(low)}, wrong wherever {letter} >= {min(high)}"
        elif max(high) < min(low):
            told = f"right wherever {letter} >= {min(low)}, wrong wherever {letter} <= {max(high)}"
        else:
            continue
        if all(_constant(each.answer) for each in wrong):
            return _known("size-keyed-shortcut", f"{told}, by one constant")
        return (Diagnosis(bug=None, title=told, explains=1.0, evidence=f"{len(answered)} cases"),)
    return ()


def _constant(answer: Answer | None) -> bool:
    if answer is None:
        return False
    output: Array = as_float(answer.output)
    return bool(output.size and np.ptp(output) == 0)
