"""A call that the harness could not make is no failure of the target: exit status 2."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from numpy.linalg import inv

from mha_parity.__main__ import main
from mha_parity.core.candidate import NOT_CALLED, Answer, CandidateError, FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import Outcome
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.check import check
from mha_parity.targets.calls.error_origin import attributed
from mha_parity.targets.calls.target_call import Call
from subject_checks import SUBJECTS

SUBJECT = f"{SUBJECTS}/miscalled.py"
REFUSED = {
    "needs_a_keyword": ("qkv-heads", "missing 1 required keyword-only argument: 'cache'"),
    "NeedsAConfiguration": ("torch-module", "raised"),
    "WeightsElsewhere": ("torch-module", "raised RuntimeError: .* in loading state_dict"),
}


@pytest.mark.repeats(2)
@pytest.mark.parametrize(("name", "refusal"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_called_is_refused_with_what_was_tried(
    name: str, refusal: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, no traceback, no verdict; the case and the convention that were tried."""
    convention, said = refusal
    arguments = ["check", f"{SUBJECT}:{name}", "--convention", convention, "--cases", "8"]
    assert 2 == main(arguments)
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    with pytest.raises(AssertionError, match=rf"{NOT_CALLED} as {convention}: .*({said})"):
        raise AssertionError(line)
    assert "none of 8 cases" in line or "none of 5 cases" in line
    assert not printed.out


def test_a_target_that_answers_some_cases_fails_by_the_others() -> None:
    """An exception of its own on larger cases is a crash, and the verdict is a failure."""
    assert 1 == main(["check", f"{SUBJECT}:raises_on_many_rows", "--cases", "18", "--in-process"])


def test_where_a_file_lies_does_not_change_whose_exception_it_is(tmp_path: Path) -> None:
    """Of a module among the installed ones as well, what it raises is the target's."""
    alone = tmp_path / "site-packages" / "alone.py"
    alone.parent.mkdir()
    alone.write_text(
        "import numpy as np\n"
        "def attend(Q, K, V, n_heads):\n"
        "    if len(Q) > 9:\n"
        "        raise ValueError('too many rows')\n"
        "    q, k, v = (x.reshape(len(x), n_heads, -1).swapaxes(0, 1) for x in (Q, K, V))\n"
        "    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])\n"
        "    odds = np.exp(scores - scores.max(-1, keepdims=True))\n"
        "    out = odds / odds.sum(-1, keepdims=True) @ v\n"
        "    return out.swapaxes(0, 1).reshape(len(Q), -1)\n"
    )
    assert 1 == main(["check", f"{alone}:attend", "--cases", "18", "--in-process"])


def judged(raised: CandidateError) -> Outcome:
    """Return the outcome of a right attention that is not called in some cases."""

    def attend(problem: Problem) -> Answer:
        if problem.case.inputs == "cross":
            raise raised
        return Answer(output=reference_answer(problem).output.astype(problem.dtype))

    candidate = FunctionCandidate("f", attend, make_offer(inputs=("self", "cross")))
    verdict = check(candidate, Options(cases=20, diagnose=False, shrink=False))
    assert any(NOT_CALLED in note for note in verdict.notes) is (verdict.failed == 0)
    return verdict.outcome


def test_some_calls_that_could_not_be_made_leave_the_verdict_open() -> None:
    """The harness's own failure is no red and no green; the same exception of the target is red."""
    sentence = "raised TypeError: unexpected keyword"
    assert Outcome.FAIL is judged(CandidateError("crash", sentence))
    harness = CandidateError("inconclusive", f"{NOT_CALLED}: {sentence}")
    assert Outcome.INCONCLUSIVE is judged(harness)


def of_two(first: object, second: object) -> object:
    """Raise, or hand something to NumPy that it does not take."""
    if first is None:
        raise KeyError("own")
    return inv(np.zeros(3)), second


CALLS = {
    "own": (of_two, (None, 1), "crash"),
    "own-through-a-library": (of_two, (1, 2), "crash"),
    "binding": (of_two, (1,), "inconclusive"),
    "written-in-c": (np.dot, (np.zeros(2), np.zeros(3)), "crash"),
    "partial": (functools.partial(of_two, None), (1,), "crash"),
}


@pytest.mark.parametrize(("function", "args", "severity"), CALLS.values(), ids=CALLS)
def test_an_exception_is_the_target_s_where_a_frame_of_it_raised(
    function: object, args: tuple[object, ...], severity: str
) -> None:
    """Without a frame of the target behind the harness's own the call was wrong."""
    with pytest.raises(CandidateError) as raised, attributed(function):
        Call(function, args).make()  # type: ignore[arg-type]  # any callable
    assert severity == raised.value.severity
    assert str(raised.value).startswith(NOT_CALLED) is (severity == "inconclusive")


def test_an_exception_of_the_harness_is_its_own() -> None:
    """What is raised around the call names the harness and the line."""
    said = r"could not be called: the harness raised KeyError: 'x' \["
    with pytest.raises(CandidateError, match=said), attributed(of_two):
        raise KeyError("x")
