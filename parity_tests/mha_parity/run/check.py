"""Run the cases that a candidate offers, and return the verdict over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.environment import environment
from mha_parity.core.options import Options
from mha_parity.core.threads import in_one_thread
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.oracle.torch_answers import active_record, asks_torch, load_torch, using_record
from mha_parity.run.asked_cases import cases_for, restricted_offer, settings_of, with_own_backward
from mha_parity.run.build_verdict import build_verdict
from mha_parity.run.chunks import WHOLE, Ending, Shard, run_chunks
from mha_parity.run.executors import process_count, processes, run_chunks_on
from mha_parity.run.failure_groups import failure_groups
from mha_parity.run.fresh_process import SAMPLED_FROM, FreshProcesses, state_findings
from mha_parity.run.kept_cases import RetainedResults
from mha_parity.run.overflow import overflow_check
from mha_parity.run.recorded_answers import record_of, recorded_cases, without_torch
from mha_parity.run.repro import Repro
from mha_parity.run.target_source import source_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.verdict import Verdict
    from mha_parity.run.case_run import CaseResult
    from mha_parity.run.chunks import ChunkResult

Progress = Callable[[int, int], None]

REFUSED_WITHIN = 0.5  # seconds in which a process says that there is no such target, most often


def check(
    candidate: Candidate,
    options: Options | None = None,
    *,
    target: str | None = None,
    repro: Repro | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Verdict:
    """Judge ``candidate`` over a run of cases and return the verdict.

    ``target`` is the text by which other processes find it. ``repro`` makes the lines that repeat
    a failure (default: commands). ``progress`` is called with (cases done, cases in all).
    ``executor`` runs the cases (default: processes of this machine, as ``options.jobs`` says);
    what fails is shrunk and diagnosed here.

    Raises
    ------
    UsageError
        The options leave nothing that the candidate offers, or it answered no case at all; or an
        executor is given that cannot open it.

    """
    options = options or Options()
    name = target or candidate.name
    repro = repro or Repro(name, options)
    # NumPy's own settings, whatever the caller's are: the harness computes with denormal numbers.
    as_numpy = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
    with using_record(record_of(options)), as_numpy:
        found, options = run_all(candidate, options, target, progress, executor=executor)
        return verdict_of(candidate, options, name, repro, found)


@dataclass(eq=False)
class RunResult:
    """Results of a run, or of one shard of it: the cases, the sums, and the checks of its calls."""

    case_results: list[CaseResult]
    systematic: SystematicErrorTest
    state: list[CheckResult]
    environment: dict[str, str]
    seconds: float
    ended: bool = False  # at its last failure


def run_all(
    candidate: Candidate,
    options: Options,
    target: str | None,
    progress: Progress | None,
    shard: Shard = WHOLE,
    *,
    executor: Executor | None = None,
) -> tuple[RunResult, Options]:
    """Return the results of all cases of a shard, and the options with what a record leaves."""
    started = time.perf_counter()
    record = active_record()
    here = executor is None and process_count(options, target) == 1
    # A page may be drawn of a shard when it is merged.
    kept = RetainedResults(drawn=options.draw or shard != WHOLE)
    case_results = kept.case_results
    systematic = SystematicErrorTest()
    there: dict[str, str] | None = None
    with _in_one_thread(candidate, torch=here), FreshProcesses(candidate) as fresh:
        options = options if record else with_own_backward(candidate, options)
        offer = restricted_offer(candidate, options)
        if record is None:
            cases: Iterable[Case] = cases_for(candidate, offer, options)
        else:
            cases = recorded_cases(record, offer, options)
            options = without_torch(options, cases)
        ending, ended = Ending(options.last_failure), False
        start = fresh.start if options.diagnose else _nothing
        for chunk in _chunks(candidate, options, target, cases, progress, shard, executor, start):
            # A chunk knows nothing of the failures of earlier ones, and may go beyond the end: its
            # sums too. So it is the same in one process and in several.
            reached = (n for n, each in enumerate(chunk.case_results, 1) if ending.reached_by(each))
            end = next(reached, None)
            kept.add(chunk.case_results[:end])
            systematic.merge(chunk.systematic)
            there = there or chunk.environment
            ended = end is not None
            if ended:
                break
            if shard.size(options.cases) >= SAMPLED_FROM:
                start()
        state = state_findings(candidate, case_results, fresh) if options.diagnose else []
    found = there or environment(None if record is None else record.environment)
    seconds = time.perf_counter() - started
    return RunResult(case_results, systematic, state, found, seconds, ended), options


@contextmanager
def _in_one_thread(candidate: Candidate, *, torch: bool) -> Iterator[None]:
    """Compute in this thread, and load torch before, where the oracle asks it: it is limited too.

    A target in another process gets a moment first: one that is not there is refused at once. What
    takes longer loads large libraries itself, and does so while torch is loaded here.
    """
    wait = getattr(candidate, "wait_until_loaded", None)
    if torch and asks_torch():
        if wait is not None:
            wait(REFUSED_WITHIN)
        load_torch()
    with in_one_thread(blas=wait is not None):
        yield


def verdict_of(
    candidate: Candidate, options: Options, target: str, repro: Repro, found: RunResult
) -> Verdict:
    """Return the verdict on what a run found; what fails is shrunk, diagnosed and drawn.

    Raises
    ------
    UsageError
        Not one case was answered.

    """
    started = time.perf_counter()
    fails = any(case_result.fails for case_result in found.case_results)
    with _in_one_thread(candidate, torch=fails):
        offer = restricted_offer(candidate, options)
        overflow = overflow_check(candidate, offer, strict=options.strict_overflow)
        over_run = [*found.systematic.check_results(), *overflow, *found.state]
        verdict = build_verdict(
            candidate, options, target, repro, found.case_results, over_run, offer,
            ended=found.ended,
        )  # fmt: skip
    return replace(
        verdict,
        failure_groups=failure_groups(found.case_results),
        environment=found.environment,
        seconds=found.seconds + time.perf_counter() - started,
        source=source_of(target, verdict.failures, verdict.diagnosis),
    )


def _chunks(
    candidate: Candidate,
    options: Options,
    target: str | None,
    cases: Iterable[Case],
    progress: Progress | None,
    shard: Shard,
    executor: Executor | None,
    on_failure: Callable[[], None],
) -> Iterator[ChunkResult]:
    """Yield the results of the cases chunk by chunk, from this process or from others."""
    total = shard.size(options.cases)

    def tick(done: int) -> None:
        if progress:
            progress(done, total)

    # A page draws what every case is allowed, and a shard may get one; else it is said of the
    # failures shown, which are judged again.
    settings = replace(
        settings_of(options, candidate),
        brief=shard == WHOLE and not options.draw,
    )
    handed = executor is not None
    number = process_count(options, target, compiles=candidate.facts.compiles, handed=handed)
    with nullcontext(executor) if number == 1 else processes(number) as elsewhere:
        if elsewhere is None or target is None:
            last = options.last_failure
            yield from run_chunks(
                candidate, cases, settings, tick, shard, last_failure=last, on_failure=on_failure
            )
        else:
            yield from run_chunks_on(elsewhere, target, options, cases, settings, tick, shard)


def _nothing() -> None:
    """Start no process: nothing is diagnosed."""
