"""The pytest plugin: ``--mha-parity-target TARGET`` adds a test for the target and its features.

Loads neither numpy nor torch, and nothing of the harness but the options without a target.
"""

from __future__ import annotations

import json
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mha_parity.core.errors import UsageError
from mha_parity.core.features import AXES
from mha_parity.core.option_flags import add_options, from_namespace
from mha_parity.core.option_values import hint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from mha_parity.core.candidate import Candidate

PREFIX = "mha-parity-"
ITEM = "mha-parity"
ALL_CASES = "all-cases"  # the test of the verdict itself
CHOSEN = pytest.StashKey[list[str]]()
MISTAKE = pytest.StashKey[str]()  # why a worker of pytest-xdist has no tests to run


class MhaParityWarning(pytest.PytestWarning):
    """An entry or option of an adopter that has no effect."""


class FeatureError(Exception):
    """A test of the plugin that fails; its text is what pytest shows."""

    def __init__(self, text: str, summary: str) -> None:
        """Keep the line for pytest's summary."""
        super().__init__(text)
        self.summary = summary


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run, prefixed, and two of the plugin's own."""
    group = parser.getgroup("mha-parity", "prove an attention against torch's")
    group.addoption(
        "--mha-parity-target",
        action="append",
        metavar="TARGET",
        help="judge this attention: one test for all cases, one for each feature",
    )
    group.addoption(
        "--mha-parity-xfail", metavar="FILE", help="features expected to fail: axis=value  # reason"
    )
    # Each feature has a test of its own, so that all cases are asked.
    add_options(group.addoption, PREFIX, {"max-failures": 0})


def pytest_configure(config: pytest.Config) -> None:
    """Take the ids of the plugin's tests out of the arguments: pytest looks for files there."""
    chosen = [each for each in config.args if each.startswith(f"{ITEM}[")]
    config.stash[CHOSEN] = chosen
    if chosen:
        config.args[:] = [each for each in config.args if each not in chosen]


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the target and the cases."""
    target = _target(config)
    if target is None:
        return None
    options = from_namespace(config.option, PREFIX)
    return f"mha-parity: target {target}, {options.cases} cases, seed {options.seed}"


def _target(config: pytest.Config) -> str | None:
    """Return the target; a file that defines one function or class gets its name.

    The command and ``assert_parity`` take it the same way.
    """
    targets: list[str] | None = config.getoption("--mha-parity-target")
    if targets is None:
        return None
    if len(targets) > 1:
        said = f"got {', '.join(targets)}, but one run of pytest judges one target"
        raise pytest.UsageError(f"mha-parity: {said}; run it once for each.")
    from mha_parity.targets.loading.default_target import with_only_name

    return with_only_name(targets[0])


@pytest.hookimpl(tryfirst=True)  # so that -k and -m choose among the features too
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for all cases and one for every feature that the target offers.

    A worker of pytest-xdist that raises here ends without a word: it keeps the mistake.
    """
    try:
        _add_items(session, config, items)
    except pytest.UsageError as mistake:
        if not hasattr(config, "workerinput"):
            raise
        config.stash[MISTAKE] = str(mistake)


def _add_items(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    target, chosen = _target(config), config.stash[CHOSEN]
    if target is None:
        if chosen:
            raise pytest.UsageError(f"mha-parity: {chosen[0]} needs --mha-parity-target.")
        return
    expected = _expected(config.getoption("--mha-parity-xfail"))
    run = _Run(target, config, expected)
    names = [ALL_CASES, *run.features()]
    for name in expected:
        if name not in names:
            _warn(f"{name} is expected to fail, but the target offers no such feature; drop it.")
    for each in chosen:
        _one_of(each.removeprefix(f"{ITEM}[").removesuffix("]"), names, "feature of the target")
    for name in names:
        if chosen and f"{ITEM}[{name}]" not in chosen:
            continue
        item = ParityItem.from_parent(session, name=f"{ITEM}[{name}]", run=run, feature=name)
        if name in expected:
            item.add_marker(pytest.mark.xfail(reason=expected[name], strict=True))
        items.append(item)


@pytest.hookimpl(tryfirst=True)  # before a worker says what it collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Judge where no other test is to run, in the worker that has the target's process.

    Tests begin once all workers have collected: another would open the target again meanwhile.
    A mistake that a worker kept is the one test that fails, whatever -k and -m chose.
    """
    if sentence := session.config.stash.get(MISTAKE, ""):
        name, run = f"{ITEM}[{ALL_CASES}]", _Mistake(sentence)
        session.items[:] = [ParityItem.from_parent(session, name=name, run=run, feature=ALL_CASES)]
    runs = [each.target_run for each in session.items if isinstance(each, ParityItem)]
    alone = len(runs) == len(session.items) and hasattr(session.config, "workerinput")
    if runs and alone and runs[0].has_process:
        runs[0].summary()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let pytest's summary name the bug of a failed ``assert_parity``; add the report under -v.

    A summary is cut at the width of the window, and the name of the error alone would fill it.
    """
    report = yield
    verdict = getattr(call.excinfo and call.excinfo.value, "verdict", None)
    if verdict is not None and report.failed:
        from mha_parity.core.verdict import Verdict
        from mha_parity.report.brief import short_cause
        from mha_parity.report.notebook_view import as_text

        if isinstance(verdict, Verdict):
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None:
                crash.message = short_cause(verdict)
            if item.config.get_verbosity() > 0:
                report.sections.append(("mha-parity", as_text(verdict, verbose=True)))
    return report


def _warn(message: str) -> None:
    try:
        warnings.warn(MhaParityWarning(message), stacklevel=2)
    except MhaParityWarning as error:  # pytest was asked to take warnings for errors
        raise pytest.UsageError(f"mha-parity: {error}") from None


class ParityItem(pytest.Item):
    """The verdict on all cases, or on one feature; all of them share one run."""

    def __init__(self, *, run: _Run | _Mistake, feature: str, **keywords: Any) -> None:
        """Keep the run and the feature, ``axis=value`` or ``all-cases``."""
        # An id without the session's empty path in front can be given to pytest as it is printed.
        super().__init__(nodeid=keywords["name"], **keywords)
        self.target_run = run
        self._feature = feature
        # No fixtures: pytest-benchmark 5.0.0 fails on items that cannot tell.
        self.funcargs: dict[str, object] = {}

    def runtest(self) -> None:
        """Fail, skip or pass as the run's outcome for the feature says."""
        status, reason = self.target_run.outcome(self._feature)
        if status == "skip":
            pytest.skip(reason)
        if status == "fail":
            is_whole = self._feature == ALL_CASES
            first = reason if is_whole else f"{self._feature}: {reason}"
            summary = self.target_run.summary() if is_whole else reason
            report = self.target_run.report_once(self._feature, self.session.items)
            raise FeatureError(f"{first}\n{report}", summary)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the report instead of a traceback, with its first line for pytest's summary.

        A summary cuts a message to one line in a terminal and prints all of it under ``CI``; the
        form with a place of its own for that line also survives the way from an xdist worker.
        """
        if not isinstance(excinfo.value, FeatureError):
            return super().repr_failure(excinfo, style)
        shown = excinfo.getrepr(style="value")
        text = str(excinfo.value)
        shown.reprtraceback.reprentries[0].lines = [*text.split("\n"), ""]
        if shown.reprcrash is not None:
            shown.reprcrash.message = excinfo.value.summary
        return shown

    def reportinfo(self) -> tuple[Path, None, str]:
        """Name the target as the place of the test."""
        return Path(self.target_run.target), None, self.name


class _Mistake:
    """Outcome of a test that stands for a run which the options, or the target, do not make."""

    target = ""
    has_process = False

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def outcome(self, feature: str) -> tuple[str, str]:  # noqa: ARG002  (as of a run)
        """Return that it fails, and why."""
        return "fail", self._sentence

    def report_once(self, feature: str, items: list[pytest.Item]) -> str:  # noqa: ARG002  (as of a run)
        """Return nothing: the sentence is all."""
        return ""

    def summary(self) -> str:
        """Return the sentence."""
        return self._sentence


class _Run:
    """The one run over a target, made when the first of its tests needs it.

    Workers of pytest-xdist share it: the first to need it judges, the others read what it wrote.
    The process in which the target was asked what it offers judges as well.
    """

    def __init__(self, target: str, config: pytest.Config, expected: Mapping[str, str]) -> None:
        self.target = target
        self._config = config
        self._options = from_namespace(config.option, PREFIX)
        self._expected = expected
        self._process = ExitStack()
        self._candidate: Candidate | None = None
        self._found: dict[str, Any] | None = None
        self._error: Exception | None = None  # that the run itself raised
        self._reported = ""  # the feature whose test showed the report
        config.add_cleanup(self._process.close)

    def features(self) -> list[str]:
        """Return the features the target offers; a target that cannot start ends the session."""
        found: dict[str, Any] = self._shared("features", self._offered)
        if "refused" in found:
            raise pytest.UsageError(f"mha-parity: {found['refused']}")
        names: list[str] = found["features"]
        return names

    @property
    def has_process(self) -> bool:
        """Whether the target was opened in this worker."""
        return self._candidate is not None

    def _offered(self) -> dict[str, Any]:
        from mha_parity.run.asked_cases import restricted_offer
        from mha_parity.run.recorded_answers import need_torch_or_answers

        try:
            need_torch_or_answers(self._options)
            offer = restricted_offer(self._opened(), self._options)
        except UsageError as mistake:
            return {"refused": str(mistake)}
        return {"features": [f"{axis}={value}" for axis, own in offer.items() for value in own]}

    def _opened(self) -> Candidate:
        if self._candidate is None:
            from mha_parity.worker.open_target import opened

            self._candidate = self._process.enter_context(opened(self.target, self._options))
        return self._candidate

    def outcome(self, feature: str) -> tuple[str, str]:
        """Return status and reason of one test."""
        found = self._run_once()
        if "refused" in found:
            return "fail" if feature == ALL_CASES else "skip", found["refused"]
        status, reason = found["outcomes"][feature]
        return status, reason

    def report_once(self, feature: str, items: list[pytest.Item]) -> str:
        """Return the report once, all of it where pytest is verbose; elsewhere its place.

        The test of all cases shows it where that is among the ``items`` to run and fails, in
        whichever process of several; else the first that fails.
        """
        is_run = any(item.name == f"{ITEM}[{ALL_CASES}]" for item in items)
        if is_run and ALL_CASES not in self._expected and self.outcome(ALL_CASES)[0] == "fail":
            self._reported = ALL_CASES
        if self._reported not in {"", feature}:
            return f"{ITEM}[{self._reported}] shows the report."
        self._reported = feature
        return str(self._run_once()["full" if self._config.get_verbosity() > 0 else "brief"])

    def summary(self) -> str:
        """Return what pytest's summary says of the whole run."""
        found = self._run_once()
        return str(found.get("refused") or found["summary"])

    def _run_once(self) -> dict[str, Any]:
        if self._error is not None:  # said by each test: the process is closed
            raise self._error
        if self._found is None:
            try:
                self._found = self._shared("verdict", self._judged)
            except Exception as error:
                self._error = error
                raise
        return self._found

    def _shared(self, what: str, make: Callable[[], Any]) -> Any:
        """Return the result, or the first worker's; if that worker exits, the next one computes it.

        All of it is plain data.
        """
        worker = getattr(self._config, "workerinput", None)
        if worker is None:
            return make()
        from filelock import FileLock

        temporary = self._config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001  (items have no fixtures)
        name = f"mha-parity-{worker['testrunuid']}-{what}.json"
        path = temporary.getbasetemp().parent / name
        with FileLock(f"{path}.lock"):
            if not path.is_file():
                path.write_text(json.dumps(make()), encoding="utf-8")
            return json.loads(path.read_text(encoding="utf-8"))

    def _judged(self) -> dict[str, Any]:
        """Judge the target; return plain data."""
        from mha_parity.report.brief import brief, short_cause
        from mha_parity.report.by_feature import feature_outcomes
        from mha_parity.report.notebook_view import as_text
        from mha_parity.run.check import check

        try:
            verdict = check(self._opened(), self._options, target=self.target)
        except UsageError as mistake:  # no case was answered: there is no verdict
            return {"refused": str(mistake), "brief": "", "full": ""}
        finally:
            self._process.close()
        return {
            "outcomes": feature_outcomes(verdict, self._expected),
            "brief": brief(verdict).partition("\n")[2],
            "full": as_text(verdict, verbose=True),
            "summary": short_cause(verdict),
        }


def _expected(name: str | None) -> Mapping[str, str]:
    """Return the features expected to fail, each with its reason."""
    if name is None:
        return {}
    path = Path(name)
    if not path.is_file():
        raise pytest.UsageError(f"mha-parity: there is no file {name} of expected failures.")
    known = [ALL_CASES, *(f"{axis}={value}" for axis, values in AXES.items() for value in values)]
    entries: dict[str, str] = {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise pytest.UsageError(f"mha-parity: {name} is not in UTF-8; save it so.") from None
    for line in text.splitlines():
        feature, _, reason = (part.strip() for part in line.partition("#"))
        if feature:
            entries[_one_of(feature, known, f"feature in {name}")] = reason or "expected to fail"
    return entries


def _one_of(word: str, known: list[str], what: str) -> str:
    """Return the word, or end the session with the closest one that is known."""
    if word in known:
        return word
    hint = hint_of(word, known, "see mha-parity list features.")
    raise pytest.UsageError(f"mha-parity: got {word!r}, but no such {what}; {hint}")
