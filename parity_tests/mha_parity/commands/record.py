"""Records what torch answers, for ``check --answers``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from mha_parity.answers import answers_file
from mha_parity.answers.record_case import record_case
from mha_parity.core.environment import environment
from mha_parity.core.features import AXES
from mha_parity.core.options import DEFAULT_TARGET
from mha_parity.core.threads import in_one_thread
from mha_parity.oracle.torch_answers import Record, load_torch, rows_share_nan
from mha_parity.report import files
from mha_parity.report.progress import progress
from mha_parity.run.asked_cases import cases_for, restricted_offer
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.case import Case
    from mha_parity.core.options import Options
    from mha_parity.core.own_weights import OwnWeights


def record(
    targets: Sequence[str], path: str, options: Options, console: Console, *, compact: bool
) -> int:
    """Write the cases that ``check`` would ask the targets, with torch's answers; return 0.

    Raises
    ------
    ValueError
        A target cannot be opened, or the file cannot be written.

    """
    files.require_writable_files([path])
    asked = [(name, options) for name in targets] or list(default_set(options))
    cases = dict(each for name, share in asked for each in _cases(name, share))
    shares_nan = tuple(dtype for dtype in AXES["dtype"] if rows_share_nan(dtype))
    kept = Record(shares_nan=shares_nan, environment=environment())
    recorded = []
    load_torch()
    with in_one_thread(blas=True), progress(Console(stderr=True), path, "recording") as tick:
        for done, (case, own) in enumerate(cases.items(), start=1):
            recorded.append(record_case(kept, case, own))
            tick(done, len(cases))
    size = answers_file.write_record(path, kept, recorded, compact=compact)
    console.print(f"{len(cases)} cases, {size / 1e6:.1f} MB: {path}", highlight=False)
    return 0


def default_set(options: Options) -> Iterator[tuple[str, Options]]:
    """Yield what is recorded without a target, each with its share of the cases.

    Layers find cases among those of the layer, functions among those of functions: one with masks,
    scales and dtypes as torch has them, and one of queries, keys and values in float64 alone.
    """
    share = max(options.cases // 5, 1)
    yield DEFAULT_TARGET, replace(options, cases=max(options.cases - 2 * share, 1))
    yield "mha_numpy:scaled_dot_product_attention", replace(options, cases=share)
    plain = replace(options, cases=share, dtypes=("float64",))
    yield "mha_numpy.textbook.plain:attention", plain


def _cases(target: str, options: Options) -> Iterator[tuple[Case, OwnWeights | None]]:
    """Yield the cases that ``check`` would ask a target, with the weights that it has already."""
    with opened(target, options) as candidate:
        own = candidate.facts.own_weights
        for case in cases_for(candidate, restricted_offer(candidate, options), options):
            yield case, own
