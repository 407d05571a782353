"""A verdict has one word for one thing: a key of JSON is the name of the field in Python."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from typing import TYPE_CHECKING, Any

import pytest

from mha_parity.core.check_result import CheckResult
from mha_parity.core.parameters import Parameter
from mha_parity.core.verdict import (
    Accuracy,
    CheckRow,
    Diagnosis,
    Failure,
    FailureGroup,
    FeatureRow,
    Source,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# The object of the schema, the classes that it is written from, and keys that no field has.
OBJECTS = {
    "verdict": (
        (Verdict,),
        {
            "schema": "the version of the document",
            "verdict": "the outcome's value",
            "cases": "the counts of cases in one place",
        },
    ),
    "failure": (
        (Failure, CheckResult),
        {"place": "the check result's `where`", "message": "the check result's `detail`"},
    ),
    "feature": (
        (FeatureRow,),
        {"name": "axis and value", "title": "both in words", "reason": "the row's `note`"},
    ),
    "check": ((CheckRow,), {}),
    "diagnosis": ((Diagnosis,), {}),
    "failure_group": ((FailureGroup,), {}),
    "measure": ((Accuracy,), {"torch": "the errors of torch's own paths"}),
    "parameter": ((Parameter,), {}),
    "source": ((Source,), {}),
}


def without_field(kinds: Iterable[Any], keys: Iterable[str]) -> list[str]:
    """Return the keys that are neither a field nor a property of one of the classes."""
    known = {name for kind in kinds for name in dir(kind)}
    known |= {each.name for kind in kinds for each in dataclasses.fields(kind)}
    return sorted(set(keys) - known)


@pytest.mark.parametrize("name", OBJECTS)
def test_keys_are_fields(name: str) -> None:
    """Each key of the schema is a field, or has a reason why it is none."""
    text = importlib.resources.files("mha_parity.report").joinpath("schema.json").read_text("utf-8")
    kinds, others = OBJECTS[name]
    keys = json.loads(text)["$defs"][name]["properties"]
    assert set(others) == set(without_field(kinds, keys))


def test_another_word_is_found() -> None:
    """Kills a key under a word of its own, as `explained_fraction` was for `explains`."""
    assert ["explained_fraction"] == without_field((Diagnosis,), ["explained_fraction", "title"])
