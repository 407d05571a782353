"""The verdict as JUnit XML: a test case for every feature and every check."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.verdict import Verdict


def document(verdicts: Sequence[Verdict]) -> str:
    """Return the XML text."""
    root = ET.Element("testsuites", name="mha-parity")
    for verdict in verdicts:
        _suite(root, verdict)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, verdict: Verdict) -> None:
    suite = ET.SubElement(root, "testsuite", name=verdict.target, time=f"{verdict.seconds:.3f}")
    message = _message(verdict)
    for row in verdict.features:
        case = ET.SubElement(suite, "testcase", classname="feature", name=f"{row.axis}={row.value}")
        if row.status == "not offered":
            ET.SubElement(case, "skipped", message="not offered by the target")
        elif row.status != "pass":
            kind = "failure" if row.status == "fail" else "error"
            ET.SubElement(case, kind, message=f"{row.status}: {row.note}").text = message
    for check in verdict.checks:
        case = ET.SubElement(suite, "testcase", classname="check", name=check.name)
        if check.failed:
            short = f"{check.failed} of {check.cases} cases"
            ET.SubElement(case, "failure", message=short).text = message
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))


def _message(verdict: Verdict) -> str:
    """Return the diagnosis and the replay lines, which every failed test case carries."""
    lines = [verdict.sentence]
    lines += [f"{each.title}: {each.remedy}" for each in verdict.diagnosis]
    for failure in verdict.failures:
        lines += [f"{failure.judgement.check}: {failure.judgement.detail}", f"  {failure.replay}"]
    return "\n".join(lines)
