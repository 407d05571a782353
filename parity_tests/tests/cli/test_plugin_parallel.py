"""The pytest plugin judges a target once, in one process or with the workers of pytest-xdist."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from plugin_runs import CASES, DEAD, outcomes

if TYPE_CHECKING:
    from collections.abc import Callable

    RunPytest = Callable[..., pytest.RunResult]


COUNTED = """
import os

import numpy as np


def write(what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(f"{what} {os.getpid()}\\n")


def f(Q, K, V, n_heads):
    write("call")
    q, k, v = (np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]).astype(Q.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ v), axis=-1)


write("import")
"""


@pytest.fixture
def calls(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Return a function that counts imports, calls in one process, and others with half of them."""
    log = pytester.path / "calls.txt"
    monkeypatch.setenv("CALLS", str(log))

    def counted() -> list[int]:
        lines = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
        found = Counter(pid for what, pid in lines if what == "call").values()
        most = max(found)
        return [
            sum(what == "import" for what, _ in lines),
            most,
            sum(count > most / 2 for count in found) - 1,
        ]

    return counted


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["one", "two"])
def test_a_target_is_judged_once(
    more: tuple[str, ...],
    pytester: pytest.Pytester,
    run: RunPytest,
    calls: Callable[[], list[int]],
) -> None:
    """One process judges for all tests, the same that was asked for the offer; of workers too."""
    pytester.makepyfile(counted=COUNTED)
    assert run("counted.py:f", *more).ret == pytest.ExitCode.OK
    imports, most, others = calls()
    assert (1, 0) == (imports, others)
    assert most >= CASES


def test_works_in_parallel(
    pytester: pytest.Pytester, run: RunPytest, calls: Callable[[], list[int]]
) -> None:
    """Workers of pytest-xdist agree on the features, and come to what one process comes to.

    One process judges for all of them; a dead entry among the expected failures is warned of.
    """
    pytester.makepyfile(counted=COUNTED.replace("np.sqrt(q.", "np.sqrt(Q."))
    listed = pytester.makefile(".txt", known="attn=causal  # later\n")
    chosen = ("-k", "heads or float64 or all-cases", "--mha-parity-xfail", str(listed))
    result = run("counted.py:f", "-n", "2", *chosen)
    found = outcomes(result)
    # One worker has one failing test, the other has the other: the report stands once all the same.
    assert 1 == result.stdout.str().count("no rounding explains it")
    assert (2, 1, 2) == (found["failed"], found["passed"], found["skipped"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([DEAD])
    _, most, others = calls()
    assert 0 == others
    assert most >= CASES


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("source", "more", "said"),
    [
        ("def f(x, y, z):\n    raise RuntimeError('never')\n", (), "mha-parity: got f, but"),
        (
            "def f(x, y, z):\n    raise RuntimeError('never')\n",
            ("-k", "float64"),
            "mha-parity: got f, but",
        ),
        (COUNTED, ("mha-parity[attn=casual]",), "got 'attn=casual', but no such feature"),
    ],
    ids=["target", "chosen", "id"],
)
def test_mistakes_are_said_in_parallel_too(
    source: str, more: tuple[str, ...], said: str, pytester: pytest.Pytester, run: RunPytest
) -> None:
    """Kills a worker that ends without a word: `no tests ran`, and none knew why."""
    pytester.makepyfile(counted=source)
    result = run("counted.py:f", "-n", "2", *more)
    result.stdout.fnmatch_lines([f"*{said}*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_file_of_one_function_needs_no_name(
    pytester: pytest.Pytester, run: RunPytest, calls: Callable[[], list[int]]
) -> None:
    """As the command takes it: the function is named in the header, and judged."""
    pytester.makepyfile(counted=COUNTED)
    result = run("counted.py", "-k", "float64 or all-cases")
    result.stdout.fnmatch_lines(["mha-parity: target counted.py:f, *"])
    assert result.ret == pytest.ExitCode.OK
    assert calls()[1] >= CASES
