"""Which features and sizes a wrong answer needs: the others are made plain one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import SIZES
from mha_parity.core.features import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.calls import Caller

AXES = ("gradients", "memory", "regime", "masked_rows", "weights", "scale", "layout", "zero_attn",
        "bias_kv", "out_proj", "bias", "padding", "attn")  # fmt: skip
SMALL = {"batch": 2, "queries": 5, "keys": 7, "heads_count": 3, "head_dim": 6,
         "kv_heads_count": 0, "v_head_dim": 0}  # fmt: skip
LETTERS = {name: letter for letter, name in SIZES.items()}


def needed(caller: Caller, case: Case) -> str:
    """Return without which features and sizes a case is answered rightly; "" where it is now."""
    if not _is_wrong(caller, case):
        return ""
    kept = []
    for said, simpler in list(_steps(caller, case)):
        merged = case.replace(**simpler)
        if merged == case:
            continue
        if _is_wrong(caller, merged):
            case = merged
        else:
            kept.append(said)
    if not kept:
        return ""
    listed = " and ".join([", ".join(kept[:-1]), kept[-1]]) if len(kept) > 1 else kept[0]
    more = "any one of them" if len(kept) > 1 else "it"
    return f"wrong with {listed}, and right without {more}"


def _steps(caller: Caller, case: Case) -> Iterator[tuple[str, dict[str, object]]]:
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
    trial = caller.pose([make_problem(case)])[0]
    return not trial.crashed and trial.wrong
