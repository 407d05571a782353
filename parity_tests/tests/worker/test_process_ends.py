"""A process of its own: what enters it, when it is refused, and that nothing outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mha_parity
from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.case import Case
from mha_parity.worker.client import isolated
from mha_parity.worker.framing import PIECE, frame_block
from mha_parity.worker.messages import PROTOCOL, Refused
from mha_parity.worker.process import Process, WorkerLost
from subject_checks import RIGHT, SUBJECTS

PLAIN = Case(
    seed=0, batch=1, queries=5, keys=5, heads_count=2, head_dim=3, form="qkv", projection="none",
    layout="unbatched",
)  # fmt: skip
SECONDS = 1.5


def test_closing_ends_the_process_and_what_it_started(tmp_path: Path) -> None:
    """Nothing of a candidate outlives the run, not even a process that it started."""
    noted = tmp_path / "pid"
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys\n"
        "def f(Q, K, V, n_heads):\n"
        f"    child = subprocess.Popen(['sleep', '60']); open({str(noted)!r}, 'w')"
        ".write(str(child.pid))\n"
        "    return Q\n",
        encoding="utf-8",
    )
    with isolated(f"{tmp_path}/parent.py:f", "qkv-heads", timeout=SECONDS) as candidate:
        candidate(make_problem(PLAIN))
    child = int(noted.read_text(encoding="utf-8"))
    assert gone(child)


def gone(pid: int) -> bool:
    """Return whether a process has ended, or is about to, within a second."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_the_oracle_never_enters_the_process(tmp_path: Path) -> None:
    """Neither torch nor the oracle is loaded where the candidate runs, nor any reference."""
    (tmp_path / "nosy.py").write_text(
        "import sys\n"
        "def f(Q, K, V, n_heads):\n"
        "    found = [m for m in sys.modules if m.split('.')[0] in ('torch', 'mha_torch')]\n"
        "    rooms = ('mha_parity.oracle', 'mha_parity.judging')\n"
        "    found += [m for m in sys.modules if m.startswith(rooms)]\n"
        "    raise RuntimeError(found)\n",
        encoding="utf-8",
    )
    with (
        isolated(f"{tmp_path}/nosy.py:f", "qkv-heads") as candidate,
        pytest.raises(CandidateError, match=r"RuntimeError: \[\]"),
    ):
        candidate(make_problem(PLAIN))


def test_an_answer_on_its_way_is_in_time(tmp_path: Path) -> None:
    """The rest of an answer that the pipe could not hold is read, though the time is over."""
    block = frame_block(PROTOCOL.encode(3, Refused(sentence="x" * 64 * PIECE)))
    (tmp_path / "block").write_bytes(block)
    (tmp_path / "talkative.py").write_text(
        "import os, pathlib, sys, time\n"
        "left = memoryview(pathlib.Path(__file__).with_name('block').read_bytes())\n"
        "while left:\n"
        "    left = left[os.write(int(sys.argv[2]), left) :]\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = Process(PROTOCOL, "talkative", {"PYTHONPATH": path})
    try:
        since = time.monotonic()
        time.sleep(SECONDS)
        ((number, message),) = process.wait(since, SECONDS / 2)
        assert (3, 64 * PIECE) == (number, len(message.sentence))
        with pytest.raises(WorkerLost, match=r"gave no answer within 0\.1 seconds"):
            process.wait(time.monotonic(), 0.1)
    finally:
        process.end()


CALLERS = """
import os
import subprocess
import sys

found = subprocess.run([sys.executable, "-c", "import core"], cwd="/", stderr=subprocess.PIPE)


def f(Q, K, V, n_heads):
    assert os.environ.get("PYTHONPATH") == {path!r}, os.environ.get("PYTHONPATH")
    assert b"No module named 'core'" in found.stderr, found.stderr
    return Q
"""


@pytest.mark.parametrize("path", [None, "/somewhere/else"], ids=["unset", "set"])
def test_a_target_has_the_environment_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    """What a target starts does not find the harness's own modules as if they were its own."""
    (tmp_path / "callers.py").write_text(CALLERS.format(path=path), encoding="utf-8")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    with isolated(f"{tmp_path}/callers.py:f") as candidate:
        assert "qkv" in candidate.ready().offer["form"]


def test_a_target_that_finds_another_environment_is_refused(tmp_path: Path) -> None:
    """The assertion that the test above rests on is made in each call, and none is left out."""
    (tmp_path / "callers.py").write_text(CALLERS.format(path="/no/such"), encoding="utf-8")
    with (
        isolated(f"{tmp_path}/callers.py:f") as candidate,
        pytest.raises(TargetError, match="AssertionError"),
    ):
        candidate.ready()


REFUSED = {
    "exits_on_import": ("import os\nos._exit(7)\n", "importing it ended its process with exit st"),
    "raises_on_import": ("raise KeyError('k')\n", "raised KeyError: 'k'"),
    "no_such_name": ("def g(): ...\n", "has no attribute 'f'"),
    "no_definition": ("g = 1\n", "defines no public function and no class"),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED)
def test_a_target_that_cannot_be_had_is_refused(tmp_path: Path, source: str, message: str) -> None:
    """Before the first case, what is wrong with the target itself is one sentence."""
    (tmp_path / "broken.py").write_text(source, encoding="utf-8")
    with (
        isolated(f"{tmp_path}/broken.py:f") as candidate,
        pytest.raises(TargetError, match=message) as caught,
    ):
        candidate.ready()
    assert "\n" not in str(caught.value)


def test_a_system_without_such_pipes_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The remedy is to judge in this process."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(ValueError, match=r"'nt', but .* POSIX .*; pass --in-process") as raised:
            isolated("mha_numpy:MultiheadAttention")
    assert 1 == str(raised.value).count(";")


ABSENT = """
import os, sys
for name in ("fcntl", "resource", "termios"):
    sys.modules[name] = None
for name in ("killpg", "set_blocking", "sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, name):
        delattr(os, name)
from mha_parity.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("target", "status"),
    [
        pytest.param("mha_numpy:MultiheadAttention", 0, marks=pytest.mark.slow),
        (f"{SUBJECTS}/wrong_scale.py:f", 1),
    ],
    ids=["right", "wrong"],
)
def test_judging_in_process_needs_nothing_of_posix(target: str, status: int) -> None:
    """A run as on Windows, without what only POSIX systems have, comes to the same verdict."""
    command = [sys.executable, "-c", ABSENT, "check", target, "--in-process"]
    done = subprocess.run(
        [*command, "--cases", "40"], capture_output=True, text=True, check=False, timeout=120
    )
    assert status == done.returncode, done.stdout + done.stderr
    # A line of progress after two seconds is all that may stand there.
    assert [] == [line for line in done.stderr.splitlines() if not line.startswith("judging ")]


@pytest.mark.parametrize("limit", [{"timeout": 0.5}, {"memory": 1.0}], ids=str)
def test_limits_that_an_object_cannot_have_are_refused(limit: dict[str, float]) -> None:
    """A function is judged in this process, where a limit would be dropped without a word."""
    (name,) = limit
    with pytest.raises(ValueError, match=f"got {name}=.* name the target by its text"):
        mha_parity.judge(lambda Q, K, V: Q + K + V, convention="qkv", **limit)  # type: ignore[arg-type]  # one of two


def test_a_process_that_is_started_anew_offers_what_the_first_did() -> None:
    """Its further calls keep to what trials showed; kills an offer of the signature alone."""
    with isolated(RIGHT) as candidate:
        first = candidate.ready()
        again = candidate.fresh()
        try:
            assert first.offer == again.offer
            assert first.facts.reasons == again.facts.reasons
        finally:
            again.close()
