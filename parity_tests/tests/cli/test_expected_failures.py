"""An adopter's list of what is known to fail: features that may fail, and entries that are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin_runs import DEAD, FEW, outcomes
from subject_checks import RIGHT, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

    RunPytest = Callable[..., pytest.RunResult]


def test_listed_features_may_fail_and_others_may_not(
    pytester: pytest.Pytester, run: RunPytest
) -> None:
    """A listed feature is an expected failure with its reason; what passes must go."""
    listed = pytester.makefile(".txt", known="heads=many  # our scale\nheads=one\n\n# prose\n")
    result = run(WRONG, "-v", "-k", "heads and not kv", "--mha-parity-xfail", str(listed))
    result.stdout.fnmatch_lines(
        ["*?heads=one? FAILED*", "*?heads=many? XFAIL*(our scale)*", "*XPASS(strict)*"]
    )
    assert {"failed": 1, "xfailed": 1} == {
        name: n for name, n in outcomes(result).items() if name != "deselected"
    }


def test_dead_entries_are_warned_of(pytester: pytest.Pytester, run: RunPytest) -> None:
    """An entry that matches no feature of the target does not go unnoticed."""
    pytester.makepyfile(test_own="def test_own():\n    pass\n")
    listed = pytester.makefile(".txt", known="attn=causal  # later\n")
    result = run(RIGHT, "-k", "test_own", "--mha-parity-xfail", str(listed))
    result.stdout.fnmatch_lines([DEAD])
    assert result.ret == pytest.ExitCode.OK


def test_dead_entries_are_refused_where_warnings_are_errors(pytester: pytest.Pytester) -> None:
    """With -W error the sentence ends the session as a mistake in its set-up."""
    listed = pytester.makefile(".txt", known="attn=causal\n")
    # A fresh process: what is imported before pytest makes warnings of pytest's own.
    result = pytester.runpytest_subprocess(
        *("-p", "no:cacheprovider", "-W", "error", *FEW),
        *("--mha-parity-target", RIGHT, "--mha-parity-xfail", str(listed)),
    )
    result.stderr.fnmatch_lines(["ERROR: mha-parity: attn=causal is expected to fail, but*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_misspelt_entries_are_refused(pytester: pytest.Pytester, run: RunPytest) -> None:
    """An entry that is no feature at all ends the session, with the one that is close."""
    listed = pytester.makefile(".txt", known="heads=mony\n")
    result = run(RIGHT, "--mha-parity-xfail", str(listed))
    said = "*got 'heads=mony', but no such feature in *; did you mean heads=many?"
    result.stderr.fnmatch_lines([said])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_entries_in_another_encoding_are_refused(
    pytester: pytest.Pytester, run: RunPytest, encoding: str
) -> None:
    """A mark of the byte order is no part of the first entry; what is no UTF-8 is one sentence."""
    listed = pytester.path / "known.txt"
    listed.write_text("heads=mony\n", encoding=encoding)
    result = run(RIGHT, "--mha-parity-xfail", str(listed))
    said = "is not in UTF-8; save it so." if encoding == "utf-16" else "got 'heads=mony', *"
    result.stderr.fnmatch_lines([f"ERROR: mha-parity: *{said}"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_known_bug_is_green(pytester: pytest.Pytester, run: RunPytest) -> None:
    """With what differs and the run itself listed, nothing is red."""
    listed = pytester.makefile(".txt", known="heads=many  # our scale\nall-cases\n")
    result = run(WRONG, "--mha-parity-xfail", str(listed))
    assert "failed" not in outcomes(result)
    assert 2 == outcomes(result)["xfailed"]
