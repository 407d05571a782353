"""Which features and sizes a wrong answer needs: the others are made plain one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.case import SIZES
from mha_parity.core.features import PLAIN
from mha_parity.core.text import listed
from mha_parity.diagnose.experiments.designs.shortest_rules import size_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.designs.calls import Caller

    Simpler = dict[str, Any]
AXES = ("gradients", "memory", "regime", "masked_rows", "weights", "scale", "layout", "zero_attn",
        "bias_kv", "out_proj", "bias", "padding", "attn")  # fmt: skip
SMALL = {"batch": 2, "queries": 5, "keys": 7, "heads_count": 3, "head_dim": 6,
         "kv_heads_count": 0, "v_head_dim": 0}  # fmt: skip
# What a case has whose size of this name is not 0.
WITHOUT = {
    "kv_heads_count": "fewer key heads than query heads",
    "v_head_dim": "another head width in V",
}
BEYOND = (1, 2, 3, 8)  # sizes above the one of a failing case that are tried too
SEEDS = 8  # by which a mask may be passed as before
MOVED = 3  # by which a size is changed that another may be compared with
LETTERS = {name: letter for letter, name in SIZES.items()}


@dataclass(frozen=True)
class Needs:
    """The plainest case that is still wrong, and which of its features and sizes that needs.

    ``simpler``: the case without each of ``kept``. ``shared``: which of them other failing cases
    need as well; all where none was compared. ``crashed``: it raises, and is not wrong.
    """

    case: Case
    kept: tuple[str, ...]
    simpler: tuple[Simpler, ...]
    ruled: tuple[bool, ...]
    shared: tuple[bool, ...] = ()
    crashed: bool = False

    @property
    def sizes_alone(self) -> bool:
        """Whether sizes are all that is needed."""
        return all(LETTERS.keys() & simpler.keys() for simpler in self.simpler)

    @property
    def agreed(self) -> bool:
        """Whether no other failing case is wrong without one of them."""
        return all(self.shared)

    @property
    def sentence(self) -> str:
        """Return what is needed, as a sentence; of one case alone where others fail without it."""
        wrong, right = ("raises", "answers") if self.crashed else ("wrong", "right")
        if self.agreed:
            without = "any one of them" if len(self.kept) > 1 else "it"
            return f"{wrong} with {listed(self.kept)}, and {right} without {without}"
        pairs = list(zip(self.kept, self.shared, strict=True))
        common, own = ([text for text, shared in pairs if shared is each] for each in (True, False))
        one = f"one failing case needs {listed(own)}{' besides' if common else ''}"
        return f"{f'{wrong} with {listed(common)}; ' if common else ''}{one}, and others do not"

    def compared(self, caller: Caller, failing: Sequence[Case]) -> Needs | None:
        """Return the same, with which of them these failing cases need; None if time is over."""
        others = [each for each in failing if _is_wrong(caller, each, self.crashed)]
        pairs = list(zip(self.simpler, self.ruled, strict=True))
        shared = [all(self._needs(caller, each, *pair) for each in others) for pair in pairs]
        return replace(self, shared=tuple(shared)) if caller.running() else None

    def _needs(self, caller: Caller, other: Case, simpler: Simpler, ruled: bool) -> bool:
        """Return whether another case has a feature too, and is not wrong without it.

        A size that no rule fits is shared by those of the same size alone, unless it is left out.
        """
        sizes = [name for name, size in simpler.items() if size]
        if not ruled and any(getattr(other, name) != getattr(self.case, name) for name in sizes):
            return False
        if other.inputs == "self" and {"queries", "keys"} & simpler.keys():
            simpler = dict.fromkeys(("queries", "keys"), next(iter(simpler.values())))
        return not _is_wrong(caller, other.replace(**simpler), self.crashed)


def needed(caller: Caller, case: Case) -> Needs | None:
    """Return the features that make a case wrong, or raise; None if it is right, or none matters.

    None where the time is over as well: what was not asked is not needed.
    """
    crashed = _is_wrong(caller, case, True)
    if not crashed and not _is_wrong(caller, case, False):
        return None
    kept: dict[str, Simpler] = {}
    for said, simpler in list(_steps(caller, case)):
        merged = _with_masks_alike(caller, case, case.replace(**simpler))
        # One sample without an axis of samples is no size that could be another.
        if merged in {None, case} or ("batch" in simpler and case.layout == "unbatched"):
            continue
        wrong = _wrong_if_asked(caller, merged, crashed)
        if wrong:
            case = merged
        elif wrong is not None:
            kept[said] = simpler
    rules = [_size_needed(caller, case, simpler, crashed) for simpler in kept.values()]
    if not kept or not caller.running():
        return None
    texts = tuple(rule or text for rule, text in zip(rules, kept, strict=True))
    return Needs(case, texts, tuple(kept.values()), tuple(map(bool, rules)), crashed=crashed)


def _size_needed(caller: Caller, case: Case, simpler: Simpler, crashed: bool) -> str:
    """Return from which size on a case is wrong, where its neighbours follow one rule."""
    axes = {axis: size for axis, size in simpler.items() if axis in LETTERS and size}
    if not axes:
        return ""
    axis, low = next(iter(axes.items()))
    high = getattr(case, axis)

    def wrong(size: int) -> bool:
        return _is_wrong(caller, case.replace(**dict.fromkeys(axes, size)), crashed)

    tried = {low: False, high: True} | {high + more: wrong(high + more) for more in BEYOND}
    while low + 1 < high:
        middle = (low + high) // 2
        tried[middle] = wrong(middle)
        low, high = (low, middle) if tried[middle] else (middle, high)
    letter = " = ".join(LETTERS[axis] for axis in axes)
    beyond = high == low + 1 and all(tried[size] for size in tried if size >= high)
    larger = _larger_than(caller, case, tuple(axes), low, crashed) if beyond else ""
    return f"{letter} > {larger}" if larger else size_rule(letter, tried) or ""


def _larger_than(
    caller: Caller, case: Case, axes: tuple[str, ...], last: int, crashed: bool
) -> str:
    """Return which other size is the last right one of an axis, "" if none moves it."""
    for other in (each for each in LETTERS if each not in axes):
        both = ("queries", "keys") if case.inputs == "self" and other == "queries" else (other,)
        if getattr(case, other) != last or (case.inputs == "self" and other == "keys"):
            continue
        moved = case.replace(**dict.fromkeys(both, last + MOVED))
        at, beyond = (moved.replace(**dict.fromkeys(axes, last + MOVED + more)) for more in (0, 1))
        if not _is_wrong(caller, at, crashed) and _is_wrong(caller, beyond, crashed):
            return " = ".join(LETTERS[each] for each in both)
    return ""


def _steps(caller: Caller, case: Case) -> Iterator[tuple[str, Simpler]]:
    """Yield what may be made plain, with what it is now."""
    offer = caller.candidate.offer
    exact = caller.base.dtype
    yield f"dtype={case.dtype}", {"dtype": exact}
    for axis in AXES:
        plain = PLAIN[axis] if PLAIN[axis] in offer[axis] else offer[axis][0]
        yield f"{axis}={getattr(case, axis)}", {axis: plain}
    for name, size in SMALL.items():
        if name == "heads_count" and ("many" not in offer["heads"] or case.kv_heads_count):
            continue
        if name == "kv_heads_count" and offer["kv_heads"] == ("fewer",):
            continue
        if case.inputs == "self" and name in {"queries", "keys"}:
            if name == "queries":
                yield f"L = S = {case.queries}", {"queries": size, "keys": size}
            continue
        yield WITHOUT.get(name, f"{LETTERS[name]} = {getattr(case, name)}"), {name: size}


def _with_masks_alike(caller: Caller, case: Case, changed: Case) -> Case | None:
    """Return a changed case with the first seed by which its masks are passed as they were.

    None where none is: a target takes masks in several shapes and kinds, of which seed and sizes
    choose one, and a bug of one of them would seem to need the size that was changed.
    """
    plan, of_masks = caller.candidate.masks, ("attn", "padding")
    other_masks = any(getattr(case, axis) != getattr(changed, axis) for axis in of_masks)
    if plan is None or other_masks or case.attn == case.padding == "none":
        return changed
    wanted = _masks_passed(plan, case)
    for seed in range(case.seed, case.seed + SEEDS):
        each = changed.replace(seed=seed)
        if _masks_passed(plan, each) == wanted:
            return each
    return None


def _masks_passed(plan: Any, case: Case) -> dict[str, tuple[int, str]] | None:
    """Return number of axes and kind of what each parameter of masks gets; None without a way."""
    try:
        passed = plan.passed(make_problem(case))
    except CandidateError:
        return None
    arrays = {key: np.asarray(each.value) for key, each in passed.items()}
    return {key: (each.ndim, each.dtype.kind) for key, each in arrays.items()}


def _is_wrong(caller: Caller, case: Case, crashed: bool) -> bool:
    """Return whether a case is answered wrongly, or in another shape; or raises, if ``crashed``."""
    return bool(_wrong_if_asked(caller, case, crashed))


def _wrong_if_asked(caller: Caller, case: Case, crashed: bool) -> bool | None:
    """Return the same; None of a case that the target is not asked, which shows nothing."""
    if not caller.running():
        return False
    trial = caller.ask_problems([make_problem(case)])[0]
    if trial.not_asked:
        return None
    return trial.crashed if crashed else not trial.crashed and trial.wrong
