"""Timing a task: processes of their own, judged first; a failure costs no one else's times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mha_parity.bench import machine, timing, worker
from mha_parity.bench.client import UnableError, WorkerClient
from mha_parity.bench.contenders import (
    CONTENDERS,
    KERNELS,
    Contender,
    memory_needed,
    reason_left_out,
    target_contender,
)
from mha_parity.bench.messages import BytesReply, SecondsReply, TimeRequest
from mha_parity.bench.target import target_offer
from mha_parity.bench.task_arrays import case_of
from mha_parity.bench.tasks import GPT3, Size, Task
from mha_parity.bench.timing import BenchSettings, ContenderTimes, TaskTimes, time_task
from mha_parity.core.features import make_offer

TASK = Task(size=Size(1, 7, 12, 2))
OURS = [each for each in CONTENDERS if each.library == "numpy"]
BY_NAME = {each.name: each for each in CONTENDERS}
LAYER = """
import mha_numpy

class Layer(mha_numpy.MultiheadAttention):
    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        output, weights = super().forward(query, key, value, key_padding_mask, need_weights,
                                          attn_mask, average_attn_weights, is_causal)
        {change}
        return output, weights
    __call__ = forward
"""


class FakeClient:
    """A client that logs its measurements and fails in the one of number ``breaks``."""

    def __init__(self, name: str, log: list[str], breaks: int = -1) -> None:
        self.name, self.log, self.breaks, self.calls = name, log, breaks, 0
        self.seconds: list[float] = []  # of CPU time, one for each look; the last one stays
        self.looks = 0

    def measure(self, calls: int) -> float:
        """Log the measurement."""
        self.calls += 1
        self.log.append(self.name)
        if self.calls == self.breaks:
            raise UnableError("ended its process", failed=True)
        return float(calls)

    def used(self) -> float:
        """Return the next CPU time."""
        self.looks += 1
        return self.seconds.pop(0) if self.seconds else 1.0


def raced(names: str, rounds: int, breaks: int = -1) -> tuple[list[str], list[ContenderTimes]]:
    """Return the order of the measurements and the entries of fakes; the first may fail."""
    log: list[str] = []
    entries = [ContenderTimes(contender=target_contender(f":{name}")) for name in names]
    clients: Any = [
        (entry, FakeClient(name, log, breaks if name == names[0] else -1))
        for entry, name in zip(entries, names, strict=True)
    ]
    timing.time_rounds(clients, {"target": 3}, rounds, lambda _: None)
    return log, entries


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests look at what is done, not at how long it takes."""
    monkeypatch.setattr(timing, "LEAST_SECONDS", 1e-4)


@pytest.fixture(scope="module")
def client() -> Iterator[WorkerClient]:
    """NumPy's process, two threads asked for."""
    with WorkerClient(BY_NAME["numpy"], threads=2) as opened:
        opened.opened()
        yield opened


def test_every_other_round_is_backwards() -> None:
    """Three rounds of A, B and C: each once a round, every other round backwards."""
    log, entries = raced("abc", 3)

    assert "abc cba abc".replace(" ", "") == "".join(log)
    assert [[3.0] * 3] * 3 == [entry.times for entry in entries]


def test_who_breaks_loses_alone() -> None:
    """A contender lost in its second measurement has no times left; the others have all."""
    log, (broken, whole) = raced("ab", 4, breaks=2)

    assert "ab ba b b".replace(" ", "") == "".join(log)
    assert ("failed", "ended its process", []) == (broken.status, broken.reason, broken.times)
    assert 4 == len(whole.times)


def test_nobody_is_timed_beside_the_threads_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one waits while the CPU time of the last one grows, but not for ever."""
    spinning: Any = FakeClient("a", [])
    spinning.seconds = [0.6, 0.8, 0.9]
    timing.wait_at_rest(spinning)
    assert 5 == spinning.looks  # 0.6, 0.8, 0.9, and 1 twice: it rests

    spinning.looks, spinning.seconds = 0, [float(look) for look in range(9000)]
    monkeypatch.setattr(timing, "PATIENCE", 0.01)
    timing.wait_at_rest(spinning)
    assert 2 <= spinning.looks <= 102


def test_rounds_fit_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a number as many rounds as the budget holds, from 6 to 21."""
    for seconds, rounds in ((0.0, 6), (1e9, 21)):
        monkeypatch.setattr(timing, "BUDGET", seconds)
        log, _ = raced("ab", rounds=None)  # type: ignore[arg-type]  # what --rounds leaves open
        assert 2 * rounds == len(log)


def test_the_process_keeps_to_its_threads(client: WorkerClient) -> None:
    """The environment of a contender names its threads to every library that asks there."""
    environment = Path(f"/proc/{client.pid}/environ")
    if not environment.exists():
        pytest.skip("only Linux shows another process's environment")
    lines = environment.read_bytes().decode().split("\0")

    assert {"OMP_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=2", "MHA_NUMPY_THREADS=2"} <= set(lines)


def test_a_measurement_needs_a_task(client: WorkerClient) -> None:
    """A request out of order is answered with the reason, and the process stays."""
    with pytest.raises(UnableError, match="raised AssertionError"):
        client.ask(TimeRequest(calls=1), SecondsReply)
    with pytest.raises(UnableError, match="raised KeyError"):
        client.ask(BytesReply(count=1), BytesReply)

    assert client.sgemm(8) > 0


def test_numpy_is_timed_without_torch_in_its_process() -> None:
    """Nothing that NumPy's contenders import loads torch, whose threads would be in the way."""
    import subprocess
    import sys

    code = (
        "import sys; from mha_parity.bench import worker, layer_calls as calls;"
        "from mha_parity.bench import contenders, task_arrays, tasks;"
        "c = contenders.CONTENDERS[1]; t = tasks.Task(size=tasks.SMALL[0]);"
        "calls.build_workload(c, task_arrays.draw_task(t)).call(); print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "False" == found.stdout.strip()


def test_memory_is_what_a_task_adds(client: WorkerClient) -> None:
    """Two matrices of 16 MiB show in the peak, the loaded library does not."""
    before = client.memory()
    if before is None:
        pytest.skip("this system does not report the memory of a process")
    client.sgemm(2048)
    after = client.memory()

    assert after is not None
    assert abs(before) < 8 << 20
    assert 30 << 20 <= after - before <= 96 << 20  # BLAS has buffers of its own


@pytest.fixture(scope="module")
def contested(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TaskTimes]:
    """Four targets beside NumPy's own layer: right, wrong, raising, and leaving."""
    changes = {
        "right": "pass",
        "wrong": "output[0, 0, 0] += 1",
        "raising": "if query.shape[1] == 7: raise RuntimeError('no sevens')",
        "leaving": "import os; query.shape[1] == 7 and os._exit(3)",
    }
    folder = tmp_path_factory.mktemp("targets")
    found = {}
    for name, change in changes.items():
        file = folder / f"{name}.py"
        file.write_text(LAYER.format(change=change), encoding="utf-8")
        text = f"{file}:Layer"
        settings = BenchSettings(threads=1, rounds=6, text=text)
        contenders = [BY_NAME["numpy"], target_contender(text)]
        found[name] = time_task(TASK, contenders, settings, lambda _: None, target_offer(settings))
    return found


def test_the_option_is_said_that_times_a_target_of_one_dtype() -> None:
    """A target of float64 alone is left out of a task of float32, with the option that helps."""
    task = replace(TASK, form="qkv")
    offer = make_offer(form=["qkv"], projection=["none"], dtype=["float64"])
    found = reason_left_out(target_contender("f:g", "qkv"), task, case_of(task), None, offer)

    assert "does not offer: float32; --dtype float64 times it" == found


def test_a_kernel_is_timed_beside_torchs() -> None:
    """A function of projected heads is judged and timed on the task on which torch's are."""
    text = "mha_numpy:scaled_dot_product_attention"
    settings = BenchSettings(threads=1, rounds=6, text=text)
    contenders = [*KERNELS, target_contender(text, "qkv")]
    task = replace(TASK, form="qkv", padded=True)
    offer = target_offer(settings)
    found = time_task(task, contenders, settings, lambda _: None, offer)

    assert ["timed"] * 4 == [each.status for each in found.entries], found
    assert [6] * 4 == [len(each.times) for each in found.entries]


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("right", "timed", ""),
        ("wrong", "wrong", "should be"),
        ("raising", "failed", "raised RuntimeError: no sevens"),
        ("leaving", "failed", "ended its process with exit status 3"),
    ],
)
def test_only_the_right_is_timed(
    name: str, status: str, reason: str, contested: dict[str, TaskTimes]
) -> None:
    """A target that is wrong, raises or leaves is not timed and says so; the other one is."""
    ours, theirs = contested[name].entries

    assert ("timed", 6) == (ours.status, len(ours.times))
    assert (status, 6 if status == "timed" else 0) == (theirs.status, len(theirs.times))
    assert reason in theirs.reason


def test_times_are_those_of_single_calls(contested: dict[str, TaskTimes]) -> None:
    """A call on seven rows takes between a microsecond and a tenth of a second."""
    ours, theirs = contested["right"].entries

    assert 12 == len(ours.times + theirs.times)
    assert all(1e-6 < each < 0.1 for each in ours.times + theirs.times)
    assert ours.memory is None or 0 < ours.memory < 64 << 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("mha_numpy:MultiheadAttention", "is a whole layer, but --projected times attention on"),
    ],
)
def test_other_targets_are_refused_at_the_start(text: str, said: str) -> None:
    """A target that does not exist, or takes no projected inputs, is a sentence at the start."""
    with pytest.raises(ValueError, match="target") as caught:
        target_offer(BenchSettings(threads=1, text=text, projected=True))

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "task", "free", "reason"),
    [
        ("torch-fast", Task(size=Size(1, 7, 12, 3)), None, "odd number of heads"),
        ("torch-fast", Task(size=Size(1, 7, 12, 2), backward=True), None, "has no backward"),
        ("numpy-prepared", Task(size=Size(1, 7, 12, 2), backward=True), None, "has no backward"),
        ("torch-weights", Task(size=Size(1, 16384, 512, 8)), 22 << 30, "would take 17 of 22 GiB"),
        ("numpy", Task(size=GPT3[0], backward=True), None, "too many to be judged"),
        ("torch-fast", TASK, 22 << 30, ""),
    ],
)
def test_who_is_left_out_has_a_reason(name: str, task: Task, free: int | None, reason: str) -> None:
    """Paths torch does not take, passes a contender lacks, tasks that do not fit the memory."""
    found = reason_left_out(BY_NAME[name], task, case_of(task), free)

    assert reason in found
    assert bool(reason) == bool(found)


def test_a_target_is_left_out_of_what_it_does_not_offer() -> None:
    """One that takes a single float64 sample is not asked for three float32 ones."""
    offered = make_offer(layout="unbatched", dtype="float64", out_proj="identity")
    task = Task(size=Size(3, 7, 12, 2), causal=True)
    found = reason_left_out(target_contender("m:f"), task, case_of(task, offered), None, offered)

    assert "does not offer: causal, float32, several samples at once" == ", ".join(
        sorted(found.removeprefix("does not offer: ").split(", "))
    ).join(("does not offer: ", ""))


@pytest.mark.parametrize("contender", OURS, ids=lambda each: each.name)
def test_memory_is_guessed_in_the_right_place(contender: Contender) -> None:
    """The guess at GPT-3's layer lies between once and five times its four matrices."""
    weights = 4 * GPT3[0].parameters

    assert weights <= memory_needed(contender, Task(size=GPT3[0])) <= 5 * weights


def test_others_are_seen_on_the_cores() -> None:
    """What another process does counts as a disturbance, what we do ourselves does not."""
    import subprocess
    import sys
    import time

    if machine.busy_seconds() is None:
        pytest.skip("this system does not report how busy the cores are")
    quiet = timing.Disturbance([])
    until = time.perf_counter() + 0.5
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        while time.perf_counter() < until:
            pass
        cores = quiet.cores()
        other.kill()

    assert cores is not None
    assert 0.3 < cores <= machine.cores()


def test_expected_reasons_are_no_failures() -> None:
    """What a contender says it cannot do leaves it out; what it raises is its failure."""
    assert not worker.unable_reply(NotImplementedError("is timed forward alone")).failed
    assert worker.unable_reply(ValueError("got 3")).failed
