"""What is not given is empty: the results of a run and of a case have no defaults but nothing."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from mha_parity.core.candidate import CandidateError
from mha_parity.core.options import Options
from mha_parity.core.target_facts import NO_FACTS

# Of a case and of the options each default is a choice, which ids and the help name.
RESULTS = ("core.candidate", "core.check_result", "core.identity_card", "core.own_weights",
           "core.report_arrays", "core.target_facts", "core.verdict", "oracle.torch_answers",
           "checks.call_sequence", "run.case_run", "run.chunks", "run.repro")  # fmt: skip
# What an attention computes is torch's but where an experiment departs; a run is a single shard.
CHOSEN = {"FunctionCandidate.convention": "problem", "ExperimentResult.as_torch": True,
          "Shard.number": 1, "Shard.of": 1, "MatrixAxis.heads": 1,
          "Accuracy.contender": "target", "FunctionCandidate.facts": NO_FACTS}  # fmt: skip


def defaults(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the default of each field of the classes of a module, by class and field."""
    for name, kind in inspect.getmembers(module, inspect.isclass):
        if kind.__module__ != module.__name__:
            continue
        yield from ((f"{name}.{key}", value)
                    for key, value in getattr(kind, "_field_defaults", {}).items())  # fmt: skip
        for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            if field.default_factory is not dataclasses.MISSING:
                yield f"{name}.{field.name}", field.default_factory()
            elif field.default is not dataclasses.MISSING:
                yield f"{name}.{field.name}", field.default


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_not_given_is_empty(name: str) -> None:
    """Kills other numbers and truth values as defaults: a second that no call took, a failed row.

    An error or an allowance that was not measured is 0, what was not asked for is None.
    """
    found = list(defaults(import_module(f"mha_parity.{name}")))
    assert found
    for field, value in found:
        if field in {"Accuracy.bits_right", "CaseError.bound"}:
            assert math.isnan(value)
        elif field == "Verdict.improbable":
            assert (0, 0.0) == value
        elif field == "Step.mode":
            assert not any(value), "as the object was built"
        else:
            assert value == CHOSEN[field] if field in CHOSEN else not value, field


def test_an_error_without_a_time_took_none() -> None:
    """Kills another default of the time, which sums over failures would count."""
    error = CandidateError("crash", "It raised.")
    assert ("crash", "", 0.0, None) == (
        error.severity, error.detail, error.seconds, error.raised_in
    )  # fmt: skip


def test_a_run_that_names_nothing_has_the_documented_limits() -> None:
    """Replays, recorded answers and published figures name the seed; reports the number of cases.

    Kills other limits of time and memory, at which a target would be ended sooner or later.
    """
    plain = Options()
    assert (500, 0) == (plain.cases, plain.seed)
    assert (10.0, 4.0) == (plain.timeout, plain.memory)
    assert (True, True, "cpu") == (plain.diagnose, plain.shrink, plain.device)
