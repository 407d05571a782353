"""The further cases of a diagnosis: plain values, all offered features, distinct sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.core.case import plain_distance
from mha_parity.core.features import DTYPES, EXTREME_VALUES
from mha_parity.core.target_facts import takes_one_length
from mha_parity.diagnose.evidence import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.catalogue import Attention
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

SEED = 20_240_607
VARIED = 32
POOL = 160
CHOSEN = 12
CONFIRMING = 4
ALIKE = 4  # failing cases of which relatives are drawn
RELATIVES = 3
WILD = {
    "very_negative",
    "wide_range",
    "huge",
    "tiny",
    *EXTREME_VALUES,
}  # regimes in which rounding hides what bugs do


def plainest_cases(cases: Sequence[Case], count: int) -> list[int]:
    """Return which cases have the fewest odd features, the plainest first."""
    order = sorted(range(len(cases)), key=lambda i: (cases[i].regime in WILD, _half(cases[i]),
                                                     plain_distance(cases[i]), i))  # fmt: skip
    return order[:count]


def _half(case: Case) -> bool:
    return case.dtype in {"float16", "bfloat16"}


def plain_offer(offer: Offer) -> Offer:
    """Return the offer in its most exact dtype, without odd values, rows without keys and so on."""
    dtypes = [d for d in DTYPES if d in offer["dtype"]]
    wanted: dict[str, tuple[str, ...]] = {
        "dtype": (dtypes[0],),
        "masked_rows": ("none",),
        "regime": ("normal",),
    }
    wanted |= {"memory": ("c",), "layout": (offer["layout"][0],), "gradients": ("no",)}
    sizes = tuple(s for s in ("small", "medium", "equal") if s in offer["size"])
    if sizes:
        wanted["size"] = sizes
    result = dict(offer)
    for axis, values in wanted.items():
        offered = tuple(v for v in values if v in offer[axis])
        result[axis] = offered or offer[axis]
    return result


def varied_problems(offer: Offer) -> list[Problem]:
    """Return problems over all offered features, values plain."""
    return [make_problem(case) for case in draw_cases(plain_offer(offer), VARIED, SEED)]


def similar_problems(cases: Sequence[Case], candidate: Candidate) -> list[Problem]:
    """Return problems with the features of the given cases, values plain, distinct sizes."""
    exact = plain_offer(candidate.offer)["dtype"][0]
    square = takes_one_length(candidate.facts.reasons)
    return [
        make_problem(_relative(case, seed, exact, square=square))
        for case in cases
        for seed in range(RELATIVES)
    ]


def _relative(case: Case, seed: int, dtype: str, *, square: bool) -> Case:
    rows = 5 if square or case.inputs == "self" else 4 + 3 * (seed % 2)
    return case.replace(
        seed=SEED + seed, dtype=dtype, queries=rows, keys=5, regime="normal", memory="c",
        batch=1 if case.layout == "unbatched" else 3, gradients="no",
    )  # fmt: skip


def problem_pool(offer: Offer) -> list[Problem]:
    """Return many problems, odd values included, to choose from."""
    plain = draw_cases(plain_offer(offer), POOL, SEED + 1)
    exact = {axis: plain_offer(offer)[axis] for axis in ("dtype", "gradients")}
    odd = draw_cases({**offer, **exact}, POOL // 2, SEED + 2)
    return [make_problem(case) for case in (*plain, *odd)]


def separating_problems(
    kinds: Sequence[type[Attention]], pool: Sequence[Problem], running: Callable[[], bool]
) -> list[Problem]:
    """Return problems on which the kinds predict different answers: each adds a split."""
    chosen: list[Problem] = []
    classes = [0] * len(kinds)
    for problem in pool:
        if not running() or len(chosen) == CHOSEN:
            break
        blank = Observation(problem, None, failing=False)
        groups = _groups(kinds, blank)
        refined = [hash((a, b)) for a, b in zip(classes, groups, strict=True)]
        if len(set(refined)) > len(set(classes)):
            classes = refined
            chosen.append(problem)
    return chosen


def revealing_problems(
    kind: type[Attention], pool: Sequence[Problem], running: Callable[[], bool]
) -> list[Problem]:
    """Return a few problems on which ``kind`` departs from the right answer."""
    chosen: list[Problem] = []
    for problem in pool:
        if not running() or len(chosen) == CONFIRMING:
            break
        if Observation(problem, None, failing=False).distinguishes(kind):
            chosen.append(problem)
    return chosen


def _groups(kinds: Sequence[type[Attention]], blank: Observation) -> list[int]:
    """Return for each kind the index of the first one that predicts the same."""
    leaders: list[type[Attention]] = []
    groups = []
    for kind in kinds:
        for i, leader in enumerate(leaders):
            if blank.gap(blank.of(kind), blank.of(leader)) <= 1:
                groups.append(i)
                break
        else:
            groups.append(len(leaders))
            leaders.append(kind)
    return groups
