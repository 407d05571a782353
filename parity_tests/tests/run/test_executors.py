"""Cases run elsewhere: any executor, a real Dask cluster, and one sentence where it cannot be."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import mha_parity
from mha_parity.__main__ import main
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.judging.output import DEFAULT_SETTINGS
from mha_parity.run import dask_executor, executors
from mha_parity.run.asked_cases import cases_for, settings_of
from mha_parity.run.check import check
from mha_parity.run.chunks import ChunkResult
from mha_parity.run.dask_executor import dask_cluster
from mha_parity.run.executors import run_chunks_on
from mha_parity.worker.open_target import opened
from subject_checks import SAME, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = {"shrink": False, "diagnose": False}
SIZE = 24  # cases of a chunk here
STARTED = 60  # seconds for scheduler and workers, whose imports take long on busy cores


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut runs into chunks of 24 cases: several of them are a short run."""
    monkeypatch.setattr("mha_parity.run.chunks.CHUNK_SIZE", SIZE)


def test_any_executor_gives_the_verdict_of_one_process() -> None:
    """A wrong target gets the same counts, checks and failures from an executor."""
    target, options = f"{SUBJECTS}/wrong_scale.py:f", {"cases": SIZE + 7, "seed": 5, **QUICK}
    with ThreadPoolExecutor(2) as executor:
        there = mha_parity.judge(target, executor=executor, **options)  # type: ignore[arg-type]  # options vary
    here = mha_parity.judge(target, jobs=1, **options)  # type: ignore[arg-type]  # options vary
    for field in SAME:
        assert _without_seconds(getattr(here, field)) == _without_seconds(getattr(there, field))


def test_a_worker_opens_a_target_anew_for_each_run(tmp_path: Path) -> None:
    """A file that is edited between two runs on the same workers is judged as it is then."""
    file = tmp_path / "edited.py"
    wrong = (SUBJECTS / "wrong_scale.py").read_text(encoding="utf-8")
    right = wrong.replace("np.sqrt(d_model)", "np.sqrt(d_model // n_heads)")
    assert right != wrong
    found = []
    with ThreadPoolExecutor(1) as executor:
        for text in (right, wrong):
            file.write_text(text, encoding="utf-8")
            options = {"cases": 24, **QUICK}
            found.append(mha_parity.judge(f"{file}:f", executor=executor, **options).outcome)  # type: ignore[arg-type]  # options vary
    assert [Outcome.PASS, Outcome.FAIL] == found


SCRIPT = """
import os

from mha_parity.run.executors import processes

with processes(1) as executor:
    print(executor.submit(os.getppid).result() == os.getpid())
"""


def test_a_script_that_guards_nothing_starts_processes(tmp_path: Path) -> None:
    """The processes do not run the caller's main module, which would start others in each."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (0, "True\n") == (done.returncode, done.stdout), done.stderr


KILLED = """
import os, signal
from mha_parity.run.executors import processes

with processes(1) as executor:
    print(executor.submit(os.getppid).result() == os.getpid(), flush=True)
    os.kill(os.getpid(), signal.{signal})
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_process_ends_with_a_caller_that_is_killed(name: str, tmp_path: Path) -> None:
    """A job that is cancelled leaves nothing: the worker closes the output that it shares."""
    script = tmp_path / "script.py"
    script.write_text(KILLED.format(signal=name), encoding="utf-8")
    # Output ends when no process holds it; a worker that lives on holds it for good.
    done = subprocess.run(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60,
        check=False,
    )  # fmt: skip
    assert (True, b"True\n") == (done.returncode < 0, done.stdout)


def _without_seconds(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(_without_seconds, found))
    return replace(found, seconds=0.0) if hasattr(found, "seconds") else found


def test_an_executor_is_refused_a_candidate_of_this_process() -> None:
    """A function has no text by which a worker could find it."""
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="got an executor"):
        mha_parity.judge(lambda Q, K, V: Q + K + V, executor=executor, convention="qkv")


def test_a_target_that_a_worker_cannot_open_is_refused() -> None:
    """What a worker raises as a user's mistake is one here too."""
    options = Options(cases=SIZE)
    with opened(f"{SUBJECTS}/projected.py:f", options) as candidate:
        cases = cases_for(candidate, candidate.offer, options)
        chunks = run_chunks_on(
            _Here(),
            f"{SUBJECTS}/no_such.py:f",
            options,
            cases,
            settings_of(options, candidate),
            print,
        )
        with pytest.raises(ValueError, match=r"no_such\.py"):
            next(chunks)


class _Here(Executor):
    """Run at once what is submitted, and keep the futures."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, call: Any, /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **keywords))
        except ValueError as error:
            future.set_exception(error)
        self.futures.append(future)
        return future


def _chunks(executor: Executor, cases: int) -> Iterator[ChunkResult]:
    """Yield the chunks of a run whose cases no target is asked."""
    settings = DEFAULT_SETTINGS
    return run_chunks_on(
        executor, "a.py:f", Options(), [None] * cases, settings, lambda _: None  # type: ignore[list-item]  # none is read
    )  # fmt: skip


def _empty_chunk(versions: Iterator[str]) -> Any:
    def run(*_: object) -> ChunkResult:
        environment = {"mha_parity": "1", "numpy": "2", "torch": next(versions)}
        return ChunkResult([], None, environment)  # type: ignore[arg-type]  # never merged

    return run


def test_workers_of_unlike_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is allowed may differ between versions of torch: no verdict mixes two."""
    monkeypatch.setattr(executors, "run_here", _empty_chunk(iter(["2.13", "2.13", "2.12"])))
    chunks = _chunks(_Here(), 3 * SIZE)
    next(chunks)
    next(chunks)
    with pytest.raises(ValueError, match=r"workers with torch 2\.13 and torch 2\.12"):
        next(chunks)


def test_a_worker_that_ends_is_said_in_one_sentence() -> None:
    """A worker that the system ends, for want of memory, is no finding of the target."""

    class Exits(ProcessPoolExecutor):
        def submit(self, _call: Any, /, *_args: Any, **_keywords: Any) -> Future[Any]:
            return super().submit(os._exit, 9)

    with (
        Exits(1, multiprocessing.get_context("spawn")) as executor,
        pytest.raises(ValueError, match="got a worker process that ended"),
    ):
        next(_chunks(executor, SIZE))


def test_few_chunks_are_handed_over_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of any length has a bounded number of chunks under way, and drops them when left."""
    monkeypatch.setattr(executors, "WAITING", 3)

    class Lazy(_Here):
        def submit(self, _call: Any, /, *_args: Any, **_keywords: Any) -> Future[Any]:
            self.futures.append(Future())
            return self.futures[-1]

    executor = Lazy()
    chunks = _chunks(executor, 10 * SIZE)
    answer = _empty_chunk(iter(["2.13"] * 10))

    def answers() -> None:
        while not executor.futures:
            time.sleep(0.001)
        executor.futures[0].set_result(answer())

    threading.Thread(target=answers).start()
    next(chunks)
    assert 3 == len(executor.futures)
    chunks.close()  # type: ignore[attr-defined]  # a generator
    assert [False, True, True] == [future.cancelled() for future in executor.futures]


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]]


@contextmanager
def _started(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        _command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@contextmanager
def _scheduler() -> Iterator[str]:
    """Start a scheduler on the loopback address, and yield where it listens."""
    own = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
    with _started("scheduler", *own) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"tcp://127\.0\.0\.1:\d+", line):
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        assert found is not None
        yield found[0]


def test_an_interrupt_leaves_the_cluster_free() -> None:
    """Ctrl-C in a long run leaves with 130, says how far it came, and drops what is not begun."""
    with _scheduler() as address, ExitStack() as stack:
        own = (address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        worker = stack.enter_context(_started("worker", *own))
        threading.Thread(target=worker.stderr.read, daemon=True).start()  # type: ignore[union-attr]  # a pipe

        from distributed import Client

        client = stack.enter_context(Client(address, set_as_default=False))
        client.wait_for_workers(1, timeout=STARTED)
        run = ["check", f"{SUBJECTS}/projected.py:f", "--cases", "100000", "--scheduler", address]
        command = [sys.executable, "-m", "mha_parity", *run]
        # A run in the background of a shell ignores SIGINT, and so would what it starts.
        held = signal.signal(signal.SIGINT, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGINT, held)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert any(" of 100000 cases" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        assert (130, True) == (
            process.returncode,
            "mha-parity: interrupted while judging" in rest and " of 100000 cases" in rest,
        ), rest
        until = time.monotonic() + STARTED
        while any(client.processing().values()) and time.monotonic() < until:
            time.sleep(0.1)
        assert not any(client.processing().values())


FAULTS = """
import os, resource, sys
import numpy as np
from mha_parity.run.dask_executor import keep_freed_memory

if sys.argv[1] == "dask":
    sys.modules["distributed"] = sys
keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    np.ones(1 << 18)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults, os.environ.get("MALLOC_TRIM_THRESHOLD_"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another system has no mallopt(3)")
def test_a_worker_of_dask_keeps_the_memory_that_it_freed() -> None:
    """Arrays of 2 MiB are mapped once, not each time; a process not of Dask keeps its setting."""
    few, setting = _page_faults("dask")
    many, kept = _page_faults("no")

    assert few < many / 10, (few, many)
    assert ("None", "65536") == (setting, kept)


def _page_faults(of: str) -> tuple[int, str]:
    """Return how often a page was mapped for 100 arrays, and what the setting is then."""
    setting = os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"}
    said = subprocess.check_output([sys.executable, "-c", FAULTS, of], env=setting, text=True)
    faults, left = said.split()
    return int(faults), left


def test_a_cluster_that_is_not_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No scheduler at the address: exit status 2, and the command that starts one."""
    monkeypatch.setattr(dask_executor, "SECONDS", 1)
    assert 2 == main(["check", "--scheduler", "tcp://127.0.0.1:1", "--cases", "5"])
    assert "start one by `dask scheduler`" in capsys.readouterr().err


def test_a_cluster_that_loses_a_worker_gives_the_verdict_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two workers is killed in the middle; the verdict is that of one process.

    Before they start, exit status 2 says that there are none, and the command that starts one.
    """
    target, cases = f"{SUBJECTS}/wrong_scale.py:f", 5 * SIZE
    options = Options(cases=cases, seed=5, **QUICK)  # type: ignore[arg-type]  # options vary
    with opened(target, options) as candidate:
        here = check(candidate, replace(options, jobs=1), target=target)
    with _scheduler() as address, ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(dask_executor, "SECONDS", 1)
            assert 2 == main(["check", "--scheduler", address, "--cases", "5"])
        assert f"start some by `dask worker {address} --nthreads 1`" in capsys.readouterr().err
        own = (address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        workers = [stack.enter_context(_started("worker", *own)) for _ in range(2)]
        for worker in workers:
            threading.Thread(target=worker.stderr.read, daemon=True).start()  # type: ignore[union-attr]  # a pipe

        from distributed import Client

        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=STARTED)
            killed: list[int] = []

            def kill_one(done: int, _: int) -> None:
                if done >= 2 * SIZE and not killed:
                    killed.append(workers[0].pid)
                    workers[0].kill()

            with (
                client.get_executor() as executor,
                opened(target, options) as candidate,
            ):
                there = check(
                    candidate, options, target=target, progress=kill_one, executor=executor
                )
            assert killed
            assert 1 == len(client.nthreads())  # of the scheduler: what a client keeps may lag
        from distributed import KilledWorker

        died = KilledWorker("chunk", None, 3)
        with pytest.raises(ValueError, match="got 4 workers that died"), dask_cluster(address):
            raise died
        out = tmp_path / "verdict.json"
        few = ["--cases", "5", "--json", str(out)]
        assert 1 == main(["check", target, "--scheduler", address, *few])
    for field in SAME:
        assert _without_seconds(getattr(here, field)) == _without_seconds(getattr(there, field))
    assert 5 == json.loads(out.read_text("utf-8"))["cases"]["run"]
