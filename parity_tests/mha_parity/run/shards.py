"""Merge the shards of a run: one verdict, that of the run in one piece.

Counts, errors and what the cases expose are carried by the shards. The target is opened again for
what needs its answers: failing cases are asked again, and then shrunk and diagnosed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from mha_parity import __version__
from mha_parity.core.environment import VERSIONS
from mha_parity.core.errors import UsageError
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.oracle.torch_answers import using_record
from mha_parity.run.asked_cases import settings_of
from mha_parity.run.case_run import CaseResult, run_cases
from mha_parity.run.check import RunResult, run_all, verdict_of
from mha_parity.run.chunks import CHUNK_SIZE, KEPT_FAILURES
from mha_parity.run.recorded_answers import record_of
from mha_parity.run.repro import Repro
from mha_parity.run.shard_file import ShardRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.options import Options
    from mha_parity.core.verdict import Verdict
    from mha_parity.run.check import Progress
    from mha_parity.run.chunks import Shard

FREE = {"draw", "jobs"}  # options in which the shards of a run may differ


def run_shard(
    candidate: Candidate, options: Options, target: str, shard: Shard, progress: Progress
) -> ShardRun:
    """Run one shard of the cases, and keep what the verdict over the whole run needs."""
    options = replace(options, max_failures=0)  # a shard knows nothing of the others' failures
    with using_record(record_of(options)):
        found, ran = run_all(candidate, options, target, progress, shard)
    return ShardRun(target, options, shard, ran.cases, found)


def merged(shards: Sequence[ShardRun], candidate: Candidate, options: Options) -> Verdict:
    """Return the verdict over all shards of one run; ``options`` are the run's.

    Raises
    ------
    UsageError
        Not one case was answered.

    """
    target, total = shards[0].target, shards[0].total
    repro = Repro(target, options)
    with using_record(record_of(options)):
        found = _all_results(shards)
        narrowed = replace(options, cases=total, shrink=options.answers is None)
        found.case_results = _with_arrays(candidate, found.case_results, narrowed)
        verdict = verdict_of(candidate, narrowed, target, repro, found)
    return replace(verdict, notes=(_note(len(shards)), *verdict.notes))


def _note(count: int) -> str:
    return (
        f"merged from {count} shards: statelessness was asked within each shard alone, and the "
        "size of a systematic error may differ in its last digits from that of the whole run"
    )


def _all_results(shards: Sequence[ShardRun]) -> RunResult:
    """Return the results of all shards in the order of the run."""
    results: list[CaseResult | None] = [None] * shards[0].total
    systematic = SystematicErrorTest()
    for each in shards:
        results[each.shard.number - 1 :: each.shard.of] = each.found.case_results
        systematic.merge(each.found.systematic)
    whole = [result for result in results if result is not None]
    place = {result.case: number for number, result in enumerate(whole)}
    for each in shards:
        for dtype, case in each.found.systematic.last.items():
            systematic.last[dtype] = max(systematic.last[dtype], case, key=lambda c: place[c])
    return RunResult(
        case_results=whole,
        systematic=systematic,
        state=[result for each in shards for result in each.found.state][:1],
        environment=shards[0].found.environment,
        seconds=sum(each.found.seconds for each in shards),
    )


def _with_arrays(
    candidate: Candidate, results: list[CaseResult], options: Options
) -> list[CaseResult]:
    """Return the results with the arrays of those failures that a run in one piece keeps."""
    kept = list(kept_places(results))
    settings = settings_of(options, candidate)
    again = run_cases(candidate, [results[place].case for place in kept], settings)
    for place, case_result in zip(kept, again, strict=True):
        results[place] = replace(
            results[place],
            problem=case_result.problem,
            reference=case_result.reference,
            answer=case_result.answer,
        )
    return results


def kept_places(results: Sequence[CaseResult]) -> Iterator[int]:
    """Yield the places of the failures that keep their arrays, chunk by chunk.

    Those that float32 in place of float64 explains, and others, are counted each.
    """
    kept = {True: 0, False: 0}
    for start in range(0, len(results), CHUNK_SIZE):
        places = range(start, min(start + CHUNK_SIZE, len(results)))
        failing = [place for place in places if results[place].fails]
        for explained in [each for each, count in kept.items() if count < KEPT_FAILURES]:
            alike = (p for p in failing if results[p].right_by_float32 is explained)
            for place in islice(alike, KEPT_FAILURES):
                kept[explained] += 1
                yield place


def of_one_run(files: Sequence[tuple[str, Sequence[ShardRun]]]) -> list[list[ShardRun]]:
    """Return for each target its shards in order, from (path, runs) of each file.

    Raises
    ------
    UsageError
        A shard is missing or there twice, or the files are of different runs.

    """
    first_path, first = files[0]
    for path, runs in files:
        if [run.target for run in runs] != [run.target for run in first]:
            raise _differing(first_path, path, "targets", *(
                ", ".join(run.target for run in each) for each in (first, runs)
            ))  # fmt: skip
        for one, other in zip(first, runs, strict=True):
            for name, left, right in _compared(one, other):
                if left != right:
                    raise _differing(first_path, path, name, left, right)
    written = first[0].found.environment["mha_parity"]
    if written != __version__:
        raise UsageError(
            f"got shards of mha-parity {written}, but this is {__version__}; merge them by that."
        )
    of = first[0].shard.of
    numbers = [runs[0].shard.number for _, runs in files]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise UsageError(f"got shard {twice[0]}/{of} more than once; name each shard once.")
    missing = [str(number) for number in range(1, of + 1) if number not in numbers]
    if missing:
        raise UsageError(
            f"got {len(numbers)} of {of} shards, without {', '.join(missing)}; name the files of "
            "all shards."
        )
    ordered = sorted((runs for _, runs in files), key=lambda runs: runs[0].shard.number)
    by_target = [list(shards) for shards in zip(*ordered, strict=True)]
    for shards in by_target:
        _whole(shards)
    return by_target


def _compared(one: ShardRun, other: ShardRun) -> Iterator[tuple[str, object, object]]:
    """Yield what has to be equal in two shards of a run: a name, and what each has."""
    yield "number of shards", one.shard.of, other.shard.of
    yield "number of cases", one.total, other.total
    for field in dataclasses.fields(one.options):
        if field.name not in FREE:
            left, right = (getattr(each.options, field.name) for each in (one, other))
            yield f"option {field.name.replace('_', '-')}", left, right
    for name in VERSIONS:
        left, right = (each.found.environment.get(name) for each in (one, other))
        yield f"version of {name}", left, right


def _differing(first: str, path: str, name: str, left: object, right: object) -> UsageError:
    return UsageError(
        f"got files of different runs: the {name} is {left} in {first}, but {right} in {path}; "
        "name the shards of one run."
    )


def _whole(shards: Sequence[ShardRun]) -> None:
    """Make sure that the shards have all their cases."""
    for each in shards:
        count, size = len(each.found.case_results), each.shard.size(each.total)
        if count != size:
            raise UsageError(
                f"got {count} cases of {each.target} in shard {each.shard}, but should be {size}; "
                "run it anew."
            )
