"""The verdict as JUnit XML: a test case for every feature and every check.

A case of the run belongs to many test cases, and readers add the times of these up. What the target
took for a test case is therefore written in proportion, so that the sum is what it took in all.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.report import correlations, wording
from mha_parity.report.by_feature import ALL_CASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mha_parity.core.parameters import Parameter
    from mha_parity.core.verdict import CheckRow, Failure, FeatureRow, Refusal, Verdict


# What XML 1.0 cannot hold, not even escaped; a crashing target may have printed it.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LINES = 24  # of what a target said before it broke
COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def document(verdicts: Sequence[Verdict], refused: Sequence[Refusal] = ()) -> str:
    """Return the XML text; a target that was refused is one test case with an error."""
    root = ET.Element("testsuites", name="mha-parity")
    for verdict in verdicts:
        _suite(root, verdict)
    for each in refused:
        suite = ET.SubElement(root, "testsuite", name=each.target)
        case = ET.SubElement(suite, "testcase", classname=each.target, name="verdict")
        _say(case, "error", "refused", each.sentence, each.sentence)
        _count(suite, 0.0)
    _count(root, sum(verdict.seconds for verdict in verdicts))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{FORBIDDEN.sub("?", text)}\n'


def _suite(root: ET.Element, verdict: Verdict) -> None:
    suite = ET.SubElement(root, "testsuite", name=verdict.target)
    properties = ET.SubElement(suite, "properties")
    for name, value in verdict.environment.items():
        ET.SubElement(properties, "property", name=name, value=value)
    explaining = correlations.explaining(verdict)
    for row in verdict.features:
        _feature(suite, verdict, row, explains=f"{row.axis}={row.value}" in explaining)
    for check in verdict.checks:
        _check(suite, verdict, check)
    for parameter in verdict.parameters:
        _parameter(suite, verdict, parameter)
    if verdict.outcome is Outcome.FAIL and suite.find(".//failure") is None:
        case = _case(suite, verdict, "run", ALL_CASES)
        case.set("time", "0.000000")
        _say(case, "failure", "fail", verdict.sentence, _text(verdict))
    _time(suite, verdict)
    _count(suite, verdict.seconds)


def _feature(suite: ET.Element, verdict: Verdict, row: FeatureRow, *, explains: bool) -> None:
    """Write a failure where the feature explains some; elsewhere the check that fails has it."""
    counts = f"{row.failed} of {row.cases} cases fail"
    case = _case(suite, verdict, "feature", f"{row.axis}={row.value}")
    if row.status == "not offered":
        ET.SubElement(case, "skipped", message="not offered by the target")
    elif row.status in {"left out", "not drawn"}:
        ET.SubElement(case, "skipped", message=f"{row.status}: {row.reason}")
    elif row.status == "fail" and not explains:
        ET.SubElement(case, "skipped", message=f"{counts}, as others do; the checks say why")
    elif row.status == "fail":
        _say(case, "failure", "fail", counts, _text(verdict))
    elif row.status != "pass":
        _say(case, "error", row.status, f"{row.status}: {row.reason}", verdict.sentence)


def _check(suite: ET.Element, verdict: Verdict, check: CheckRow) -> None:
    case = _case(suite, verdict, "check", check.name)
    if check.failed:
        own = [each for each in verdict.failures if each.check_result.check == check.name]
        kind = own[0].check_result.severity.value if own else "fail"
        short = f"{check.failed} of {check.cases} cases fail"
        _say(case, "failure", kind, short, _text(verdict, own))


def _parameter(suite: ET.Element, verdict: Verdict, parameter: Parameter) -> None:
    """Write an error for a mask that was not tried; skipped is whatever else no case passed."""
    case = _case(suite, verdict, "parameter", parameter.key)
    case.set("time", "0.000000")
    if parameter.is_untried:
        _say(case, "error", "inconclusive", f"inconclusive: {parameter.status}", verdict.sentence)
    elif parameter.status is not Status.TRIED:
        ET.SubElement(case, "skipped", message=parameter.status.value)


def _case(suite: ET.Element, verdict: Verdict, kind: str, name: str) -> ET.Element:
    classname = f"{verdict.target} {kind}"
    return ET.SubElement(suite, "testcase", classname=classname, name=name)


def _time(suite: ET.Element, verdict: Verdict) -> None:
    """Write what each test case took of the target's time, which each axis has in full.

    Those of parameters stand behind the rows and took none of it.
    """
    rows: list[FeatureRow | CheckRow] = [*verdict.features, *verdict.checks]
    counted = sum(row.seconds for row in rows)
    first = verdict.features[0].axis if verdict.features else ""
    whole = sum(row.seconds for row in verdict.features if row.axis == first)
    for case, row in zip(suite.iter("testcase"), rows, strict=False):
        case.set("time", f"{row.seconds * whole / counted if counted else 0:.6f}")


def _say(case: ET.Element, tag: str, kind: str, message: str, text: str) -> None:
    ET.SubElement(case, tag, type=kind, message=message).text = text


def _count(element: ET.Element, seconds: float) -> None:
    """Write how many test cases lie below, how many of each outcome, and how long it took."""
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for plural, tag in COUNTED.items():
        element.set(plural, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", f"{seconds:.3f}")


def _text(verdict: Verdict, failures: Iterable[Failure] = ()) -> str:
    """Return the verdict, its diagnosis, and failures with their replay lines: these, or all."""
    lines = [verdict.sentence]
    lines += [f"{each.title}: {each.remedy}" for each in verdict.diagnosis]
    for failure in list(failures) or verdict.failures:
        check_result = failure.check_result
        lines += [
            f"{check_result.check}: {wording.shorten_output(check_result.detail, LINES)}",
            f"  {failure.replay}",
        ]
    return "\n".join(lines)
