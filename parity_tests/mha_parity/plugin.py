"""The pytest plugin: ``--mha-parity-target TARGET`` adds one test for every feature of the target.

Kept thin: it loads neither numpy nor torch, and nothing at all of the harness without a target.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mha_parity.options import add_options, from_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.verdict import Verdict

PREFIX = "mha-parity-"
WHOLE_RUN = "whole run"  # the test of what no single case shows
OVER_THE_RUN = "systematic error"


class MhaParityWarning(pytest.PytestWarning):
    """Something in an adopter's set-up that is probably not meant."""


class ParityError(Exception):
    """A feature that fails; its text is the report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run, prefixed, and two of the plugin's own."""
    group = parser.getgroup("mha-parity", "prove an attention against torch's")
    group.addoption(
        "--mha-parity-target", metavar="TARGET", help="judge this attention, one test a feature"
    )
    group.addoption(
        "--mha-parity-xfail", metavar="FILE", help="features expected to fail: axis=value  # reason"
    )
    add_options(group.addoption, PREFIX)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the target and the cases."""
    target = config.getoption("--mha-parity-target")
    if target is None:
        return None
    options = from_namespace(config.option, PREFIX)
    return f"mha-parity: target {target}, {options.cases} cases, seed {options.seed}"


@pytest.hookimpl(tryfirst=True)  # so that -k and -m choose among the features too
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add one test for every feature the target offers, and one for the run as a whole."""
    target = config.getoption("--mha-parity-target")
    if target is None:
        return
    run = _Run(target, config)
    expected = _expected(config.getoption("--mha-parity-xfail"))
    names = [*run.features(), WHOLE_RUN]
    for name in expected:
        if name not in names:
            _warn(f"{name} is expected to fail, but the target offers no such feature; drop it.")
    for name in names:
        item = ParityItem.from_parent(session, name=f"mha-parity[{name}]", run=run, feature=name)
        if name in expected:
            item.add_marker(pytest.mark.xfail(reason=expected[name], strict=True))
        items.append(item)


def _warn(message: str) -> None:
    try:
        warnings.warn(MhaParityWarning(message), stacklevel=2)
    except MhaParityWarning as error:  # pytest was asked to take warnings for errors
        raise pytest.UsageError(f"mha-parity: {error}") from None


class ParityItem(pytest.Item):
    """One feature of the target; all features of a target share one run."""

    def __init__(self, *, run: _Run, feature: str, **keywords: Any) -> None:
        """Remember the run and the feature, ``axis=value``."""
        super().__init__(**keywords)
        self._run = run
        self._feature = feature
        # No fixtures: pytest-benchmark 5.0.0 fails on items that cannot tell.
        self.funcargs: dict[str, object] = {}

    def runtest(self) -> None:
        """Fail when a case with this feature failed, or none could tell."""
        found = self._run.found(self._feature)
        if found is not None:
            raise ParityError(f"{self._feature}: {found}\n{self._run.report_once()}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the report instead of a traceback, with its first line for pytest's summary.

        A summary cuts a message to one line in a terminal and prints all of it under ``CI``; the
        form with a place of its own for that line also survives the way from an xdist worker.
        """
        if not isinstance(excinfo.value, ParityError):
            return super().repr_failure(excinfo, style)
        shown = excinfo.getrepr(style="value")
        text = str(excinfo.value)
        shown.reprtraceback.reprentries[0].lines = [*text.split("\n"), ""]
        if shown.reprcrash is not None:
            shown.reprcrash.message = text.partition("\n")[0]
        return shown

    def reportinfo(self) -> tuple[Path, None, str]:
        """Say where the test comes from."""
        return Path(self._run.target), None, self.name


class _Run:
    """The one run over a target, made when the first of its tests needs it."""

    def __init__(self, target: str, config: pytest.Config) -> None:
        self.target = target
        self._options = from_namespace(config.option, PREFIX)
        self._verdict: Verdict | None = None
        self._reported = False

    def features(self) -> list[str]:
        """Return the features the target offers; a target that cannot start ends the session."""
        from mha_parity.opening import opened
        from mha_parity.run import restricted

        try:
            with opened(self.target, self._options) as candidate:
                offer = restricted(candidate.offer, self._options)
        except ValueError as mistake:
            raise pytest.UsageError(f"mha-parity: {mistake}") from None
        return [f"{axis}={value}" for axis, values in offer.items() for value in values]

    def found(self, feature: str) -> str | None:
        """Return what speaks against a feature, or None where it passes."""
        verdict = self.verdict()
        if feature == WHOLE_RUN:
            over = [f.judgement for f in verdict.failures if f.judgement.check == OVER_THE_RUN]
            return f"{over[0].check}: {over[0].detail}" if over else None
        row = next(r for r in verdict.features if f"{r.axis}={r.value}" == feature)
        return None if row.status == "pass" else f"{row.status}: {row.note}"

    def report_once(self) -> str:
        """Return the whole report the first time, and afterwards where it stands."""
        from mha_parity.report.shown import as_text

        first, self._reported = not self._reported, True
        if first:
            return as_text(self.verdict())
        return f"{self.verdict().sentence} The report stands with the first feature that fails."

    def verdict(self) -> Verdict:
        """Return the verdict, running the cases the first time."""
        if self._verdict is None:
            from mha_parity.opening import opened
            from mha_parity.run import check

            with opened(self.target, self._options) as candidate:
                self._verdict = check(candidate, self._options, target=self.target)
        return self._verdict


def _expected(name: str | None) -> Mapping[str, str]:
    """Return the features expected to fail, each with its reason."""
    if name is None:
        return {}
    path = Path(name)
    if not path.is_file():
        raise pytest.UsageError(f"mha-parity: there is no file {name} of expected failures.")
    entries: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        feature, _, reason = (part.strip() for part in line.partition("#"))
        if feature:
            entries[feature] = reason or "expected to fail"
    return entries
