"""By which factor each gradient is off, over sizes, and in which heads and rows.

The output is right, so that only the backward pass is measured. The gradients of query and of what
projects it are one cause: they all follow from dQ.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.features import has_one_kv_head
from mha_parity.diagnose.experiments.arrays.error_places import AXES
from mha_parity.diagnose.experiments.conditions.sizes import LETTERS
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.shortest_rules import EVERYWHERE, index_rule, size_rule
from mha_parity.diagnose.experiments.designs.variants import with_key_heads, without_masks
from mha_parity.diagnose.experiments.gradients import recomputed_weights
from mha_parity.diagnose.experiments.gradients.gradient_departures import (
    RTOL,
    Departure,
    departures_of,
)
from mha_parity.diagnose.experiments.gradients.gradient_remedies import (
    BEFORE_SCALE,
    DETACHED,
    ONCE,
    SAME_KEYS,
    SAME_SCALE,
    SUM_BROADCAST,
    comparison_with,
)
from mha_parity.diagnose.experiments.gradients.group_gradients import sums_of_one_head
from mha_parity.diagnose.experiments.gradients.overflowing_gradients import overflowing
from mha_parity.diagnose.experiments.gradients.projection_gradients import projection_gradients
from mha_parity.diagnose.experiments.gradients.softmax_gradient import subtracted_sums
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

# No two of the sizes, and of their products by two, are equal.
SIZES = (
    {"batch": 2, "queries": 5, "keys": 7, "heads_count": 3, "head_dim": 11},
    {"batch": 3, "queries": 5, "keys": 4, "heads_count": 2, "head_dim": 13},
    {"batch": 2, "queries": 9, "keys": 11, "heads_count": 4, "head_dim": 17},
)
SCALES = (0.4, 0.7)  # that a caller gives
MASKS = {"padding": ("bool", "float"), "attn": ("causal", "bool2d", "float2d", "bool3d", "float3d")}
MANY = 128  # keys, of which a hidden one has a score far above the visible ones of its row
BEYOND = (8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200)


def _padded(multiple: int) -> Callable[[Case], float]:
    return lambda c: (c.head_dim / (-(-c.head_dim // multiple) * multiple)) ** 0.5


FACTORS: dict[str, Callable[[Case], float]] = {
    "0": lambda _: 0.0,
    "-1": lambda _: -1.0,
    "sqrt(D)": lambda c: c.head_dim**0.5,
    "1/sqrt(D)": lambda c: c.head_dim**-0.5,
    "D": lambda c: c.head_dim,
    "1/D": lambda c: 1 / c.head_dim,
    "N": lambda c: c.batch,
    "1/N": lambda c: 1 / c.batch,
    "H": lambda c: c.heads_count,
    "1/H": lambda c: 1 / c.heads_count,
    "L": lambda c: c.queries,
    "1/L": lambda c: 1 / c.queries,
    "S": lambda c: c.keys,
    "1/S": lambda c: 1 / c.keys,
    "1/(N H)": lambda c: 1 / (c.batch * c.heads_count),
    "1/(H L)": lambda c: 1 / (c.heads_count * c.queries),
    "1/(N L)": lambda c: 1 / (c.batch * c.queries),
    "1/sqrt(H)": lambda c: c.heads_count**-0.5,
    "1/(query heads of a key head)": lambda c: (c.kv_heads_count or 1) / c.heads_count,
    **{f"sqrt(D / (D rounded up to a multiple of {m}))": _padded(m) for m in (8, 16, 32, 64)},
}
NO_FACTOR = "by no one factor"
UNMASKED = "all gradients are those without the mask"
INPUT = "gradient of query"
# Which gradient of the heads an array's own follows from.
STAGE = {"query": "dQ", "key": "dK", "value": "dV", "q": "dQ", "k": "dK", "v": "dV"}


def gradient_effects(caller: Caller) -> tuple[Effect, ...]:
    """Return how gradients are off, what shares one cause as one effect; () where all are right.

    Masks, returned weights and fewer key heads are tried where plain problems are right.
    """
    most = _most(caller)
    trials = designed_trials(caller)
    plain = tuple(_sentences(trials))
    if plain or not trials:
        hides = any(each.problem.is_causal for each in trials)
        explained = _of_one_mistake(trials, plain) or _of_one_head(trials)
        return (hides and _without_masks(trials)) or explained or plain
    if beyond := tuple(_by_size(caller, most)):
        return beyond
    names: dict[Effect, list[str]] = {}
    for axis, kinds in MASKS.items():
        for kind in (k for k in kinds if k in caller.candidate.offer[axis]):
            case = caller.case(**_sizes(caller, SIZES[0]), **most, **{axis: kind})
            trials = _answered(caller, [case])
            for effect in _without_masks(trials) or _sentences(trials):
                names.setdefault(effect, []).append(f"{axis}={kind}")
    most_first = sorted(names, key=lambda effect: -len(names[effect]))
    masked = tuple(each.within(f"with {', '.join(names[each])}: ") for each in most_first)
    further = masked or tuple(_with_weights(caller, most)) or tuple(_of_groups(caller, most))
    if further := further or tuple(_with_given_scale(caller, most)):
        return further
    sizes = {**_sizes(caller, SIZES[0]), "queries": MANY, "keys": MANY}
    overflow = overflowing(caller, caller.case(**sizes, **most))
    return (overflow,) if overflow else ()


def _with_weights(caller: Caller, most: Mapping[str, str]) -> Iterator[Effect]:
    """Yield how gradients are off where the weights are returned too."""
    for kind in caller.candidate.offer["weights"]:
        if kind == "none" or not caller.running():
            continue
        cases = [caller.case(**_sizes(caller, s), **most, weights=kind) for s in SIZES[:2]]
        if found := list(_sentences(_answered(caller, cases))):
            yield from (each.within(f"with weights={kind}: ") for each in found)
            return


def _with_given_scale(caller: Caller, most: Mapping[str, str]) -> Iterator[Effect]:
    """Yield how gradients are off where the caller gives the scale."""
    if "given" not in caller.candidate.offer["scale"] or not caller.running():
        return
    cases = [caller.case(**_sizes(caller, s), **most, scale="given") for s in SIZES[:2]]
    problems = [
        make_problem(case).replace(given_scale=scale)
        for case, scale in zip(cases, SCALES, strict=True)
    ]
    trials = _with_gradients(caller.ask_problems(problems))
    found = [(t.problem, each) for t in trials for each in departures_of(t).values() if each]
    by_default = (
        each.scaled and abs(each.factor * p.scale * p.head_dim**0.5 - 1) <= RTOL[p.case.dtype]
        for p, each in found
    )
    if found and all(by_default):
        names = dict.fromkeys(_stage(each.name) or f"of {each.name}" for _, each in found)
        text = f"the gradients {', '.join(names)} are multiplied by 1/sqrt(D) in its place"
        effects = [Effect(text, SAME_SCALE)]
    else:
        effects = [*_sentences(trials)]
    yield from (each.within("with a scale that is given: ") for each in effects)


def _of_groups(caller: Caller, most: Mapping[str, str]) -> Iterator[Effect]:
    """Yield how gradients are off where query heads share key heads."""
    offer = caller.candidate.offer
    if "fewer" not in offer["kv_heads"] or has_one_kv_head(offer) or not caller.running():
        return
    sizes = [_sizes(caller, s) | {"heads_count": 6, "kv_heads_count": 3} for s in SIZES[:2]]
    trials = _answered(caller, [caller.case(**each, **most) for each in sizes])
    read = [found for each in trials if (found := _regrouped(each))]
    by_factor = len(read) < len(trials)
    if by_factor:  # a factor may be that of a group's query heads: two and three of them
        trials += _answered(caller, [caller.case(**sizes[0] | {"kv_heads_count": 2}, **most)])
    effects = _of_one_head(trials) or (_sentences(trials) if by_factor else dict.fromkeys(read))
    yield from (each.within("with grouped-query heads: ") for each in effects)


def _regrouped(trial: CallResult) -> Effect | None:
    """Return that gradients are summed over query heads of other groups, where they are."""
    problem, answer = trial.problem, trial.answer
    groups, heads = problem.num_kv_heads, problem.num_heads
    off = [name for name, found in departures_of(trial).items() if found is not None]
    if answer is None or not off or not set(off) <= {"key", "value"}:
        return None
    shared = np.arange(heads) // (heads // groups)
    right = with_gradients(VJP)()(with_key_heads(problem, groups, shared)).gradients or {}
    for name in off:
        own = right[name].reshape(*right[name].shape[:2], heads // groups, groups, -1)
        read, found = own.sum(axis=2).reshape(*right[name].shape[:2], -1), answer.gradients or {}
        if name not in found or not np.allclose(
            found[name], read, rtol=0, atol=RTOL[problem.case.dtype] * np.abs(read).max()
        ):
            return None
    stages = [_stage(name) for name in off]
    named = " and ".join(f"gradient {stage}" for stage in stages)
    return Effect(
        f"{named} {'is' if len(off) == 1 else 'are'} summed over the query heads h of one "
        f"h % {groups}, expected of one h // {heads // groups}",
        comparison_with(stages),
    )


def _of_one_mistake(trials: Sequence[CallResult], plain: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return the mistake that gives all gradients seen, where they are off by no one factor."""
    if not all(each.understood for each in plain):
        mistakes = (subtracted_sums(), recomputed_weights.of_other_bases(), projection_gradients())
        for effect, kind in chain.from_iterable(mistakes):
            if not any(any(departures_of(each, kind).values()) for each in trials):
                return (effect,)
    return ()


def _of_one_head(trials: Sequence[CallResult]) -> tuple[Effect, ...]:
    """Return which query head of a group alone has a part in the gradients of shared key heads."""
    wrong = [each for each in trials if any(departures_of(each).values())]
    if wrong and all(each.problem.case.kv_heads_count for each in trials):
        for effect, kind in sums_of_one_head():
            if not any(any(departures_of(each, kind).values()) for each in trials):
                return (effect,)
    return ()


def _without_masks(trials: Sequence[CallResult]) -> tuple[Effect, ...]:
    """Return that gradients are those without a mask, in whole or in the weights alone."""
    if not any(any(departures_of(each).values()) for each in trials):
        return ()
    bare = [replace(each, problem=without_masks(each.problem)) for each in trials]
    if not any(any(departures_of(each).values()) for each in bare):
        return (Effect(UNMASKED, SAME_KEYS),)
    for kind, text in recomputed_weights.KINDS:
        if not any(any(departures_of(each, kind).values()) for each in trials):
            return (Effect(text, SAME_KEYS),)
    return ()


def _most(caller: Caller) -> dict[str, str]:
    """Return the features with which most arrays have a gradient."""
    offer = caller.candidate.offer
    return {axis: offer[axis][-1] for axis in ("bias", "out_proj")} | {"gradients": "yes"}


def designed_trials(caller: Caller) -> list[CallResult]:
    """Return the answers, with gradients, to problems without a mask at three sizes."""
    most = _most(caller)
    return _answered(caller, [caller.case(**_sizes(caller, s), **most) for s in SIZES])


def _by_size(caller: Caller, most: Mapping[str, str]) -> Iterator[Effect]:
    """Yield which gradients are wrong from which size on, the other sizes being small."""
    for axis in ("keys", "queries", "head_dim"):
        if not caller.running():
            return
        if not caller.varies(axis):
            continue
        sizes = _sizes(caller, SIZES[0])
        # Two batch sizes: a factor is that of a formula in N only where it follows N.
        each = [{**sizes, axis: n, "batch": 2 + i % 2} for i, n in enumerate(BEYOND)]
        trials = _answered(caller, [caller.case(**s, **most) for s in each])
        cases = [each.problem.case for each in trials]
        wrong = [each for each in trials if any(departures_of(each).values())]
        off = {getattr(c, axis): t in wrong for c, t in zip(cases, trials, strict=True)}
        rule = size_rule(LETTERS[axis], off) if wrong else None
        if wrong:
            where = rule or f"{LETTERS[axis]} is {', '.join(str(n) for n in off if off[n])}"
            effects = tuple(_sentences(wrong))
            effects = _of_one_mistake(wrong, effects) or effects
            yield from (each.within(f"wherever {where}: ") for each in effects)
            return


def _sizes(caller: Caller, sizes: Mapping[str, int]) -> dict[str, int]:
    if caller.base.heads_count == 1 or caller.base.kv_heads == "fewer":
        return {**sizes, "heads_count": caller.base.heads_count}
    return dict(sizes)


def _answered(caller: Caller, cases: list[Case]) -> list[CallResult]:
    return _with_gradients(caller.ask_problems([make_problem(case) for case in cases]))


def _with_gradients(trials: Iterable[CallResult]) -> list[CallResult]:
    return [each for each in trials if each.answer is not None and each.answer.gradients]


def _sentences(trials: Sequence[CallResult]) -> Iterator[Effect]:
    """Yield an effect for each way of being off, with the gradients that share it."""
    calls = [departures_of(each) for each in trials]
    cases = [each.problem.case for each in trials]
    stages: dict[str, list[str]] = {}
    for name in calls[0] if calls else ():
        stages.setdefault(_stage(name), []).append(name)
    groups: dict[_Off, list[str]] = {}
    for stage, members in stages.items():
        ways = {name: _described(seen, cases) for name in members if (seen := _off(calls, name))}
        if stage and len(ways) == len(members):
            # One cause: said as where it shows best, in the weights' rows of each head.
            ways = {stage: max(ways.values(), key=lambda each: (each.placed, each.scaled))}
        for name, way in ways.items():
            groups.setdefault(way, []).append(f"gradient {'' if name == stage else 'of '}{name}")
    stated = any(
        set(STAGE.values()) & {n.rpartition(" ")[2] for n in names} for names in groups.values()
    )
    for way, names in groups.items():
        # In self-attention the gradient of the input is a sum of what is said already.
        if stated and names == [INPUT] and all(each.inputs == "self" for each in cases):
            continue
        text = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {way.text}"
        yield Effect(text, _remedy(names, way.factor), understood=bool(way.factor))


def _remedy(names: Sequence[str], factor: str) -> str:
    """Return what to do about gradients that are off by a factor; "" stands for no one factor."""
    if len(names) == 1 and names[0].endswith("mask") and factor.startswith("1/"):
        return BEFORE_SCALE if factor == "1/sqrt(D)" else SUM_BROADCAST
    if factor == "0":
        return DETACHED
    stages = {name.rpartition(" ")[2] for name in names}
    return comparison_with(stages, ONCE if factor == "1/sqrt(D)" else "")


def _off(calls: Sequence[Mapping[str, Departure | None]], name: str) -> list[Departure]:
    """Return the departures of one gradient, in the calls where it is off."""
    return [found for each in calls if (found := each.get(name)) is not None]


class _Off(NamedTuple):
    """How gradients are off, where a rule says in which places, and by which factor."""

    text: str
    placed: bool = False
    scaled: bool = False
    factor: str = ""


def _described(seen: list[Departure], cases: list[Case]) -> _Off:
    """Return by which factor gradients are off and where, by one rule for all calls."""
    if not all(each.off for each in seen):
        return _Off("missing, or of another shape than its array", factor="0")
    where = [rule for axis in range(4) if (rule := _rule(seen, axis))]
    spots = f" at {', '.join(where)}" if where else ""
    factors = [each.factor for each in seen]
    if not all(each.scaled for each in seen):
        return _Off(f"wrong{spots}, {NO_FACTOR}", bool(where))
    law = next((n for n, f in FACTORS.items() if _fits(f, factors, cases)), "")
    number = f"{factors[0]:.4g}"
    shown = f"{law} ({number})" if law and law not in {"0", "-1"} else law or number
    if not law and np.ptp(factors) > 1e-6 * abs(factors[0]):
        shown = ", ".join(f"{f:.4g}" for f in factors)
    text = f"{shown} times the right one{spots or ', in all heads and rows'}"
    return _Off(text, bool(where), True, law or shown.rpartition(" ")[2])


def _fits(formula: Callable[[Case], float], factors: list[float], cases: list[Case]) -> bool:
    return all(
        abs(formula(case) - factor) <= RTOL[case.dtype] * max(1.0, abs(factor))
        for factor, case in zip(factors, cases, strict=False)
    )


def _rule(seen: list[Departure], axis: int) -> str:
    places = [each.off[axis] for each in seen if each.off[axis].count > 1]
    rule = index_rule(AXES[axis], places) if places else EVERYWHERE
    return "" if rule in {None, EVERYWHERE} else str(rule)


def _stage(name: str) -> str:
    first = name.rpartition(".")[2] if name.startswith("in_proj") else name.partition("_proj")[0]
    return STAGE.get(first, "")
