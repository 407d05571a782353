"""The order in which a run that ends at its first failure asks the drawn cases.

The first ``FIRST`` cases keep their places: they begin the pairwise cover, and on each of them
calls are repeated. Of the others of the first ``WINDOW`` cases, ``EARLY`` come next, chosen one by
one: the case with most pairs of features, size classes and interactions that no case before it has,
for its time. All others follow as drawn. The order does not depend on the number of cases: a
shorter run asks the first cases of a longer one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.covering import FIRST, REPEAT_EVERY, case_index, drawn_cases
from mha_parity.cases.generate import scale_factor
from mha_parity.cases.required_interactions import INTERACTIONS
from mha_parity.cases.sizes import judging_microseconds
from mha_parity.core.features import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer

EARLY, WINDOW = 40, 500
SINGLE = 20.0  # pairs that count as much as a feature that no case has yet
ANY_CASE = 5e3  # microseconds that a case takes whatever its sizes
SIZES = ("batch", "queries", "keys", "heads_count", "head_dim")


def asked_cases(offer: Offer, count: int, seed: int) -> Iterator[Case]:
    """Yield ``count`` drawn cases in the order of asking."""
    if count <= FIRST:
        yield from drawn_cases(offer, count, seed)
        return
    drawn = drawn_cases(offer, max(count, WINDOW), seed)
    window = list(itertools.islice(drawn, WINDOW))
    traits = [_traits(case) | _interactions(case, offer) for case in window]
    order = order_by_new_pairs(traits, [_time(case) for case in window])
    yield from itertools.islice(itertools.chain((window[i] for i in order), drawn), count)


def order_by_new_pairs(
    traits: Sequence[set[tuple[str, object]]], times: Sequence[float]
) -> list[int]:
    """Return the places of the cases in the order of asking."""
    names = {trait: i for i, trait in enumerate(dict.fromkeys(itertools.chain(*traits)))}
    has = np.zeros((len(traits), len(names)), dtype=np.float32)  # sums stay exact integers
    for i, own in enumerate(traits):
        has[i, [names[trait] for trait in own]] = 1
    left = np.ones((len(names), len(names)), dtype=np.float32)  # pairs that no case has yet
    chosen = list(range(min(FIRST, len(traits))))
    left[np.diag_indices_from(left)] = SINGLE
    for i in chosen:
        left[np.ix_(has[i] > 0, has[i] > 0)] = 0
    for _ in range(min(EARLY, len(traits) - len(chosen))):
        new = ((has @ left) * has).sum(axis=1) / np.asarray(times)
        new[chosen] = -1
        best = int(new.argmax())
        chosen.append(best)
        left[np.ix_(has[best] > 0, has[best] > 0)] = 0
    return chosen + sorted(set(range(len(traits))) - set(chosen))


def _traits(case: Case) -> set[tuple[str, object]]:
    """Return the features of a case, classes of its sizes, which are equal, and what it repeats."""
    sizes = {name: getattr(case, name) for name in SIZES}
    keys = case.keys + (case.bias_kv == "yes") + (case.zero_attn == "yes")
    comparable = (case.regime, case.masked_rows) == (PLAIN["regime"], PLAIN["masked_rows"])
    repeated = comparable and case_index(case) % REPEAT_EVERY == 0
    return {
        *case.features().items(),
        *((f"binary digits of {name}", size.bit_length()) for name, size in sizes.items()),
        *((f"power of two in {name}", size & -size) for name, size in sizes.items()),
        *((a, b) for a, b in itertools.combinations(SIZES, 2) if sizes[a] == sizes[b]),
        ("no key, appended or not", keys == 0),
        ("sign of the scale", _sign_of_the_scale(case)),
        ("form whose calls are repeated", repeated and case.form),
    }


def _interactions(case: Case, offer: Offer) -> set[tuple[str, object]]:
    return {("interaction", each.name) for each in INTERACTIONS if each.shown_by(case, offer)}


def _sign_of_the_scale(case: Case) -> float | None:
    """Return the sign of a given scale; None without one, and where one key has all the weight."""
    if case.scale != "given" or case.keys < 2:
        return None
    return float(np.sign(scale_factor(case) or 0.0))


def _time(case: Case) -> float:
    return ANY_CASE + judging_microseconds(
        {name: getattr(case, name) for name in SIZES}, case.features()
    )
