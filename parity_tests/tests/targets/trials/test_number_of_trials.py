"""A search for an interpretation ends early where no further trial can succeed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest

from mha_parity.core.candidate import Answer, CandidateError, TargetError
from mha_parity.targets import load
from mha_parity.targets.backends import torch_arrays
from mha_parity.targets.bind import bind
from mha_parity.targets.interpretations.try_interpretations import TRIALS, TRIALS_RAISED, Search
from mha_parity.targets.trials.call_search import may_speak_of_dtype
from mha_parity.targets.trials.fitted_target import Fitted
from subject_checks import SUBJECTS


def test_a_search_tries_no_more_than_its_limit() -> None:
    """Of endlessly many interpretations that raise, TRIALS are tried."""

    def ask(_how: object, _problem: object) -> Answer:
        raise CandidateError("crash", "raises")

    found = Search(ask)
    bound = bind(load.load(f"{SUBJECTS}/functions_of_weights.py:tiled"))
    assert isinstance(bound, Fitted)
    found.run(repeat(bound.how))
    assert TRIALS == len(found.trials)


def test_a_call_that_raises_is_made_once_for_all_weights() -> None:
    """A layer that raises with its weights filled in one way is not asked with them in others."""

    def ask(_how: object, _problem: object) -> Answer:
        raise CandidateError("crash", "raises")

    bound = bind(load.load(f"{SUBJECTS}/second_readings.py:PairAndValues"))
    assert isinstance(bound, Fitted)
    ways = [replace(bound.how, slots=bound.how.slots[:n]) for n in range(3)]
    assert bound.how.construction is not None
    other = replace(bound.how, layout="unbatched")
    found = Search(ask)
    found.run([*ways, other, *ways])
    assert ["batch_first", "unbatched"] == [each.interpretation.layout for each in found.trials]


def test_arrays_of_another_library_cost_a_hundred_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of torch that refuses NumPy's arrays refuses them in every role and dtype."""
    ran: list[tuple[str, int]] = []
    run = Search.run

    def counted(self: Search, candidates: Any) -> Any:
        found = run(self, candidates)
        ran.append((self.dtype, len(self.trials)))
        return found

    monkeypatch.setattr(Search, "run", counted)
    with suppress(TargetError):
        bind(load.load(f"{SUBJECTS}/wrong_by_axes.py:put_back_by_the_order"))
    assert ("float64", TRIALS_RAISED) == ran[0]
    assert {"float64"} == {dtype for dtype, _ in ran}


def test_a_library_without_float64_is_tried_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX has none by default: no trial in float64 is no reason to end the search."""
    narrow = ("float32", "float16", "bfloat16")
    monkeypatch.setattr(torch_arrays.TorchArrays, "dtypes", narrow)
    candidate = bind(load.load(f"{SUBJECTS}/second_readings.py:PairAndValues"))
    assert narrow == candidate.offer["dtype"]


@pytest.mark.parametrize(
    "raised",
    [
        "raised RuntimeError: expected scalar type Float but found Double [a.py:3]",
        "raised ValueError: 32 of them are wanted [a.py:3]",
        "raised AssertionError [a.py:3]",
        "raised AssertionError: query [2, 5] is float64 [a.py:3]",
        "raised NotImplementedError: not here [a.py:3]",
    ],
)
def test_another_dtype_is_tried_where_it_may_serve(raised: str) -> None:
    """What speaks of a dtype or its bits, or does not say why, may serve another."""
    assert may_speak_of_dtype(raised)


@pytest.mark.parametrize(
    "raised",
    [
        "raised IndexError: index 5 is out of bounds [float64.py:32]",
        "raised TypeError: got numpy.ndarray, expected a tensor of dtype float [a.py:3]",
        "raised AttributeError: 'NoneType' object has no attribute 'shape' [a.py:3]",
    ],
)
def test_no_other_dtype_is_tried_where_roles_are_wrong(raised: str) -> None:
    """Calls that raise by sizes, None or another library's arrays raise so in every dtype."""
    assert not may_speak_of_dtype(raised)
