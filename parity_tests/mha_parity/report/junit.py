"""The verdict as JUnit XML: a test case for every feature and every check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.verdict import Verdict


# What XML 1.0 cannot hold, not even escaped; a crashing target may have printed it.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(verdicts: Sequence[Verdict]) -> str:
    """Return the XML text."""
    root = ET.Element("testsuites", name="mha-parity")
    for verdict in verdicts:
        _suite(root, verdict)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{FORBIDDEN.sub("?", text)}\n'


def _suite(root: ET.Element, verdict: Verdict) -> None:
    suite = ET.SubElement(root, "testsuite", name=verdict.target, time=f"{verdict.seconds:.3f}")
    properties = ET.SubElement(suite, "properties")
    for name, value in verdict.environment.items():
        ET.SubElement(properties, "property", name=name, value=value)
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
