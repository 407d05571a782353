"""Answers recorded on one kind of processor give the same verdicts on another."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from subject_checks import LAYER, RIGHT, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

NUMPY = importlib.import_module("numpy._core._multiarray_umath")  # without stubs
CHOSEN = [name for name in NUMPY.__cpu_dispatch__ if NUMPY.__cpu_features__[name]]
# As a processor of 2004 computes: NumPy without what it chooses at run time, OpenBLAS with SSE.
OLDER = {
    "NPY_DISABLE_CPU_FEATURES": " ".join(CHOSEN),
    "OPENBLAS_CORETYPE": "Prescott",
}
JUDGE = """
import json, sys
import mha_parity
import numpy as np
for target, path in zip(sys.argv[1::2], sys.argv[2::2]):
    found = mha_parity.judge(target, in_process=True, answers=path, draw=False)
    print(json.dumps([
        found.outcome.value, found.passed, found.failed, found.inconclusive,
        [row.name for row in found.checks], [each.title for each in found.diagnosis],
        [f"{each.case.id} {each.check_result.severity.value}" for each in found.failures],
    ]))
exact = np.random.default_rng(0).normal(size=(64, 64))
print(json.dumps([float((exact @ exact).sum()), float(np.exp(exact).sum())]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the settings are those of x86-64")
def test_verdicts_are_those_of_the_recording_processor(record: Callable[..., str]) -> None:
    """Outcome, counts, failing cases, severities and diagnosis are equal, though bits differ."""
    words = [
        word
        for target in (RIGHT, WRONG, LAYER)
        for word in (target, record(target, "--cases", "40"))
    ]
    here, there = (_judged(words, settings) for settings in ({}, OLDER))
    assert here[:-1] == there[:-1]
    assert ["pass", "fail", "pass"] == [found[0] for found in here[:-1]]
    assert here[-1] != there[-1], "the settings change no bit: this test shows nothing"


def _judged(words: list[str], settings: dict[str, str]) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, *words],
        capture_output=True, text=True, check=True, env=os.environ | settings,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]
