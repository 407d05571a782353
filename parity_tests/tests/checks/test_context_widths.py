"""A context that is narrower than the queries is judged where a constructor has a width for it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from mha_parity.checks.context_widths import NAME
from mha_parity.core.verdict import Outcome
from mha_parity.targets.layers.narrow_widths import context_names
from mha_parity.targets.layers.weights import Slot
from subject_checks import checks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

judged = checks_of("context_widths.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize("name", ["Own", "Packed", "OfKeysAndValues", "Required"])
def test_a_width_of_its_own_is_tried(name: str) -> None:
    """The parameter gets another value than the queries' width, and is named untried no more."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    assert any(NAME == row.name and row.cases for row in verdict.checks)
    assert "not tried" not in verdict.sentence


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("ScaledByContext", "context_dim"),
        ("SplitByContext", "context_dim"),
        ("ScaledByRequired", "d_memory"),
    ],
)
def test_a_width_that_reaches_the_heads_fails(name: str, width: str) -> None:
    """Equal widths hide it: no case of the run fails by its output."""
    verdict = judged(name, max_failures=0, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert f"with `{width}` = " in verdict.diagnosis[0].title
    assert "for the input of k and v alone" in verdict.diagnosis[0].remedy


def test_a_width_that_is_not_read_is_named_as_not_tried() -> None:
    """Its matrices are those of the queries' width, which is said besides."""
    verdict = judged("Ignored")
    assert Outcome.PASS is verdict.outcome, verdict
    assert any("contexts of another width are not served" in note for note in verdict.notes)
    assert verdict.sentence.endswith("parameters not tried: context_dim.")


def test_a_number_of_arrays_is_no_width() -> None:
    """`n` is that of a list of heads: with another value there are more. Kills a KeyError."""
    (named,) = inspect.signature(lambda n: n).parameters.values()
    slots = [Slot(f"heads.{head}.key", ("k",), ("d", "e"), head=head) for head in (0, 2)]

    def shapes_with(widths: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {f"heads.{head}.key": (6, 12) for head in range(widths.get("n", 2))}

    assert () == context_names([named], slots, shapes_with)
