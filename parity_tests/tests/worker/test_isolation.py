"""Whatever a candidate does in its process costs the case and never the run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import EXTRA, FURTHER
from mha_parity.core.candidate import Answer, CandidateError, TargetError
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.judging.output import JudgeSettings
from mha_parity.run.case_run import CaseResult, run_cases
from mha_parity.run.check import check
from mha_parity.worker.client import GIB, PRINTS_MUCH, IsolatedCandidate, isolated
from mha_parity.worker.process import Process
from subject_checks import SUBJECTS

PLAIN = Case(
    seed=0, batch=1, queries=5, keys=5, heads_count=2, head_dim=3, form="qkv", projection="none",
    layout="unbatched",
)  # fmt: skip
FOUR = PLAIN.replace(queries=4, keys=4, seed=1)
SIX = PLAIN.replace(queries=6, keys=6, seed=2)
SECONDS = 1.5
# To take memory or to start a process anew takes seconds on a loaded machine.
PATIENT = 60.0


def started(name: str, file: str = "misbehaving.py", memory: int = GIB // 4) -> IsolatedCandidate:
    """Start one of the subjects; what never answers is waited for 1.5 seconds."""
    seconds = SECONDS if re.search("hang|ever", name) else PATIENT
    return isolated(f"{SUBJECTS}/{file}:{name}", "qkv-heads", timeout=seconds, memory=memory)


def tried(name: str, *cases: Case, file: str = "misbehaving.py") -> list[CaseResult]:
    """Return the trials of a subject on some cases."""
    with started(name, file) as candidate:
        return list(run_cases(candidate, cases, JudgeSettings()))


# What the failing case says of each: its severity, and in words.
MISDEEDS = {
    "raises": ("crash", r"raised ValueError: no attention today \[.*misbehaving.py:\d+\]"),
    "exits": ("crash", "tried to leave by SystemExit: 3"),
    "exits_hard": ("crash", "ended its process with exit status 3\nIt printed last:\ngoodbye"),
    "segfaults": ("crash", "by signal SIGSEGV\nIt printed last:\nFatal Python error: Segment"),
    "hangs": ("timeout", "gave no answer within 1.5 seconds"),
    "takes_all_memory": (
        "crash",
        r"raised MemoryError: Unable to allocate|took 0\.\d+ GiB of memory",
    ),
    "floods_for_ever": (
        "timeout",
        "within 1.5 seconds\nIt printed last:\n.*more and more and more",
    ),
    "pickles": ("crash", "wrote what is no message into the pipe of its answers: it has"),
    "babbles": ("crash", "wrote what is no message .*: it begins with b'attentio', which is no le"),
    "forges": ("crash", "answered what was not asked"),
    "returns_text": ("structure", "the output is a str, but should be an array"),
    "returns_none": ("structure", "the output is a NoneType, but should be an array"),
    "returns_lists": ("structure", r"the output is a list of 4 \(list\), but should be an array"),
    "returns_scalar": ("structure", "the output is a float, but should be an array"),
    "returns_complex": ("structure", "dtype complex128, but should hold real floating-point"),
    "returns_objects": ("structure", "dtype object, but should hold real floating-point numbers"),
}


@pytest.mark.parametrize(("name", "severity", "said"), [(k, *v) for k, v in MISDEEDS.items()])
def test_a_misdeed_is_that_case_s_failure(name: str, severity: str, said: str) -> None:
    """The case fails with what was seen and the last lines printed; those around it pass."""
    before, failing, after = tried(f"Sometimes.{name}", PLAIN, FOUR, SIX)
    assert "reached_from_a_target" not in sys.modules
    assert (False, False) == (before.fails, after.fails)
    found = [check_result for check_result in failing.check_results if check_result.severity.fails]
    assert severity == found[0].severity.value
    with pytest.raises(AssertionError, match=f"(?s){said}"):
        raise AssertionError(found[0].detail)


FURTHER_MISDEEDS = {
    "raises": (
        "crash",
        r"raised ValueError: .* on 10 queries and 10 keys in a further call, made to",
    ),
    "exits_hard": ("crash", r"exit status 3 in a further call on query \(10, 6\), .*\n.*\ngoodbye"),
    "segfaults": (
        "crash",
        r"by signal SIGSEGV in a further call on query \(10, 6\), key \(10, 6\)",
    ),
    "hangs": ("timeout", r"no answer within 1\.5 seconds in a further call on query \(10, 6\)"),
    "babbles": ("crash", r"wrote what is no message .* in a further call on query \(10, 6\)"),
}


@pytest.mark.parametrize(
    ("name", "severity", "said"), [(k, *v) for k, v in FURTHER_MISDEEDS.items()]
)
def test_the_end_of_a_further_call_is_not_the_case_s(name: str, severity: str, said: str) -> None:
    """What dies at a length that the check of state alone has is said so, with that length.

    The case itself is judged, and so are those after it; the process is lost once.
    """
    found, *others = tried(f"AtTenRows.{name}", PLAIN, FOUR, SIX)
    failed = [each for each in found.check_results if each.severity.fails]
    assert [(FURTHER, severity)] == [(each.check, each.severity.value) for each in failed]
    assert re.search(said, failed[0].detail, re.DOTALL), failed[0].detail
    assert "output" in {each.check for each in found.check_results}
    assert (name == "raises") == any(each.fails for each in others)


def test_a_further_call_that_ends_is_no_failure() -> None:
    """Of a case that asks no such lengths nothing is said, though the target would die of them."""
    later = [case.replace(seed=EXTRA.first + number) for number, case in enumerate((FOUR, SIX), 1)]
    assert 2 * [False] == [each.fails for each in tried("AtTenRows.segfaults", *later)]


def test_a_verdict_names_the_further_call() -> None:
    """In a run one failure is of the further call, and no case fails its own call."""
    target = f"{SUBJECTS}/misbehaving.py:AtTenRows.segfaults"
    options = replace(SIX_CASES, features=(("regime", "normal"), ("dtype", "float64")), shrink=True)
    with isolated(target, "qkv-heads") as candidate:
        verdict = check(candidate, options)
    assert [FURTHER] == [each.check_result.check for each in verdict.failures]
    assert 1 == verdict.outcome.exit_status


def test_a_verdict_says_which_further_call_does_not_end() -> None:
    """The sentence of an inconclusive run has the shapes of the call, and goes on to the remedy."""
    target = f"{SUBJECTS}/misbehaving.py:AtTenRows.hangs"
    with isolated(target, "qkv-heads", timeout=1.5) as candidate:
        verdict = check(candidate, replace(SIX_CASES, features=(("regime", "normal"),)))
    assert 3 == verdict.outcome.exit_status
    said = r"call on query \(10, \d+\), .*, made to check \w+ in \d of 6 cases; raise --timeout"
    assert re.search(said, verdict.sentence), verdict.sentence


@pytest.mark.parametrize(
    ("guard", "said"), [("limit", "raised MemoryError"), ("watch", r"took [\d.]+ GiB of memory")]
)
def test_each_guard_of_memory_suffices_alone(
    guard: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's own limit, or the watch from outside. Kills the loss of either."""
    if guard == "limit":
        monkeypatch.setattr(Process, "_resident", lambda _: 0)
    given = GIB // 4 if guard == "limit" else 64 * GIB
    with started("Sometimes.takes_all_memory", memory=given) as candidate:
        candidate.ready()
        candidate._setup = replace(candidate._setup, memory=GIB // 4)
        (found,) = run_cases(candidate, [FOUR], JudgeSettings())
    assert re.search(said, found.check_results[0].detail)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_of_processes_that_a_thread_starts_counts() -> None:
    """Each takes less than is allowed, and all together more."""
    (found,) = tried("Sometimes.takes_memory_in_children", FOUR)
    assert re.search(r"took [\d.]+ GiB of memory", found.check_results[0].detail)


ANSWERING = [name for name in MISDEEDS if name.startswith("returns")]
SIX_CASES = Options(cases=6, dtypes=("float64",), diagnose=False, shrink=False)


def some(names: list[str], here: set[str]) -> list[Any]:
    """Return the names; all but those of ``here`` end alike, and are for `make test-all`."""
    return [pytest.param(n, marks=() if n in here else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", some(ANSWERING, {"returns_none", "returns_complex"}))
def test_the_run_goes_on_and_the_verdict_is_fail(name: str) -> None:
    """A run over a candidate whose answers are all none comes to its end with status 1."""
    target = f"{SUBJECTS}/misbehaving.py:{name}"
    with isolated(target, "qkv-heads", timeout=0.5, memory=GIB // 8) as candidate:
        verdict = check(candidate, SIX_CASES)
    assert (6, 1) == (verdict.run, verdict.outcome.exit_status)
    assert verdict.failed + verdict.inconclusive == verdict.run


@pytest.mark.parametrize(
    "name", some(sorted({*MISDEEDS} - {*ANSWERING}), {"raises", "exits_hard", "hangs"})
)
def test_a_target_that_never_answers_could_not_be_called(name: str) -> None:
    """Without one answer there is nothing to judge: one sentence says what every call came to.

    Calls that raise have the time to do so on a busy machine.
    """
    target = f"{SUBJECTS}/misbehaving.py:{name}"
    seconds = 0.5 if MISDEEDS[name][0] == "timeout" else 5.0
    with (
        isolated(target, "qkv-heads", timeout=seconds, memory=GIB // 8) as candidate,
        pytest.raises(TargetError, match=r"could not be called as qkv-heads: .*; none of \d+ case"),
    ):
        check(candidate, SIX_CASES)


def test_right_ones_pass_with_all_they_may_do() -> None:
    """A candidate may print a little, and the same cases pass without any misdeed."""
    for name in ("plain", "talks", "uses_a_thread"):
        results = tried(name, PLAIN, FOUR, SIX, file="behaving.py")
        assert 3 * [False] == [case_result.fails for case_result in results]


def test_a_flood_is_said_and_no_failure() -> None:
    """The answers of a target that prints megabytes are as good as others; a talker's are usual."""
    floods = tried("floods", PLAIN)
    assert [False] == [case_result.fails for case_result in floods]
    assert (PRINTS_MUCH,) == floods[0].remarks
    assert () == tried("talks", PLAIN, file="behaving.py")[0].remarks


def test_a_lost_process_is_replaced_with_the_same_target() -> None:
    """After each loss the next case is answered, and by a process of another number."""
    with started("Sometimes.exits_hard") as candidate:
        answers = list(candidate.many([make_problem(case) for case in (FOUR, PLAIN, FOUR, SIX)]))
    kinds = [type(answer) for answer in answers]
    assert kinds == [CandidateError, Answer, CandidateError, Answer]


def test_a_candidate_lost_every_time_is_not_asked_for_ever() -> None:
    """After five losses in a row the rest is unjudged and says why; to shrink it is asked again."""
    with started("exits_hard") as candidate:
        answers = list(candidate.many([make_problem(PLAIN.replace(seed=i)) for i in range(20)]))
        severities = [each.severity for each in answers if isinstance(each, CandidateError)]
        assert severities == ["crash"] * 5 + ["inconclusive"] * 15
        assert "not asked: the target's process was lost 5 times" in str(answers[-1])
        candidate.allow_retries()
        with pytest.raises(CandidateError, match="exit status 3"):
            candidate(make_problem(PLAIN))


def test_the_numbers_arrive_as_they_are() -> None:
    """The same problem in a process of its own and here gives the same bits."""
    from mha_parity.targets import load
    from mha_parity.targets.bind import bind

    here = bind(load.load(f"{SUBJECTS}/behaving.py:plain"))
    with started("plain", "behaving.py") as there:
        for case in (PLAIN, FOUR.replace(memory="negative"), SIX.replace(regime="huge")):
            problem = make_problem(case)
            np.testing.assert_array_equal(here(problem).output, there(problem).output)


@pytest.mark.parametrize("on_their_way", [64, 1])
def test_a_case_that_is_lost_is_not_asked_in_another_form(
    on_their_way: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relation to a case without an answer has the same fate, and costs no second process.

    This holds too where it is sent off after the process was lost, as where it was before.
    """
    processes: list[Process] = []

    def counted(*given: Any) -> Process:
        processes.append(Process(*given))
        return processes[-1]

    monkeypatch.setattr("mha_parity.worker.client.MAX_PENDING", on_their_way)
    monkeypatch.setattr("mha_parity.worker.client.Process", counted)
    with started("Sometimes.exits_hard") as candidate:
        first, second = make_problem(FOUR), make_problem(FOUR)
        answers = list(candidate.many([first, second, make_problem(SIX)]))
        assert 2 == len(processes)
        again = list(candidate.many([first]))  # asked once more, it is tried once more
    assert answers[0] is answers[1]
    assert again[0] is not answers[0]
    assert [CandidateError, CandidateError, Answer] == [type(each) for each in answers]


def test_a_caller_may_wait_for_the_libraries_alone() -> None:
    """A target that loads is waited for until then; one that does not is refused by then."""
    with isolated(f"{SUBJECTS / 'styles.py'}:attend") as candidate:
        candidate.wait_until_loaded(60)
        assert candidate._process.loaded
        assert candidate.offer["dtype"]
        candidate.wait_until_loaded(60)
    with (
        isolated(f"{SUBJECTS / 'styles.py'}:nothing") as missing,
        pytest.raises(TargetError, match="nothing"),
    ):
        missing.wait_until_loaded(60)


def test_a_caller_that_waits_for_libraries_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    """What is printed meanwhile is no message, and nothing that was printed is lost."""
    (tmp_path / "slow.py").write_text(
        "import time\nprint('loading', flush=True)\ntime.sleep(60)\n", encoding="utf-8"
    )
    with isolated(f"{tmp_path}/slow.py:f") as candidate:
        while "loading" not in candidate._process.output.unfinished().last:
            candidate.wait_until_loaded(0.05)
        assert not candidate._process.loaded


@pytest.mark.parametrize(
    ("name", "answered", "least", "most"), [("rests", 4, 2, 8), ("plain", 24, 9, 64)]
)
def test_little_is_on_its_way_to_a_slow_target(
    name: str, answered: int, least: int, most: int
) -> None:
    """A run that ends early waits for that. Kills the number that a fast target gets: 64."""
    sent: list[Problem] = []

    def problems() -> Iterator[Problem]:
        while len(sent) < 200:
            sent.append(make_problem(FOUR))
            yield sent[-1]

    with started(name, file="behaving.py") as candidate:
        answers = candidate.many(problems())
        for _ in range(answered):
            next(answers)
        assert least <= len(sent) - answered <= most
