"""JSON and JUnit: what a machine reads of a verdict, held against a shipped schema."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import math
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Place, Severity
from mha_parity.core.environment import environment
from mha_parity.core.errors import UsageError
from mha_parity.core.options import Options
from mha_parity.core.verdict import (
    Accuracy,
    CheckRow,
    Diagnosis,
    Failure,
    FailureGroup,
    FeatureRow,
    Outcome,
    Verdict,
)
from mha_parity.report import files, junit
from mha_parity.report.json_document import SCHEMA, verdict_document
from mha_parity.report.junit import COUNTED
from mha_parity.run.check import check
from mha_parity.worker import client
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS

CASE = parse("mha-N2-L5-S7-H3-D4-cross-bias-outproj-causal-float32-s11")


CAUSAL = FailureGroup(common=(("attn", ("causal",)),), absent=(("bias", ("yes",)),))
HALVES = tuple(FeatureRow("bias", value, "fail", 50, "", 15) for value in ("no", "yes"))


def extreme() -> Verdict:
    """Return a verdict with all that is hard to write: no numbers, mixed heads, escape codes."""
    broken = CheckResult(
        case=CASE,
        check="output",
        severity=Severity.CRASH,
        error=math.inf,
        allowed=math.nan,
        where=Place(1, -1, 4, 11),
        detail='raised <Error> "\x1b[31mred\x00" & more\n\ud800',
    )
    return Verdict(
        target="strange <&> target",
        convention="sdpa",
        outcome=Outcome.FAIL,
        run=3,
        passed=1,
        failed=1,
        inconclusive=1,
        features=(
            FeatureRow("attn", "causal", "fail", 2, "1 of 2 fail", 1),
            FeatureRow("attn", "none", "inconclusive", 0, "no case drawn"),
            FeatureRow("attn", "bool2d", "not offered", 0),
            FeatureRow("bias", "yes", "pass", 3),
        ),
        checks=(CheckRow("output", 3, 1), CheckRow("weights", 2, 0)),
        failures=(
            Failure(check_result=broken, case=CASE, replay=f"mha-parity replay {CASE.id} x:f"),
        ),
        diagnosis=(
            Diagnosis(bug="scale-model", title="scale", explains=1.0, aliases=("scale-other",)),
            Diagnosis(bug=None, title="effective scale 0.250, expected 0.500"),
        ),
        accuracy=(
            Accuracy(
                dtype="float32",
                cases=1,
                median_times_torch=math.inf,
                worst_times_torch=math.inf,
                bits_lost=-math.inf,
            ),
        ),
        sensitivity={"zeros": 3},
        measured_cases=4,
        failure_groups=(FailureGroup(),),
        notes=("a note",),
        environment=environment(),
        seconds=0.25,
    )


@pytest.fixture(
    scope="module", params=["passing", "failing", "crashing", "inconclusive", "extreme"]
)
def verdict(request: pytest.FixtureRequest, judged: Callable[..., Verdict]) -> Iterator[Verdict]:
    """Return a verdict of each kind."""
    match request.param:
        case "passing":
            yield judged("projected.py:f", cases=60, diagnose=False)
        case "failing":
            yield judged("wrong_scale.py:f", cases=60, diagnose=False)
        case "crashing":
            yield judged("misbehaving.py:raises_over_one_head", cases=60, diagnose=False)
        case "inconclusive":
            yield judged("projected.py:f", cases=1, diagnose=False)
        case _:
            yield extreme()


def closed(schema: Any) -> Any:
    """Return the schema with every object closed: what it does not name is an error."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: closed(value) for name, value in schema.items()}
    if "properties" in copy:
        copy.setdefault("additionalProperties", False)
    return copy


@pytest.fixture(scope="module")
def schema() -> Any:
    """Return the schema as it is shipped."""
    text = importlib.resources.files("mha_parity.report").joinpath("schema.json").read_text("utf-8")
    return json.loads(text)


def test_schema_is_one(schema: Any) -> None:
    """The schema itself is valid in draft 2020-12, and is the one that documents name."""
    jsonschema.Draft202012Validator.check_schema(schema)
    assert SCHEMA == schema["$id"]


def test_document_is_as_the_schema_says(verdict: Verdict, schema: Any) -> None:
    """What is written of any verdict validates, holds nothing unnamed, and is strict JSON."""
    written = json.loads(files.as_json([verdict]), parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(closed(schema)).validate(written)
    assert verdict.outcome.value == written["outcome"]


def test_several_documents(verdict: Verdict, schema: Any) -> None:
    """Several verdicts stand under `runs`, each as it would alone."""
    written = json.loads(files.as_json([verdict, verdict]))
    jsonschema.Draft202012Validator(closed(schema)).validate(written)
    assert [verdict_document(verdict)] * 2 == written["runs"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("outcome",), "maybe"),
        (("cases", "run"), -1),
        (("features", 0, "status"), "skipped"),
        (("failures", 0, "error"), "large"),
        (("failures", 0, "where", "row"), None),
        (("diagnosis", 0, "explains"), 1.5),
        (("accuracy", "int8"), {}),
        (("more",), 1),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else repr(value),
)
def test_schema_refuses(schema: Any, path: tuple[Any, ...], value: Any) -> None:
    """A document with one value that should not be is refused."""
    written = verdict_document(extreme())
    at: Any = written
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(closed(schema)).validate(written)


def test_no_numbers_are_words() -> None:
    """Infinity and NaN are the words inf and nan, and a mixed head is null."""
    (failure,) = verdict_document(extreme())["failures"]
    assert ("inf", "nan") == (failure["error"], failure["allowed"])
    assert {"sample": 1, "head": None, "row": 4, "column": 11} == failure["where"]


def test_counts_add_up(verdict: Verdict) -> None:
    """Every case is passed, failed or inconclusive, once."""
    cases = verdict_document(verdict)["cases"]
    assert cases["run"] == cases["passed"] + cases["failed"] + cases["inconclusive"]


def test_junit_is_xml(verdict: Verdict) -> None:
    """The XML can be read back, whatever a target printed, and its counts are those in it."""
    root = ET.fromstring(junit.document([verdict]))  # noqa: S314  (we wrote it)
    (suite,) = root.iter("testsuite")
    cases = list(suite.iter("testcase"))
    counted = {kind: sum(c.find(kind) is not None for c in cases) for kind in ("failure", "error")}
    assert str(len(cases)) == suite.get("tests")
    assert str(counted["failure"]) == suite.get("failures")
    assert str(counted["error"]) == suite.get("errors")
    assert verdict.target == suite.get("name")


def test_junit_of_each_status() -> None:
    """Fail is a failure with the replay line, inconclusive an error, not offered is skipped.

    So is a feature that fails as cases without it do: the check is red.
    """
    root = ET.fromstring(junit.document([extreme()]))  # noqa: S314  (we wrote it)
    inside = {case.get("name"): [each.tag for each in case] for case in root.iter("testcase")}
    assert {
        "attn=causal": ["skipped"],
        "attn=none": ["error"],
        "attn=bool2d": ["skipped"],
        "bias=yes": [],
        "output": ["failure"],
        "weights": [],
    } == inside
    texts = [failure.text or "" for failure in root.iter("failure")]
    assert all(f"mha-parity replay {CASE.id} x:f" in text for text in texts)
    assert ["crash"] == [failure.get("type") for failure in root.iter("failure")]
    messages = {each.get("message") for tag in COUNTED.values() for each in root.iter(tag)}
    assert {
        "1 of 2 cases fail, as others do; the checks say why",
        "1 of 3 cases fail",
        "inconclusive: no case drawn",
        "not offered by the target",
    } == messages


def test_junit_has_red_features_where_these_explain_failures() -> None:
    """Thirty failures, all causal: that feature is red, one that half of them have is not."""
    causal = FeatureRow("attn", "causal", "fail", 40, "", 30)
    features = (causal, FeatureRow("attn", "none", "pass", 60), *HALVES)
    many = dataclasses.replace(
        extreme(), run=100, passed=70, failed=30, features=features, failure_groups=(CAUSAL,)
    )
    root = ET.fromstring(junit.document([many]))  # noqa: S314  (we wrote it)
    red = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert ["attn=causal", "output"] == red


def test_the_document_names_what_failures_have_in_common() -> None:
    """Features stand by name, a list for each axis."""
    subject = dataclasses.replace(extreme(), failure_groups=(CAUSAL,))
    assert [
        {"common": [["attn=causal"]], "explained": [], "absent": [["bias=yes"]]}
    ] == verdict_document(subject)["failure_groups"]


def test_junit_shares_the_target_s_time() -> None:
    """Test cases have times in proportion to what the target took, and they add up to it."""
    subject = extreme()
    features = tuple(
        dataclasses.replace(row, seconds=seconds)
        for row, seconds in zip(subject.features, (2.0, 1.0, 0.0, 3.0), strict=True)
    )
    checks = tuple(dataclasses.replace(row, seconds=3.0) for row in subject.checks)
    timed = dataclasses.replace(subject, features=features, checks=checks)
    root = ET.fromstring(junit.document([timed]))  # noqa: S314  (we wrote it)
    times = {case.get("name"): case.get("time") for case in root.iter("testcase")}
    assert {
        "attn=causal": "0.500000",
        "attn=none": "0.250000",
        "attn=bool2d": "0.000000",
        "bias=yes": "0.750000",
        "output": "0.750000",
        "weights": "0.750000",
    } == times


@pytest.mark.parametrize("isolated", [True, False], ids=["isolated", "in-process"])
def test_times_are_those_of_the_calls(isolated: bool) -> None:
    """A target that rests 10 ms over one head took as much there a case, and less elsewhere."""
    target = f"{SUBJECTS}/behaving.py:rests_over_one_head"
    options = Options(cases=40, in_process=not isolated)
    with opened(target, options) as candidate:
        verdict = check(candidate, options, target=target)
    rows = {(row.axis, row.value): row for row in verdict.features if row.cases}
    slow, quick = rows["heads", "one"], rows["heads", "many"]
    assert slow.seconds >= 0.01 * slow.cases
    assert quick.seconds / quick.cases < slow.seconds / slow.cases
    axes = {axis: sum(r.seconds for (a, _), r in rows.items() if a == axis) for axis, _ in rows}
    assert [pytest.approx(slow.seconds + quick.seconds)] * len(axes) == list(axes.values())
    output = next(row for row in verdict.checks if row.name == "output")
    assert pytest.approx(slow.seconds + quick.seconds) == output.seconds
    assert output.seconds < verdict.seconds


def test_junit_counts_over_targets() -> None:
    """The root counts the test cases of all targets, names each target, and adds the times up."""
    other = dataclasses.replace(extreme(), target="y:g", seconds=0.5)
    root = ET.fromstring(junit.document([extreme(), other]))  # noqa: S314  (we wrote it)
    suites = list(root)
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(name, "")) == sum(int(suite.get(name, "")) for suite in suites)
    assert ("0.750", ["0.250", "0.500"]) == (root.get("time"), [s.get("time") for s in suites])
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert 0 < len(names) == len(set(names))
    assert all(float(case.get("time", "")) >= 0 for case in root.iter("testcase"))


def test_a_failed_check_carries_its_own_replay_line() -> None:
    """Of two failed checks each test case shows its own failure."""
    broken = extreme()
    (first,) = broken.failures
    check_result = dataclasses.replace(
        first.check_result, check="weights", detail="weights are off"
    )
    second = dataclasses.replace(
        first, check_result=check_result, replay="mha-parity replay OTHER x:f"
    )
    checks = (CheckRow("output", 3, 1), CheckRow("weights", 2, 2))
    both = dataclasses.replace(broken, failures=(first, second), checks=checks)
    root = ET.fromstring(junit.document([both]))  # noqa: S314  (we wrote it)
    (text,) = [
        case.findtext("failure", "")
        for case in root.iter("testcase")
        if case.get("name") == "weights"
    ]
    assert "replay OTHER x:f" in text
    assert CASE.id not in text


def test_cases_that_were_not_asked_are_counted_separately() -> None:
    """Of a target that dies each time few cases fail; a note says why the others were not asked."""
    target = f"{SUBJECTS}/misbehaving.py:exits_over_one_head"
    options = Options(cases=40, diagnose=False, shrink=False)
    with client.isolated(target) as candidate:
        written = verdict_document(check(candidate, options, target=target))
    cases = written["cases"]
    assert "fail" == written["outcome"]
    assert 0 < cases["failed"] < cases["inconclusive"] < 40
    (note,) = written["notes"]
    assert f"{cases['inconclusive']} cases: not asked: the target's process was" in note
    assert f"; {cases['inconclusive']} inconclusive" in written["sentence"]
    assert {"crash"} <= {each["severity"] for each in written["failures"]}


def test_files_are_written_and_named(tmp_path: Path) -> None:
    """Each report asked for is written, and one line says where."""
    names: dict[str, str | None] = {
        kind: str(tmp_path / f"report.{kind}") for kind in ("json", "junit")
    }
    reports = files.write_reports([extreme()], names)
    assert SCHEMA == json.loads((tmp_path / "report.json").read_text("utf-8"))["schema"]
    assert (tmp_path / "report.junit").read_text("utf-8").startswith("<?xml")
    said = (f"JSON written to {names['json']}", f"JUnit XML written to {names['junit']}")
    assert (said, ()) == reports


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file named nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert ((), ()) == files.write_reports([extreme()], dict.fromkeys(files.MAKE))
    assert [] == list(tmp_path.iterdir())


def test_unwritable_files_are_refused(tmp_path: Path) -> None:
    """A missing folder, or a folder in place of a file, is one sentence before the run."""
    with pytest.raises(ValueError, match=r"there is no folder .*missing; make it\.$"):
        files.require_writable_files([str(tmp_path / "missing" / "report.json")])
    with pytest.raises(ValueError, match="is a folder, but should be a file"):
        files.require_writable_files([None, str(tmp_path)])
    files.require_writable_files([None, str(tmp_path / "report.json")])
    twice = [str(tmp_path / "report.json"), str(tmp_path / "." / "report.json")]
    with pytest.raises(UsageError, match="for two reports; name a file for each"):
        files.require_writable_files(twice)
    if os.geteuid():  # root may write everywhere
        tmp_path.chmod(0o500)
        with pytest.raises(UsageError, match="cannot be written: Permission denied; name another"):
            files.require_writable_files([str(tmp_path / "report.json")])


def test_a_report_that_cannot_be_written_takes_no_other(tmp_path: Path) -> None:
    """A full disk is a sentence; the reports beside it are written."""
    names: dict[str, str | None] = {"json": "/dev/full", "junit": str(tmp_path / "report.junit")}
    reports = files.write_reports([extreme()], names)
    assert "JUnit XML written to" in reports.lines[0]
    said = "/dev/full cannot be written: No space left on device; name another file."
    assert (said,) == reports.lost
