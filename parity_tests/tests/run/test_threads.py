"""A run computes in one thread, torch too that the run itself loads, and leaves what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.core.options import Options
from mha_parity.core.threads import in_one_thread
from mha_parity.run import case_run
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.worker.client import isolated

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

TARGET = """
def attention(query, key, value, num_heads):
    return query
"""
RUN = """
import json
import sys

from threadpoolctl import threadpool_info

from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.worker.open_target import opened


def threads():
    return {each["user_api"]: each["num_threads"] for each in threadpool_info()}


found, options = [], Options(cases=2, shrink=False, in_process=sys.argv[2] == "here")
with opened(sys.argv[1], options) as candidate:
    check(candidate, options, progress=lambda *_: found.append(threads()))
print(json.dumps([found, threads()]))
"""


@pytest.mark.parametrize(("place", "blas"), [("here", 2), ("its own process", 1)])
def test_torch_that_a_run_loads_has_one_thread(tmp_path: Path, place: str, blas: int) -> None:
    """A limit reaches loaded libraries alone; BLAS keeps its own where the target computes by it.

    Fails where torch is loaded after the limit is set: small cases then wait for a second thread.
    """
    (tmp_path / "callers.py").write_text(TARGET, encoding="utf-8")
    run = [sys.executable, "-c", RUN, f"{tmp_path}/callers.py:attention", place]
    two = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    two.pop("MKL_NUM_THREADS", None)  # torch takes it before any limit
    done = subprocess.run(run, env=two, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    found, after = json.loads(done.stdout)
    assert [{"openmp": 1, "blas": blas}] * 2 == found
    assert {"blas": 2} == {api: number for api, number in after.items() if api == "blas"}


def test_a_target_in_its_own_process_has_one_thread_of_openmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is bound and when it answers, as in the caller's process; a limit of 2 is undone."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    target = "import torch\n" + TARGET.replace("return", "return torch.get_num_threads() *")
    (tmp_path / "callers.py").write_text(target, encoding="utf-8")
    problem = make_problem(parse("qkv-N1-L2-S2-H1-D2-float64-s1"))
    with isolated(f"{tmp_path}/callers.py:attention") as candidate:
        assert np.array_equal(problem.query, candidate(problem).output)


def test_limits_are_set_within_alone() -> None:
    """OpenMP has one thread within, BLAS where asked for, and both have theirs again after."""
    torch.ones(2).sum()

    def threads() -> dict[str, int]:
        return {each["user_api"]: each["num_threads"] for each in threadpool_info()}

    with threadpool_limits(2):
        before = threads()
        for blas in (False, True):
            with in_one_thread(blas=blas):
                assert before | {"openmp": 1} | ({"blas": 1} if blas else {}) == threads()
            assert before == threads()


def test_a_target_in_this_process_keeps_the_threads_that_the_oracle_does_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kills limits of the whole run, which change the target, and none, which spin at each case."""
    found: dict[str, set[int]] = {"target": set(), "oracle": set(), "judge": set()}

    def note(who: str) -> None:
        blas = (each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        found[who].update(blas)

    def noted(who: str, function: Any) -> Any:
        def noting(*asked: Any) -> Any:
            note(who)
            return function(*asked)

        return noting

    def attention(query: Array, key: Array, value: Array, num_heads: int) -> Array:
        del query, key, num_heads
        note("target")
        return value

    for who, name in (("oracle", "reference_answer"), ("judge", "judge_answer")):
        monkeypatch.setattr(case_run, name, noted(who, getattr(case_run, name)))
    candidate = bind(attention, "qkv", probe=False)
    with threadpool_limits(2, "blas"):
        check(candidate, Options(cases=2, shrink=False, diagnose=False))
    assert {"target": {2}, "oracle": {1}, "judge": {1}} == found
