"""Calls of a layer that is built already with its own weights, and what of it cannot be varied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import NOT_ASKED
from mha_parity.core.identity_card import ExperimentResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

LENGTHS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 65)
BATCHES = (1, 2, 3)
LETTERS = {"head_dim": "D", "heads_count": "H", "kdim": "the width of keys",
           "vdim": "that of values"}  # fmt: skip
WRONG = "wrong with its own weights"


def own_weight_results(caller: Caller) -> tuple[ExperimentResult, ...]:
    """Return what the layer itself answers, and what of it is fixed; () of any other target."""
    own = caller.built
    if own is None:
        return ()
    trials = caller.ask_problems([own.problem(make_problem(case)) for case in _cases(caller)])
    bad = [each for each in trials if each.wrong or each.crashed]
    lengths = sorted({each.problem.case.queries for each in trials})
    where = f"{len(trials)} calls of L = {lengths[0]} … {lengths[-1]}"
    right = f"right in {where}, with the weights that it has"
    wrong = f"wrong or without an answer in {len(bad)} of {where}: {_first(bad)}" if bad else ""
    width = own.sizes["head_dim"] * own.sizes["heads_count"]
    fixed = [f"{said} = {own.sizes[n]}" for n, said in LETTERS.items() if own.sizes.get(n)]
    limit = own.limit.removeprefix("not offered: ")
    return (
        ExperimentResult(
            experiment="own weights", sentence=wrong or right, value=float(len(bad)), unit="calls",
            as_torch=not bad, clause=WRONG if bad else "",
        ),
        ExperimentResult(
            experiment="not varied", as_torch=None,
            sentence=f"{', '.join([*fixed, f'E = {width}'])}: the layer is built with them; other "
            "weights are given to copies of it" + (f"; not asked: {limit}" if limit else ""),
        ),
    )  # fmt: skip


def copies_refused(caller: Caller) -> str:
    """Return why no copy of a layer answers problems of other weights; "" where one does."""
    refused = [each for each in caller.trials if each.not_asked]
    if caller.built is None or len(refused) < len(caller.trials):
        return ""
    return refused[0].error.removeprefix(f"{NOT_ASKED}: ") if refused else ""


def _cases(caller: Caller) -> Iterator[Case]:
    assert caller.built is not None  # noqa: S101  (whoever asks has looked)
    for seed, length in enumerate(LENGTHS):
        batch = BATCHES[seed % len(BATCHES)]
        case = caller.case(batch=batch, queries=length, keys=length, seed=seed)
        yield caller.built.case(case)


def _first(bad: list[CallResult]) -> str:
    first = bad[0]
    return first.error.rstrip(".") if first.crashed else f"by up to {first.largest_error:.2g}"
