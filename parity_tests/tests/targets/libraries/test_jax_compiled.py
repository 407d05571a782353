"""Calls of JAX's arrays are compiled as one program, but for what cannot be traced.

The library is installed by ``make test-frameworks`` alone; elsewhere these tests are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.case import parse
from mha_parity.targets.bind import bind
from mha_parity.targets.calls.jax_compiled import OPTIONS, CompiledCalls
from mha_parity.targets.calls.target_call import Call, as_they_stand
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        find_spec("jax") is None, reason="jax is not installed; make test-frameworks does"
    ),
]


class Counted:
    """A function of an array that counts how often its Python code is run."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, rows: Any, factor: float = 1.0) -> Any:
        """Return the rows times a factor."""
        self.times += 1
        return rows * factor


def rows(*shape: int) -> Any:
    """Return an array of JAX's of this shape."""
    import jax

    return jax.device_put(np.ones(shape, np.float32))


def test_a_program_serves_calls_of_the_same_sizes_and_numbers_alone() -> None:
    """Other arrays of these sizes do not trace anew; other sizes and another number do."""
    function, compiled = Counted(), CompiledCalls()
    for given, factor, times in ((rows(2, 3), 1.0, 1), (2 * rows(2, 3), 1.0, 1),
                                 (rows(2, 4), 1.0, 2), (rows(2, 3), 2.0, 3)):  # fmt: skip
        np.testing.assert_array_equal(given * factor, compiled(function, (given, factor), {}))
        assert times == function.times


def test_options_that_xla_does_not_know_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills a call that is made as it stands for it: ten times as slow, without a word."""
    monkeypatch.setitem(OPTIONS, "xla_of_another_version", True)
    function = Counted()
    CompiledCalls()(function, (rows(2, 3),), {})
    assert 1 == function.times
    assert "xla_of_another_version" not in OPTIONS
    assert OPTIONS["xla_cpu_use_fusion_emitters"] is False


def test_what_cannot_be_traced_is_called_as_it_stands() -> None:
    """A branch on a number of an array, and what raises anyway, as the call itself does."""

    def branches(given: Any) -> Any:
        if given.sum() > 100:
            raise ValueError("too large")
        return given + 1

    call = Call(branches, (rows(2, 3),), compiles=True)
    np.testing.assert_array_equal(2 * rows(2, 3), call.make())
    with pytest.raises(CandidateError, match="ValueError: too large"):
        Call(branches, (rows(20, 30),), compiles=True).make()


def test_calls_that_are_compared_are_all_made_as_they_stand() -> None:
    """Within the context the Python code is run each time."""
    function = Counted()
    call = Call(function, (rows(2, 3),), compiles=True)
    with as_they_stand(on=True):
        call.make()
        call.make()
    assert 2 == function.times
    call.make()
    call.make()
    assert 3 == function.times


@pytest.mark.skipif(
    find_spec("flax") is None, reason="flax is not installed; make test-frameworks does"
)
def test_layers_of_other_heads_have_programs_of_their_own() -> None:
    """Their arrays are of one shape: only a configuration says that one has more heads."""
    bound = bind(load(f"{SUBJECTS}/functional_layers.py:OfConfig"))
    for text in ("mha-N2-L5-S5-H3-D4-float32-s1", "mha-N2-L5-S5-H4-D3-float32-s1"):
        problem = make_problem(parse(text))
        compiled = bound(problem).output
        with as_they_stand(on=True):
            np.testing.assert_allclose(bound(problem).output, compiled, rtol=1e-5, atol=1e-6)
