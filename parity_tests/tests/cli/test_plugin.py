"""The pytest plugin, run in pytests of its own."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mha_parity import pytest_plugin
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.core.option_flags import add_options, from_namespace
from mha_parity.core.options import Options
from plugin_runs import CASES, FEW, outcomes
from subject_checks import RIGHT, SUBJECTS, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

    RunPytest = Callable[..., pytest.RunResult]


def test_one_id_a_feature(run_pytest: RunPytest) -> None:
    """Each feature that the target offers is a test; all of a right one that were drawn pass.

    The target has a process of its own here.
    """
    result = run_pytest("--mha-parity-target", RIGHT, *FEW, "-v")
    result.stdout.fnmatch_lines(
        [
            f"mha-parity: target {RIGHT}, {CASES} cases, seed 0",
            "*mha-parity?all-cases? PASSED*",
            "*mha-parity?dtype=float64? PASSED*",
            "*mha-parity?regime=huge? PASSED*",
            "*mha-parity?memory=readonly? PASSED*",
        ]
    )
    assert set(outcomes(result)) <= {"passed", "skipped"}
    skipped = [line for line in result.outlines if " SKIPPED" in line]
    assert len(skipped) == outcomes(result).get("skipped", 0)
    assert all(any(f"regime={value}]" in line for value in EXTREME_VALUES) for line in skipped)
    assert result.ret == pytest.ExitCode.OK


def test_an_error_of_the_run_is_that_of_each_test(
    pytester: pytest.Pytester, run: RunPytest
) -> None:
    """Not the first one's alone, and the others' that the process is closed."""
    pytester.makeconftest(
        "import mha_parity.run.check as module\n"
        "words = iter(['planted'] + 9 * ['asked again'])\n"
        "def check(*_, **__): raise RuntimeError(next(words))\n"
        "module.check = check\n"
    )
    result = run(RIGHT, "-k", "heads or float64")
    assert outcomes(result)["failed"] > 1
    assert "RuntimeError: planted" in result.stdout.str()
    assert "asked again" not in result.stdout.str().replace("['asked again']", "")


@pytest.mark.parametrize("build", [None, "true"], ids=["terminal", "ci"])
def test_a_failing_feature_shows_the_report_once(
    build: str | None, run: RunPytest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong scale fails with several heads and passes with one; dtypes have no part in it.

    Under ``CI`` too, where pytest repeats a message uncut in its summary.
    """
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    if build:
        monkeypatch.setenv("CI", build)
    result = run(WRONG, "-v", "-k", "heads or float64 or all-cases")
    result.stdout.fnmatch_lines(
        [
            "mha-parity?all-cases? FAILED*",
            "mha-parity?dtype=float64? SKIPPED*",
            "mha-parity?heads=one? PASSED*",
            "mha-parity?heads=many? FAILED*",
            "Parity does not hold: * The bug: the scores are divided by the root of the whole *",
            "*mha-parity replay qkv-*",
            "mha-parity?all-cases? shows the report.",
        ]
    )
    assert 1 == result.stdout.str().count("no rounding explains it")
    assert re.search(
        r"FAILED mha-parity\[heads=many\] - \d+ of \d+ cases fail\n", result.stdout.str()
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_what_no_single_case_shows_fails_the_run_as_a_whole(
    pytester: pytest.Pytester, run: RunPytest
) -> None:
    """An epsilon in the denominator is below the rounding of a case, and above it over all."""
    pytester.makepyfile(
        faint="import numpy as np\n"
        "def f(Q, K, V, n_heads):\n"
        "    q, k, v = (np.stack(np.split(a, n_heads, axis=1)) for a in (Q, K, V))\n"
        "    scale = Q.dtype.type(q.shape[-1] ** -0.5)\n"
        "    logits = q @ k.swapaxes(1, 2) * scale\n"
        "    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))\n"
        "    odds = odds / (odds.sum(axis=-1, keepdims=True) + Q.dtype.type(3e-6))\n"
        "    return np.concatenate(list(odds @ v), axis=1)\n"
    )
    narrow = ("--mha-parity-dtypes", "float32", "--mha-parity-cases", "60")
    result = run("faint.py:f", "-v", "-k", "all-cases or dtype", *narrow)
    result.stdout.fnmatch_lines(
        ["*mha-parity?all-cases? FAILED*", "*?dtype=float32? SKIPPED*", "*systematic error*"]
    )


def test_an_inconclusive_run_is_red(run: RunPytest) -> None:
    """Two cases prove nothing: the run as a whole fails. Kills "inconclusive passes"."""
    result = run(RIGHT, "-k", "all-cases", "--mha-parity-cases", "2")
    result.stdout.fnmatch_lines(["*Inconclusive: *"])
    assert {"failed": 1} == {k: n for k, n in outcomes(result).items() if k != "deselected"}
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_target_that_never_answers_is_one_red_test(run: RunPytest) -> None:
    """Without an answer there is no verdict: one test says so, and the features are skipped."""
    target = f"{SUBJECTS}/miscalled.py:needs_a_keyword"
    result = run(target, "-v", "-k", "all-cases or dtype",
                 "--mha-parity-convention", "qkv-heads")  # fmt: skip
    result.stdout.fnmatch_lines(
        [
            "*?all-cases? FAILED*",
            "*?dtype=float64? SKIPPED*",
            "*could not be called as qkv-heads: *",
        ]
    )
    assert {"failed": 1, "skipped": 1} == {k: outcomes(result)[k] for k in ("failed", "skipped")}


def test_an_id_is_chosen_as_it_is_printed(run: RunPytest) -> None:
    """One id that a run printed runs that test alone; one that does not exist is refused."""
    chosen = run(RIGHT, "-v", "mha-parity[heads=one]")
    chosen.stdout.fnmatch_lines(["mha-parity?heads=one? PASSED*"])
    assert {"passed": 1} == outcomes(chosen)
    refused = run(RIGHT, "mha-parity[heads=on]")
    refused.stderr.fnmatch_lines(["*got 'heads=on', but no such *; did you mean heads=one?"])
    assert refused.ret == pytest.ExitCode.USAGE_ERROR


def test_the_message_is_brief_and_all_of_it_comes_with_v(
    pytester: pytest.Pytester, run_pytest: RunPytest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing ``assert_parity`` has 25 lines; ``-v`` adds the whole report in a section.

    At 80 columns the line that pytest cuts begins with the bug, and no line of prose is wider. An
    id, a command, and a line of the source with its place are to be copied: they stay whole.
    """
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    pytester.makepyfile(
        test_it="from mha_parity import assert_parity\n"
        f"def test_attention():\n    assert_parity({WRONG!r}, cases=12, dtypes='float64')\n"
    )
    brief, whole = run_pytest(), run_pytest("-v")
    brief.stdout.fnmatch_lines(
        [
            "E *mha_parity.ParityError: Parity does not hold: * The bug: *",
            "FAILED test_it.py::test_attention - the scores are divided by *",
        ]
    )
    said = [line for line in brief.outlines if line.startswith("E  ")]
    assert 25 >= len(said)
    copied = re.compile(r"E +(case|replay|look at) ")
    assert [] == [line for line in said[1:] if len(line) > 80 and not copied.match(line)]
    replay = re.compile(r"E +replay +mha-parity replay \S+ \S+wrong_scale.py:f$")
    assert any(replay.match(line) for line in said)
    brief.stdout.no_fnmatch_line("* checks *")
    whole.stdout.fnmatch_lines(["*- mha-parity -*", " checks *"])


def test_own_tests_run_beside(pytester: pytest.Pytester, run: RunPytest) -> None:
    """The features come behind the tests that are there; -k chooses among both."""
    pytester.makepyfile(test_own="def test_own():\n    pass\n")
    result = run(RIGHT, "-v", "-k", "own or float64")
    result.stdout.fnmatch_lines(["test_own.py::test_own PASSED*", "*?dtype=float64? PASSED*"])
    assert 2 == outcomes(result)["passed"]
    assert outcomes(result)["deselected"] > 20


def test_without_a_target_there_are_no_features(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    """Whoever has the plugin installed and asks nothing of it notices nothing."""
    pytester.makepyfile(test_own="def test_own():\n    pass\n")
    assert {"passed": 1} == outcomes(run_pytest())


def test_several_targets_are_refused(run: RunPytest) -> None:
    """Kills the last of them judged alone, without a word of the others."""
    result = run(RIGHT, "--mha-parity-target", "other.py:f")
    result.stderr.fnmatch_lines(
        ["ERROR: mha-parity: got *, other.py:f, but one run of pytest judges one *"]
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_file_of_several_functions_needs_one(pytester: pytest.Pytester, run: RunPytest) -> None:
    """Which of them is meant cannot be known: the names are said."""
    pytester.makepyfile(several="def one(q, k): ...\n\n\ndef two(q, k): ...\n")
    result = run("several.py")
    result.stderr.fnmatch_lines(
        ["ERROR: mha-parity: *several.py', which is a file, but *; name one of one, two, *"]
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR


REFUSED = {
    "target": (
        ("nowhere.py:f",),
        "ERROR: mha-parity: got the target 'nowhere.py:f', but there is no",
    ),
    "feature": (
        (RIGHT, "--mha-parity-features", "attn=causal"),
        "ERROR: mha-parity: attn=causal was asked for, but the target offers only attn=none.",
    ),
    "xfail": (
        (RIGHT, "--mha-parity-xfail", "nowhere.txt"),
        "ERROR: mha-parity: there is no file nowhere.txt of expected failures.",
    ),
    "option": (
        (RIGHT, "--mha-parity-fully-masked", "half"),
        "*--mha-parity-fully-masked: got 'half', but no such policy on fully masked rows; known*",
    ),
}


@pytest.mark.parametrize(("arguments", "said"), REFUSED.values(), ids=REFUSED)
def test_mistakes_in_the_set_up_are_one_sentence(
    run: RunPytest, arguments: tuple[str, ...], said: str
) -> None:
    """What is wrong with target, options or files is said without a traceback, status 4."""
    result = run(*arguments)
    result.stderr.fnmatch_lines([f"*{said}*"])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR


class Noted:
    """Takes options as argparse and pytest do, and keeps them."""

    def __init__(self) -> None:
        self.options: dict[str, dict[str, Any]] = {}

    def getgroup(self, *_: str) -> Noted:
        """Be the group as well."""
        return self

    def addoption(self, name: str, **keywords: Any) -> None:
        """Keep one."""
        self.options[name.removeprefix("--").removeprefix(pytest_plugin.PREFIX)] = keywords


def test_options_are_the_command_s() -> None:
    """One definition serves both: same names, types, defaults and help, but for two of its own.

    All cases are asked, since each feature has a test.
    """
    ours, command = Noted(), Noted()
    pytest_plugin.pytest_addoption(ours)  # type: ignore[arg-type]  # what it needs of a parser
    add_options(command.addoption)
    own = {"target", "xfail"}
    assert own == set(ours.options) - set(command.options)
    assert 0 == ours.options["max-failures"]["default"]
    command.options["max-failures"] |= {"default": 0}
    assert command.options == {k: v for k, v in ours.options.items() if k not in own}


def test_without_options_the_defaults_are_those_of_a_run() -> None:
    """An empty command line, and a pytest without options, ask for ``Options()``.

    The plugin asks all cases, since each feature has a test.
    """
    for prefix, defaults in (("", {}), (pytest_plugin.PREFIX, {"max-failures": 0})):
        parser = argparse.ArgumentParser()
        add_options(parser.add_argument, prefix, defaults)
        expected = replace(Options(), max_failures=defaults.get("max-failures", 40))
        assert from_namespace(parser.parse_args([]), prefix) == expected


REPEATED = {
    "feature": (["attn=causal", "bias=yes,attn=none"], "features",
                (("attn", "causal"), ("bias", "yes"), ("attn", "none"))),
    "dtype": (["float64", "float32,float64"], "dtypes", ("float64", "float32")),
    "forbid": (["torch", "jax,scipy"], "forbid", ("torch", "jax", "scipy")),
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["", pytest_plugin.PREFIX], ids=["command", "plugin"])
@pytest.mark.parametrize(("name", "case"), REPEATED.items(), ids=REPEATED)
def test_an_option_given_twice_adds_up(
    prefix: str, name: str, case: tuple[list[str], str, tuple[object, ...]]
) -> None:
    """Lists given by several options are joined, each value once; a second replaces nothing."""
    given, field, joined = case
    parser = argparse.ArgumentParser()
    add_options(parser.add_argument, prefix)
    words = [word for value in given for word in (f"--{prefix}{name}", value)]
    for _ in range(2):  # the default is not what was added to the first time
        options = from_namespace(parser.parse_args(words), prefix)
        assert joined == getattr(options, field)
    assert Options() == from_namespace(parser.parse_args([]), prefix)


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    """Every pytest of an adopter loads the plugin: neither numpy nor torch, nor the harness."""
    code = (
        "import sys, mha_parity.pytest_plugin\n"
        "print(*(m for m in ('numpy', 'torch', 'rich', 'mha_parity.run') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert "" == done.stdout.strip()
