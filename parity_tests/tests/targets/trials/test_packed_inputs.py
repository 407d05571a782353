"""Query, key and value in one argument: found by trial, packed as it is read, and judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from mha_parity.targets.interpretations.packed_inputs import AXES, PackedInput
from mha_parity.targets.interpretations.try_interpretations import SMALL
from subject_checks import check_subject, load_subject

FILE = "packed_inputs.py"
RIGHT = {
    "stacked": "`qkv` query, key and value in one array (N, L, 3, H, D)",
    "keys_stacked": "`q` the query, `kv` key and value in one array (N, S, 2, H, D)",
    "rows_of_numpy": "`qkv` query, key and value in one array (N, L, 3·H·D)",
    "in_a_tuple": "`qkv` a tuple of query, key and value",
    "in_a_list_of_values_first": "`vqk` a tuple of value, query and key",
    "PartsOfChannels": "`qkv` query, key and value in one array (N, 3·H·D, L)",
    "HeadsOfChannels": "`qkv` query, key and value in one array (N, H·3·D, L)",
    "OneHeadOfChannels": "`x` query, key and value in one array (N, 3·H·D, L)",
}
SQUARE = ["stacked", "rows_of_numpy", "PartsOfChannels", "HeadsOfChannels", "OneHeadOfChannels"]
ONE_ARRAY = "S unlike L is not served (its queries and keys lie in one array)"


def bound(name: str) -> Any:
    """Return a subject as it is recognised."""
    return bind(load_subject(f"{FILE}:{name}"))


@pytest.mark.repeats(3)
@pytest.mark.parametrize(("name", "said"), RIGHT.items(), ids=RIGHT)
def test_right_ones_pass_with_gradients(name: str, said: str) -> None:
    """How they are packed is said, and that one array has as many keys as queries."""
    verdict = check_subject(f"{FILE}:{name}", cases=24, grad=name != "rows_of_numpy")
    assert 0 == verdict.failed, verdict
    assert verdict.passed > 15, verdict
    assert not [each for each in verdict.parameters if each.is_untried]
    assert any(said in note for note in verdict.notes), verdict.notes
    assert any(ONE_ARRAY in note for note in verdict.notes) is (name in SQUARE)


@pytest.mark.parametrize(
    "name",
    ["stacked_late", "keys_stacked_late", "in_a_tuple_by_width", "HeadsOfChannelsHalfScaled",
     "ForgetsHeads"],
)  # fmt: skip
def test_wrong_ones_fail(name: str) -> None:
    """A wrong scale, rule or number of heads is no other way to pack."""
    verdict = check_subject(f"{FILE}:{name}", cases=24, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


def test_wrong_gradients_fail() -> None:
    """The part of the array's gradient that is the values' is compared with theirs."""
    assert (
        0
        == check_subject(
            f"{FILE}:values_detached", cases=24, features=(("gradients", "no"),)
        ).failed
    )
    verdict = check_subject(f"{FILE}:values_detached", cases=24, grad=True)
    assert Outcome.FAIL == verdict.outcome, verdict
    wrong = {each.name for each in verdict.checks if each.failed}
    assert "gradient of value" in wrong
    assert "gradient of query" not in wrong


def test_parts_in_another_order_than_the_name_says_are_wrong() -> None:
    """What would be right with values for keys is judged by its name, and found to exchange them.

    Not refused: its output is no attention of the parts that the name says, by any other reading.
    """
    verdict = check_subject(f"{FILE}:keys_stacked_crossed", cases=24, diagnose=True)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert "k and v are exchanged" == verdict.diagnosis[0].title
    said = "`kv` key and value in one array (N, S, 2, H, D)"
    assert any(said in note for note in verdict.notes), verdict.notes


def test_what_an_array_cannot_hold_is_not_offered() -> None:
    """Keys of another number or width; key and value alone may have fewer heads."""
    stacked, keys = (bound(name).offer for name in ("stacked", "keys_stacked"))
    assert ("self",) == stacked["inputs"]
    assert ("equal",) == stacked["kv_heads"]
    assert ("equal",) == stacked["v_dim"]
    assert ("self", "cross") == keys["inputs"]
    assert ("equal", "fewer") == keys["kv_heads"]
    assert "empty" in stacked["size"]


@pytest.mark.parametrize(
    ("layout", "axes"),
    [(layout, axes) for (layout, _), several in AXES.items() for axes in several if axes],
)
def test_an_array_holds_each_number_of_its_parts_once(layout: str, axes: str) -> None:
    """Unpacked, all arrays come back; the axes have the sizes of their letters."""
    batch = 1 if layout == "unbatched" else 2
    case = SMALL.replace(form="qkv", projection="none", keys=5, batch=batch, layout=layout)
    problem = make_problem(case)
    given = PackedInput("qkv", ("k", "q", "v"), tuple(axes.split()))
    array = given.pack(problem)
    sizes = {"p": 3, "n": 2, "l": 5, "h": 4, "d": 6}
    assert array.shape == tuple(
        int(np.prod([sizes[axis] for axis in group])) for group in axes.split()
    )
    for role, rows in given.unpack(problem, array).items():
        np.testing.assert_array_equal(rows, getattr(problem, role))
