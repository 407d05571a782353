"""CI output: where a target is defined, workflow commands, the step summary, Markdown and SARIF."""

from __future__ import annotations

import dataclasses
import html
import importlib.resources
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from markdown_it import MarkdownIt

from mha_parity.__main__ import main
from mha_parity.core.case import parse
from mha_parity.core.check_result import SYSTEMATIC, CheckResult, Severity
from mha_parity.core.verdict import (
    Diagnosis,
    Failure,
    FeatureRow,
    Outcome,
    Refusal,
    Source,
    Verdict,
)
from mha_parity.report import files, github, markdown, sarif, wording
from mha_parity.report.brief import brief
from mha_parity.run.target_source import source_of
from subject_checks import SUBJECTS

CASE = parse("qkv-N1-L2-S2-H2-D1-unbatched-float64-s0")
TEXT = """import numpy as np

def attention(Q):
    return Q

class Layer:
    def forward(self, x):
        return x

other = attention
"""


def failed(*, check: str = "output", detail: str = "raised", cases: int = 2) -> Verdict:
    """Return a verdict on a target of a file that fails, with all that has to be escaped."""
    result = CheckResult(case=CASE, check=check, severity=Severity.WRONG, detail=detail)
    return Verdict(
        target="a,b|c.py:f",
        convention="qkv",
        outcome=Outcome.FAIL,
        run=3,
        passed=3 - cases,
        failed=cases,
        inconclusive=0,
        features=(FeatureRow("bias", "no", "fail", 2, "", 2), FeatureRow("bias", "yes", "pass", 1)),
        checks=(),
        failures=(Failure(check_result=result, case=CASE, replay=f"mha-parity replay {CASE.id}"),),
        diagnosis=(
            Diagnosis(
                bug="scale",
                title="100% <b>\nwrong",
                remedy="a|b",
                seen_in="a/b#1, a book",
                confident=True,
            ),
        ),
        environment={"mha_parity": "0.1.0"},
        source=Source("sub/a,b.py", 7, "def f(): ...", 9),
    )


@pytest.mark.parametrize(
    ("attribute", "line", "first"),
    [
        ("attention", 3, "def attention(Q):"),
        ("Layer", 6, "class Layer:"),
        ("Layer.forward", 7, "    def forward(self, x):"),
        ("other", 10, "other = attention"),
    ],
)
def test_a_definition_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str, line: int, first: str
) -> None:
    """A function, class, method or assigned name is found in a file and in a package's module."""
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "code.py").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for target in (f"some/code.py:{attribute}", f"some.code:{attribute}"):
        found = source_of(target)
        assert found is not None
        assert ("some/code.py", line) == (Path(found.file).as_posix(), found.line)
        assert first == found.text.splitlines()[0]


@pytest.mark.parametrize("target", ["code.py:missing", "absent.py:f", "absent:f", "text.py:f", "f"])
def test_no_definition_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """A missing name, file or module, and a file that is no Python, have no place."""
    (tmp_path / "code.py").write_text(TEXT, encoding="utf-8")
    (tmp_path / "text.py").write_text("def f(:", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert source_of(target) is None


def test_a_notebook_has_the_line_of_its_file(tmp_path: Path) -> None:
    """The line is that of the notebook's JSON, on which an annotation can be shown."""
    cells = [{"cell_type": "code", "source": text.splitlines(True)} for text in ("x = 1", TEXT)]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}, indent=1), encoding="utf-8")
    found = source_of(f"{path}:attention")
    assert found is not None
    assert '"def attention(Q):' in path.read_text("utf-8").splitlines()[found.line - 1]


def test_the_line_that_raised_is_known(tmp_path: Path) -> None:
    """An exception's line in the target's own file is the line at fault; another file's is not."""
    path = tmp_path / "code.py"
    path.write_text(TEXT, encoding="utf-8")
    for file, line in ((path, 4), (tmp_path / "other.py", 0)):
        failures = failed(detail=f"raised IndexError: [1:2] [{file}:4]").failures
        found = source_of(f"{path}:attention", failures)
        assert found is not None
        assert line == found.raised_at


def test_workflow_commands_are_escaped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A failure is one line: file from the workspace on, the line that raised, text escaped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(github.WORKSPACE, str(tmp_path.parent))
    (command,) = github.workflow_commands([failed()])
    head, _, message = command.removeprefix("::error ").partition("::")
    assert f"file={tmp_path.name}/sub/a%2Cb.py,line=9,title=mha-parity%3A a%2Cb|c.py%3Af" == head
    assert "100%25 <b>%0Awrong%0Aremedy: a|b%0Areplay: mha-parity replay" in message
    assert "\n" not in command


def test_a_run_without_a_verdict_is_annotated(capsys: pytest.CaptureFixture[str]) -> None:
    """What could not start is an error in the list of annotations too, where that is asked for."""
    for options, said in (((), ""), (("--github",), "::error title=mha-parity::got ")):
        assert 2 == main(["check", "no_such_module:f", *options])
        assert capsys.readouterr().out.startswith(said)


def test_a_target_that_cannot_be_judged_is_annotated_at_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kills an annotation without a place, which GitHub shows at no file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(github.WORKSPACE, str(tmp_path))
    Path("raises.py").write_text("raise ValueError(1)\n", encoding="utf-8")
    for targets in (["raises.py:f"], ["raises.py:f", "raises.py:g"]):
        assert 2 == main(["check", *targets, "--github"])
        shown = capsys.readouterr().out
        assert len(targets) == shown.count(
            "::error file=raises.py,title=mha-parity::got the target"
        )


def test_a_systematic_error_adds_nothing_to_a_known_cause() -> None:
    """Kills "also fails: systematic error" in pytest and Markdown: the terminal leaves it out."""
    verdict = failed()
    over_run = dataclasses.replace(verdict.failures[0].check_result, check=SYSTEMATIC)
    shrunk = dataclasses.replace(verdict.failures[0], shrunk_from=CASE)
    failures = (shrunk, dataclasses.replace(verdict.failures[0], check_result=over_run))
    known = dataclasses.replace(verdict, failures=failures)
    unknown = dataclasses.replace(known, diagnosis=())
    for said in (brief, lambda found: markdown.document([found])):
        assert SYSTEMATIC not in said(known)
        assert SYSTEMATIC in said(unknown)


def test_a_run_without_a_verdict_writes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where every target is refused, each file that was asked for has the sentence and is valid."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(github.SUMMARY, "summary.md")
    kinds = ("json", "junit", "sarif", "markdown", "html")
    words = [word for kind in kinds for word in (f"--{kind}", f"v.{kind}")]
    sentence = "got the target 'missing.py:f', but there is no file missing.py"
    for targets in (["missing.py:f"], ["missing.py:f", "missing.py:g"]):
        assert 2 == main(["check", *targets, "--github", *words])
        said = capsys.readouterr()
        assert len(targets) == said.out.count("::error title=mha-parity::") == said.err.count("got")
        texts = {kind: Path(f"v.{kind}").read_text("utf-8") for kind in kinds}
        assert [] == [kind for kind, text in texts.items() if sentence not in html.unescape(text)]
    written = json.loads(texts["json"])
    schema = importlib.resources.files("mha_parity.report").joinpath("schema.json")
    jsonschema.Draft202012Validator(json.loads(schema.read_text("utf-8"))).validate(written)
    assert ["refused", "refused"] == [each["outcome"] for each in written["runs"]]
    log = json.loads(texts["sarif"])
    jsonschema.Draft202012Validator(LOG).validate(log)
    (invocation,) = log["runs"][0]["invocations"]
    assert not invocation["executionSuccessful"]
    suites = ET.fromstring(texts["junit"])  # noqa: S314  (our own file)
    assert ("2", "2", "0") == tuple(suites.get(each) for each in ("tests", "errors", "failures"))
    assert Path("summary.md").read_text("utf-8").endswith(texts["markdown"])


def test_a_refused_target_stands_beside_a_verdict() -> None:
    """One refused target takes nothing from the others in any file."""
    refused = [Refusal("missing.py:f", "got nothing.")]
    texts = {kind: make([failed()], refused) for kind, make in files.MAKE.items()}
    for text in texts.values():
        assert "got nothing" in text
        assert "fails 2 of 3 cases" in html.unescape(text)
    jsonschema.Draft202012Validator(LOG).validate(json.loads(texts["sarif"]))


def test_a_failed_run_is_red_in_junit() -> None:
    """Where no feature and no check of its own is red, the run is."""
    root = ET.fromstring(files.MAKE["junit"]([failed()], []))  # noqa: S314  (our own file)
    (red,) = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert ("all-cases", "1") == (red.get("name"), root.get("failures"))


def test_only_what_does_not_hold_is_annotated() -> None:
    """An inconclusive run is a warning; one that holds, nothing; no file, no place."""
    verdict = dataclasses.replace(failed(), source=None)
    unclear = dataclasses.replace(verdict, outcome=Outcome.INCONCLUSIVE)
    holds = dataclasses.replace(verdict, outcome=Outcome.PASS)
    (command,) = github.workflow_commands([holds, unclear])
    assert command.startswith("::warning title=mha-parity%3A a%2Cb|c.py%3Af::Inconclusive")


def test_markdown_shows_text_as_it_is() -> None:
    """Headings, tables and links hold their text escaped; what tells most comes first."""
    text = markdown.document([failed()])
    assert "## ✗ Parity does not hold: a,b\\|c.py:f fails 2 of 3 cases." in text
    assert "| the bug | **100% \\<b> wrong** `scale` |" in text
    assert "| remedy | a\\|b |" in text
    assert "| seen in | [a/b#1](https://github.com/a/b/issues/1), a book |" in text
    assert "| bias | ✗ no in\\_proj bias 2 of 2, ✓ in\\_proj bias 1 |" in text
    assert text.count("<details>") == text.count("</details>") == 1


def test_backticks_in_a_sentence_enclose_code() -> None:
    """Notes and refusals render what they enclose in backticks as code; a single one stays."""
    notes = ("pass `mask` or `a_b|c`, not ` alone",)
    verdict = dataclasses.replace(failed(), notes=notes)
    text = markdown.document([verdict], [Refusal("x.py", "got `*x*`, write `y`.")])
    page = MarkdownIt().enable("table").render(text)
    assert "<td>pass <code>mask</code> or <code>a_b|c</code>, not ` alone</td>" in page
    assert "<p>got <code>*x*</code>, write <code>y</code>.</p>" in page


def test_a_fence_outgrows_the_text() -> None:
    """What a target printed cannot end the block of code that shows it."""
    text = markdown.document([failed(detail="raised\n````\n<img>")])
    assert "`````text\nraised\n````\n<img>\n`````\n" in text


def test_an_error_over_the_run_says_what_is_wrong() -> None:
    """Where no single case fails, the sentence says which error the run has."""
    detail = "over 9 cases in float32, the output is too large by a part of 1e-06 (3 roundoffs)."
    verdict = failed(check=SYSTEMATIC, detail=detail, cases=0)
    assert (
        "Parity does not hold: a,b|c.py:f: systematic error over 9 cases in float32, the output is "
        "too large by a part of 1e-06; no single one of 3 cases fails."
    ) == verdict.sentence


def test_seen_in_is_linked() -> None:
    """A thread has its address, anything else none."""
    assert [("a/b#1", "https://github.com/a/b/issues/1"), ("a book", "")] == wording.source_links(
        "a/b#1, a book"
    )
    assert [] == wording.source_links("")


def closed(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others, as SARIF's are."""
    return {
        "type": "object",
        "required": list(required),
        "properties": required | optional,
        "additionalProperties": False,
    }


# Sections 3.13 to 3.58 of SARIF 2.1.0, of what is written here.
STRING = {"type": "string", "minLength": 1}
URI = {"type": "string", "pattern": r"^[^\\ ]+$"}
MESSAGE = closed({"text": STRING})
RULE = closed({"id": STRING}, shortDescription=MESSAGE)
PLACE = closed(
    {
        "artifactLocation": closed({"uri": URI}),
        "region": closed({"startLine": {"type": "integer", "minimum": 1}}),
    }
)
RESULT = closed(
    {"message": MESSAGE},
    ruleId=STRING,
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    locations={"type": "array", "items": closed({"physicalLocation": PLACE})},
)
RULES = {"type": "array", "uniqueItems": True, "items": RULE}
DRIVER = closed({"name": STRING}, version=STRING, rules=RULES)
NOTIFICATION = closed({"message": MESSAGE}, level=RESULT["properties"]["level"])
INVOCATION = closed(
    {"executionSuccessful": {"type": "boolean"}},
    toolExecutionNotifications={"type": "array", "items": NOTIFICATION},
)
RUN = closed(
    {"tool": closed({"driver": DRIVER}), "results": {"type": "array", "items": RESULT}},
    invocations={"type": "array", "items": INVOCATION},
)
LOG = closed(
    {"version": {"const": "2.1.0"}, "runs": {"type": "array", "items": RUN}}, **{"$schema": URI}
)


def test_sarif_follows_the_rules_of_its_format() -> None:
    """Every property is one of SARIF 2.1.0's; each result names its rule, by id and by number."""
    verdict = failed()
    unclear = dataclasses.replace(verdict, outcome=Outcome.INCONCLUSIVE, source=None)
    holds = dataclasses.replace(verdict, outcome=Outcome.PASS, failures=())
    log = json.loads(sarif.document([verdict, unclear, holds]))
    jsonschema.Draft202012Validator(LOG).validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert ["inconclusive", "output"] == rules
    assert ["error", "warning"] == [result["level"] for result in run["results"]]
    for result in run["results"]:
        assert result["ruleId"] == rules[result["ruleIndex"]]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert ("sub/a,b.py", 9) == (place["artifactLocation"]["uri"], place["region"]["startLine"])
    assert "locations" not in run["results"][1]


def test_sarif_and_annotations_name_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both from the workspace on, SARIF as an address: a run may be in a folder of its own."""
    (tmp_path / "my sub").mkdir()
    monkeypatch.chdir(tmp_path / "my sub")
    monkeypatch.setenv(github.WORKSPACE, str(tmp_path))
    source = dataclasses.replace(failed().source, file="a.py")  # type: ignore[type-var]  # it has one
    verdict = dataclasses.replace(failed(), source=source)
    assert "file=my sub/a.py," in next(github.workflow_commands([verdict]))
    (result,) = json.loads(sarif.document([verdict]))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert "my%20sub/a.py" == place["artifactLocation"]["uri"]


def test_check_writes_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run annotates the line, adds the summary with a picture, and writes both files."""
    monkeypatch.chdir(tmp_path)
    text = (SUBJECTS / "wrong_scale.py").read_text("utf-8")
    Path("scale.py").write_text(text, encoding="utf-8")
    Path("summary.md").write_text("before\n", encoding="utf-8")
    monkeypatch.setenv(github.SUMMARY, "summary.md")
    monkeypatch.delenv(github.WORKSPACE, raising=False)
    options = "--in-process --cases 20 --github --markdown v.md --sarif v.sarif"
    assert 1 == main(["check", "scale.py:f", *options.split()])
    (line,) = (n for n, each in enumerate(text.splitlines(), 1) if "np.sqrt(d_model)" in each)
    shown = capsys.readouterr().out
    assert f"\n::error file=scale.py,line={line},title=" in shown
    assert f"%0Alook at: scale.py:{line}: {text.splitlines()[line - 1].strip()}%0A" in shown
    summary = Path("summary.md").read_text("utf-8")
    assert f"before\n{Path('v.md').read_text('utf-8')}" == summary
    assert re.search(r"\n  row 0 +\|[ ░▒▓█]+\| +\|[ ░▒▓█]+\|\n", summary)
    assert "| remedy | divide the scores by sqrt" in summary
    jsonschema.Draft202012Validator(LOG).validate(json.loads(Path("v.sarif").read_text("utf-8")))
