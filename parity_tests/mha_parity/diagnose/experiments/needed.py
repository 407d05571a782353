"""Which features and sizes a wrong answer needs: the others are made plain one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import SIZES
from mha_parity.core.features import PLAIN
from mha_parity.diagnose.experiments.rules import size_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.calls import Caller

    Simpler = dict[str, Any]
AXES = ("gradients", "memory", "regime", "masked_rows", "weights", "scale", "layout", "zero_attn",
        "bias_kv", "out_proj", "bias", "padding", "attn")  # fmt: skip
SMALL = {"batch": 2, "queries": 5, "keys": 7, "heads_count": 3, "head_dim": 6,
         "kv_heads_count": 0, "v_head_dim": 0}  # fmt: skip
BEYOND = (1, 2, 3, 8)  # sizes above the one of a failing case that are tried too
LETTERS = {name: letter for letter, name in SIZES.items()}


@dataclass(frozen=True)
class Needs:
    """The plainest case that is still wrong, and which of its features and sizes that needs."""

    case: Case
    kept: tuple[str, ...]
    sizes_alone: bool

    @property
    def sentence(self) -> str:
        """Return what is needed, as a sentence."""
        *first, last = self.kept
        listed = f"{', '.join(first)} and {last}" if first else last
        return f"wrong with {listed}, and right without {'any one of them' if first else 'it'}"


def needed(caller: Caller, case: Case) -> Needs | None:
    """Return the features that make a case wrong; None if it is right, or no feature matters."""
    if not _is_wrong(caller, case):
        return None
    kept: dict[str, Simpler] = {}
    for said, simpler in list(_steps(caller, case)):
        merged = case.replace(**simpler)
        if merged == case:
            continue
        if _is_wrong(caller, merged):
            case = merged
        else:
            kept[said] = simpler
    rules = tuple(_size_needed(caller, case, simpler) or text for text, simpler in kept.items())
    sizes_alone = all(LETTERS.keys() & simpler.keys() for simpler in kept.values())
    return Needs(case, rules, sizes_alone) if kept else None


def _size_needed(caller: Caller, case: Case, simpler: Simpler) -> str:
    """Return from which size on a case is wrong, where its neighbours follow one rule."""
    axes = {axis: size for axis, size in simpler.items() if axis in LETTERS and size}
    if not axes:
        return ""
    axis, low = next(iter(axes.items()))
    high = getattr(case, axis)

    def wrong(size: int) -> bool:
        return _is_wrong(caller, case.replace(**dict.fromkeys(axes, size)))

    tried = {low: False, high: True} | {high + more: wrong(high + more) for more in BEYOND}
    while low + 1 < high:
        middle = (low + high) // 2
        tried[middle] = wrong(middle)
        low, high = (low, middle) if tried[middle] else (middle, high)
    return size_rule(" = ".join(LETTERS[axis] for axis in axes), tried) or ""


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
        yield f"{LETTERS[name]} = {getattr(case, name)}", {name: size}


def _is_wrong(caller: Caller, case: Case) -> bool:
    """Return whether a case is answered wrongly, or in another shape."""
    if not caller.running():
        return False
    trial = caller.ask_problems([make_problem(case)])[0]
    return not trial.crashed and trial.wrong
