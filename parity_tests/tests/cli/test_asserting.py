"""``assert_parity``: a verdict in one line of a test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity import assert_parity, judge, replay
from mha_parity.api import ParityError
from mha_parity.core.options import Options
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable


def subject(text: str) -> object:
    """Return a function or class of the subjects."""
    return load.load(f"{SUBJECTS}/{text}")


@pytest.mark.parametrize(
    "candidate",
    [subject("projected.py:f"), subject("keep_mask.py:Stacked"), f"{SUBJECTS}/projected.py:f"],
    ids=["function", "class", "text"],
)
def test_right_ones_return_their_verdict(candidate: object) -> None:
    """Functions and classes run here, a text in a process of its own; all come to a verdict."""
    verdict = assert_parity(candidate, cases=80)
    assert (0, 80) == (verdict.failed, verdict.run)


def test_a_file_of_one_function_needs_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    """``judge``, ``assert_parity`` and ``replay`` find it as the command does."""
    path = str(SUBJECTS / "overflowing.py")
    verdict = judge(path, cases=3, in_process=True, diagnose=False, draw=False)
    assert f"{path}:attention" == verdict.target
    with pytest.raises(ParityError, match=r"overflowing\.py:attention"):
        assert_parity(path, cases=3, in_process=True, diagnose=False, draw=False)
    replay("qkv-N1-L4-S4-H2-D3-unbatched-float64-s1", path, in_process=True)
    assert "the target" in capsys.readouterr().out


@pytest.fixture(scope="module")
def raised() -> ParityError:
    """Return what a wrong attention raises."""
    with pytest.raises(AssertionError) as caught:
        assert_parity(subject("wrong_scale.py:f"), cases=60)
    assert isinstance(caught.value, ParityError)
    return caught.value


def test_a_wrong_one_raises_the_report(raised: ParityError) -> None:
    """The message says what is wrong, where, and how to see it again."""
    text = str(raised)
    for part in (
        "wrong_scale.py:f fails",
        "no rounding explains it",
        "mha-parity replay qkv-",
    ):
        assert part in text
    assert "\x1b" not in text


def test_the_first_line_is_the_sentence_and_the_bug(raised: ParityError) -> None:
    """Pytest's summary shows that line; the message has at most 25, and keeps the verdict."""
    lines = str(raised).splitlines()
    assert re.fullmatch(r"Parity does not hold: .* fails \d+ of 60 cases\. The bug: .*", lines[0])
    assert len(lines) <= 25
    assert not raised.verdict.holds


def test_an_inconclusive_run_raises() -> None:
    """Two cases prove nothing; the message names the features that no case has shown."""
    with pytest.raises(ParityError, match="Inconclusive: ") as caught:
        assert_parity(subject("projected.py:f"), cases=2)
    assert "untested" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 25


def test_a_misdeed_raises_too() -> None:
    """Conduct is watched where a function runs in this process."""
    with pytest.raises(AssertionError, match="the call wrote into `query`"):
        assert_parity(
            subject("misbehaving.py:writes_inputs"), cases=10, diagnose=False, shrink=False
        )


def test_its_own_frame_is_hidden(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    """A failing test shows the line of the test and the report, not our code."""
    pytester.makepyfile(
        "from mha_parity import assert_parity\n"
        "def test_it():\n"
        f"    assert_parity({SUBJECTS.as_posix() + '/wrong_split.py:f'!r}, cases=8,"
        " diagnose=False, shrink=False)\n"
    )
    result = run_pytest()
    result.stdout.fnmatch_lines([">*assert_parity(*wrong_split.py*", "E*Parity does not hold*"])
    result.stdout.no_fnmatch_line("*asserting.py*: AssertionError*")


def test_features_narrow_the_run() -> None:
    """Only what was named is drawn, by the words of the command."""
    verdict = assert_parity(subject("projected.py:f"), features="heads=one,regime=normal", cases=40)
    drawn = {f"{r.axis}={r.value}" for r in verdict.features if r.cases}
    assert {"heads=one", "regime=normal"} <= drawn
    assert not drawn & {"heads=many", "regime=huge"}


def test_a_convention_may_be_named() -> None:
    """An argument names the convention that recognition cannot find."""
    verdict = assert_parity(subject("keep_mask.py:build"), convention="module-mask", cases=60)
    assert "module-mask" == verdict.convention


def test_options_come_whole_or_one_by_one() -> None:
    """Keywords are fields of ``Options`` and change the options that are given."""
    verdict = assert_parity(
        subject("projected.py:f"), options=Options(cases=70, seed=3), cases=45, dtypes=("float64",)
    )
    assert 45 == verdict.run
    assert () == verdict.failures


REFUSED = {
    "option": ({"case": 3}, r"got 'case', but no such option; did you mean 'cases'\?$"),
    "cases": ({"cases": 0}, "cases: got '0', but should be a whole number from 1 up"),
    "dtypes": ({"dtypes": ("float31",)}, "dtypes: got 'float31', but no such dtype; did you mean"),
    "policy": ({"fully_masked": "half"}, "fully_masked: got 'half', but no such policy"),
    "flag": ({"grad": 1}, "grad: got 1, but should be True or False"),
    "axis": ({"features": "atn=causal"}, "no such feature axis; did you mean 'attn'"),
    "convention": ({"convention": "qkv-head"}, "did you mean 'qkv-heads'"),
    "feature": (
        {"features": "attn=causal"},
        "attn=causal was asked for, but the target offers only attn=none",
    ),
}


@pytest.mark.parametrize(("keywords", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(keywords: dict[str, object], message: str) -> None:
    """A mistake of the test's author is no failure of the candidate: ValueError."""
    with pytest.raises(ValueError, match=message):
        assert_parity(subject("projected.py:f"), **keywords)  # type: ignore[arg-type]  # on purpose


def test_a_function_defined_in_the_test_is_judged() -> None:
    """The one-line use: an attention from the test's own module."""

    def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        odds = np.exp(Q @ K.T / np.sqrt(Q.shape[-1]))
        output: np.ndarray = odds / odds.sum(axis=-1, keepdims=True) @ V
        return output

    verdict = assert_parity(attention, features="regime=normal", cases=40)
    assert "qkv" == verdict.convention
    assert "qkv" == bind(attention).convention
