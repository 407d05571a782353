"""Run the suite on the whole catalogue: which checks see which wrong attention.

Every bug runs on all cases, so that the oracle answers each of them once. Every check is made of
every bug over the first ``FULL`` cases, whether or not another check has seen it; a bug that none
has seen goes on to the last case. So do the right attentions, the *controls* (the matrix is void
where one fails), and the equivalents. A bug in rows that see no key alone, about which torch
disagrees with itself, meets the demand for torch's NaN (``--fully-masked nan``).
"""

from __future__ import annotations

from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.catalogue import Attention, Bug, catalogue
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.catalogue.plain_layer import Layer
from mha_parity.catalogue.registry import feature_values
from mha_parity.core.options import Options
from mha_parity.oracle.eval_orders_vjp import VJP
from mha_parity.report.pipe_console import PipeConsole
from mha_parity.report.progress import progress
from mha_parity.run.process_pool import ProcessPool
from mha_parity.selftest import planted_run
from mha_parity.selftest.mutant import run_mutants, suite_cases
from mha_parity.selftest.mutation_matrix import (
    KillMatrix,
    MutantResult,
    matrix_markdown,
    print_matrix,
)
from mha_parity.selftest.provenance import with_origin

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

CASES = Options().cases
DEFAULT = ("float64", "float32")
CHUNK = 12  # bugs a task
WORKERS = 2
GRADIENT_CASES = 24  # cases with gradients cost more, and most of them show a wrong gradient


def controls() -> dict[str, Bug]:
    """Return the right attentions: with and without a policy, with gradients, as a layer."""
    gradients = feature_values("gradients=yes")
    return {
        bug.id: bug
        for bug in (
            _control("right attention"),
            _control("right attention held to NaN rows", policy=True),
            replace(
                _control("right attention with its gradients"),
                needs=gradients,
                make=with_gradients(VJP),
            ),
            replace(_control("right layer, monitored"), layer=lambda: Layer),
            replace(
                _control("right layer with its gradients, monitored"),
                needs=gradients,
                layer=lambda: Layer,
            ),
        )
    }


def _control(name: str, *, policy: bool = False) -> Bug:
    formula = "softmax(scale q k^T + masks) v"
    return Bug(
        id=name,
        family=0,
        title="nothing is wrong",
        wrong=formula,
        right=formula,
        visible_when="never",
        remedy="nothing to mend",
        equivalent="it is the attention that every bug is a change of",
        policy=policy,
        kinds=(Attention,),
    )


def run_matrix(
    seed: int = 0,
    cases: int = CASES,
    dtypes: Sequence[str] = DEFAULT,
    tick: Callable[[int, int], None] | None = None,
) -> KillMatrix:
    """Run the suite on the controls and on every bug, in each of the dtypes that it can be in.

    A bug that can be in none of them is run in its own dtypes.
    """
    found: dict[tuple[str, str], MutantResult] = {}
    with ProcessPool(WORKERS) as pool:
        tasks = [
            pool.submit(run_named, ids, dtype, seed, cases) for ids, dtype in mutation_tasks(dtypes)
        ]
        for done, future in enumerate(as_completed(tasks), start=1):
            found |= {(kill.bug, kill.dtype): kill for kill in future.result()}
            if tick:
                tick(done, len(tasks))
    order = {name: i for i, name in enumerate((*controls(), *catalogue()))}
    return KillMatrix(tuple(sorted(found.values(), key=lambda kill: (order[kill.bug], kill.dtype))))


def mutation_tasks(dtypes: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the entries of each dtype in chunks; the controls, which meet all cases, alone."""
    by_dtype: dict[str, list[str]] = {dtype: [] for dtype in dtypes}
    for bug in catalogue().values():
        for dtype in [d for d in dtypes if d in bug.dtypes] or bug.dtypes:
            by_dtype.setdefault(dtype, []).append(bug.id)
    for dtype, own in by_dtype.items():
        forward = [name for name in controls() if "gradients" not in controls()[name].needs]
        yield tuple(forward), dtype
        backward = [name for name in own if "gradients" in catalogue()[name].needs]
        if backward:
            yield (*(name for name in controls() if name not in forward), *backward), dtype
        plain = [name for name in own if name not in backward]
        for start in range(0, len(plain), CHUNK):
            yield tuple(plain[start : start + CHUNK]), dtype


def run_named(ids: Sequence[str], dtype: str, seed: int, cases: int) -> list[MutantResult]:
    """Return which checks see the entries of these ids."""
    entries = {**controls(), **catalogue()}
    gradients = entries[ids[0]].needs.get("gradients", ("no",))
    count = min(cases, GRADIENT_CASES) if gradients == ("yes",) else cases
    return run_mutants([entries[name] for name in ids], suite_cases(dtype, seed, count, gradients))


def main(asked: argparse.Namespace) -> int:
    """Show the matrix of each seed; return 1 where a bug survives or a right one fails."""
    console = PipeConsole()
    dtypes: tuple[str, ...] = asked.dtype
    matrices: list[KillMatrix] = []
    for seed in range(asked.seed, asked.seed + asked.seeds):
        with progress(console, f"the catalogue, seed {seed}", "running", "tasks") as tick:
            matrices.append(run_matrix(seed, asked.cases, dtypes, tick))
        print_matrix(matrices[-1], dtypes, seed, console, whole=len(matrices) == 1)
    with progress(console, "the planted bugs", "running", "bugs") as tick:
        seen = planted_run.detections(planted_run.planted(), count=asked.cases, tick=tick)
    planted_run.print_detections(seen, console)
    if asked.markdown:
        command = f"mha-parity mutants --seed {asked.seed} --seeds {asked.seeds}"
        command += f" --cases {asked.cases} --dtype {','.join(dtypes)}"
        found = matrix_markdown(matrices, dtypes) + planted_run.detection_markdown(seen)
        page = with_origin(found, command)
        Path(asked.markdown).write_text(page, encoding="utf-8")
    whole = all(each.seen == len(each.first) for each in seen)
    return int(not (whole and all(matrix.holds for matrix in matrices)))


__all__ = ["controls", "main", "run_matrix"]
