"""A verdict has one word for one thing: a key of JSON is the name of the field in Python."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from typing import TYPE_CHECKING, Any

import pytest

from mha_parity.core.check_result import CheckResult, Place
from mha_parity.core.parameters import Parameter, Role
from mha_parity.core.verdict import (
    Accuracy,
    CheckRow,
    Diagnosis,
    Failure,
    FailureGroup,
    FeatureRow,
    Refusal,
    Source,
    Verdict,
)
from mha_parity.report import json_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# The object of the schema, the classes that it is written from, and keys that no field has.
OBJECTS = {
    "verdict": (
        (Verdict,),
        {"schema": "the version of the document", "cases": "the counts of cases in one place"},
    ),
    "refused": ((Refusal,), {"schema": "as above", "outcome": "refused: there is none"}),
    "cases": ((Verdict,), {}),
    "failure": ((Failure, CheckResult), {}),
    "place": ((Place,), {}),
    "feature": ((FeatureRow,), {"name": "axis and value", "title": "both in words"}),
    "check": ((CheckRow,), {}),
    "diagnosis": ((Diagnosis,), {}),
    "failure_group": ((FailureGroup,), {}),
    "accuracy": (
        (Accuracy,),
        {"torch": "the errors of torch's own paths", "features": "rows of `accuracy_table`"},
    ),
    "measure": ((Accuracy,), {"torch": "the errors of torch's own paths"}),
    "parameter": ((Parameter,), {}),
    "source": ((Source,), {}),
}
# Fields that no key has, and why.
UNWRITTEN = {
    Verdict: {
        "accuracy_table": "under `accuracy`: `features` and `torch`",
        "worst": "for the terminal and the page, as are the following",
        "pictures": "arrays", "gradient_pictures": "arrays", "case_errors": "points of a plot",
        "improbable": "in the sentence",
    },
    Failure: {"check_result": "its fields are keys"},
    CheckResult: {
        "times_torch": "over the run, in `accuracy`", "improbable": "as of the verdict",
        "bound": "for a plot",
    },
    FeatureRow: {"axis": "in `name`", "value": "in `name`"},
    Diagnosis: {"operation": "in the source's `suspects`"},
    Accuracy: {
        "dtype": "the key above", "contender": "the key above", "axis": "in the key above",
        "value": "in the key above",
    },
    Source: {"text": "for the page"},
}  # fmt: skip
ERRORS = Accuracy(
    dtype="float32", cases=3, median_times_torch=1.5, worst_times_torch=8.0, bits_lost=0.5,
    bits_right=20.0,
)  # fmt: skip


def fields(kind: Any) -> set[str]:
    """Return the names of the fields of a class."""
    return {each.name for each in dataclasses.fields(kind)}


def without_field(kinds: Iterable[Any], keys: Iterable[str]) -> list[str]:
    """Return the keys that are neither a field nor a property of one of the classes."""
    known = {
        name
        for kind in kinds
        for name in (
            *fields(kind),
            *(n for n in dir(kind) if isinstance(getattr(kind, n), property)),
        )
    }
    return sorted(set(keys) - known)


def of_other_fields(written: Mapping[str, Any], *objects: Any) -> list[str]:
    """Return the keys with a plain value that is not that of the field of the key's name."""
    plain = {key: value for key, value in written.items() if isinstance(value, str | int | float)}
    return [
        key
        for key, value in plain.items()
        if (found := [getattr(each, key) for each in objects if hasattr(each, key)])
        and value not in [getattr(each, "id", each) for each in found]
    ]


def schema() -> dict[str, Any]:
    """Return the objects of the schema."""
    text = importlib.resources.files("mha_parity.report").joinpath("schema.json").read_text("utf-8")
    objects: dict[str, Any] = json.loads(text)["$defs"]
    return objects


def pairs(verdict: Verdict) -> Iterator[tuple[Mapping[str, Any], tuple[Any, ...]]]:
    """Yield each object of the document with that of Python which it is written from."""
    written = json_document.verdict_document(verdict)
    yield written, (verdict,)
    yield written["cases"], (verdict,)
    yield written["source"], (verdict.source,)
    for each in verdict.accuracy:
        yield written["accuracy"][each.dtype], (each,)
    for name in ("features", "checks", "diagnosis", "parameters"):
        for document, each in zip(written[name], getattr(verdict, name), strict=True):
            yield document, (each,)
    for document, failure in zip(written["failures"], verdict.failures, strict=True):
        yield document, (failure, failure.check_result)
        yield document["where"], (failure.check_result.where,)


@pytest.mark.parametrize("name", OBJECTS)
def test_keys_are_fields(name: str) -> None:
    """Each key of the schema is a field, or has a reason why it is none."""
    kinds, others = OBJECTS[name]
    assert set(others) == set(without_field(kinds, schema()[name]["properties"]))


@pytest.mark.parametrize("kind", dict.fromkeys(k for kinds, _ in OBJECTS.values() for k in kinds))
def test_fields_are_keys(kind: Any) -> None:
    """Each field is a key of an object that is written from its class, or has a reason."""
    keys = {
        key
        for name, (kinds, _) in OBJECTS.items()
        if kind in kinds
        for key in schema()[name]["properties"]
    }
    assert set(UNWRITTEN.get(kind, ())) == fields(kind) - keys


@pytest.fixture
def distinct(make_verdict: Callable[..., Verdict]) -> Verdict:
    """Return a verdict of which no two numbers or texts of one object are equal."""
    cause = Diagnosis(
        bug="a", title="b", remedy="c", explains=0.75, confident=True, evidence="e", seen_in="f"
    )
    mask = Parameter(name="m", of="call", role=Role.MASK, default="1", meaning="d", reason="r")
    return make_verdict(
        run=7, passed=4, failed=2, inconclusive=1, drawn=9, measured_cases=5, seconds=0.25,
        sensitivity={"zeros": 6}, dtype_finding="answers in float32", stopped_early=True,
        features=(FeatureRow("attn", "causal", "fail", 3, "2 of 3 fail", 2, 0.5),),
        checks=(CheckRow("output", 3, 2, 0.5),), diagnosis=(cause,), parameters=(mask,),
        accuracy=(ERRORS,), accuracy_table=(ERRORS,), source=Source("a.py", 3, "", 5, ((4, "x"),)),
    )  # fmt: skip


def differing(verdict: Verdict) -> list[str]:
    """Return the keys of the whole document whose values are not those of their fields."""
    return [key for each, objects in pairs(verdict) for key in of_other_fields(each, *objects)]


def test_values_are_those_of_the_fields(distinct: Verdict) -> None:
    """The value under a key is that of the field with this name."""
    assert 1 == len(distinct.failures)
    assert [] == differing(distinct)


def test_another_word_is_found() -> None:
    """Kills a key under a word of its own, as `explained_fraction` was for `explains`."""
    assert ["explained_fraction"] == without_field((Diagnosis,), ["explained_fraction", "title"])


def test_a_value_of_another_field_is_found(
    distinct: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills a key that has the value of another field, as `cases` with what failed."""
    planted = json_document.verdict_document(distinct)
    planted["checks"][0]["cases"] = distinct.checks[0].failed
    monkeypatch.setattr(json_document, "verdict_document", lambda _: planted)
    assert ["cases"] == differing(distinct)
