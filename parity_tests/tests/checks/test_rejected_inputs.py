"""Who is asked for integers, and for keys and values of different lengths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import whole_offer
from mha_parity.checks.rejected_inputs import (
    LENGTH_REMARK,
    check_integers,
    check_lengths,
    check_rejected_inputs,
)
from mha_parity.core.candidate import REMARK, CandidateError
from mha_parity.core.case import Case

PLAIN = Case(seed=3, batch=2, queries=5, keys=7, heads_count=3, head_dim=2, inputs="distinct")
NAME = "rejects mismatched K/V lengths"


class Bound(SimpleNamespace):
    """The part of a bound target that is asked: a call of integers is refused."""

    subject: Any = None

    def prepare(self, _problem: Any) -> Any:
        """Refuse."""
        raise CandidateError("crash", "It was asked.")

    def __call__(self, problem: Any) -> None:
        """Answer, or refuse."""
        assert problem.key.shape[1] == problem.value.shape[1] - 1 == PLAIN.keys - 1
        if self.refuses:
            raise CandidateError("crash", "It was refused.")


@pytest.mark.parametrize(
    ("library", "dtypes", "asked"),
    [
        ("numpy", ("float64",), True),
        ("numpy", ("float32",), False),
        ("torch", ("float64",), False),
        ("torch", ("float32",), False),
    ],
)
def test_integers_go_to_numpy_in_float64_alone(
    library: str, dtypes: tuple[str, ...], *, asked: bool
) -> None:
    """Kills `and` for `or`: a target that takes no float64 would be asked in float64."""
    bound: Any = Bound(library=SimpleNamespace(name=library), offer={"dtype": dtypes})
    if asked:
        with pytest.raises(CandidateError, match="It was asked"):
            list(check_integers(bound, make_problem(PLAIN)))
    else:
        assert [] == list(check_integers(bound, make_problem(PLAIN)))


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("convention", ["torch-module", "sdpa"])
def test_lengths_that_differ_fail_torchs_own_layer_alone(convention: str, *, refuses: bool) -> None:
    """Kills changes of which cases are asked, and of who promises what torch refuses."""
    bound: Any = Bound(convention=convention, refuses=refuses)
    (finding,) = check_lengths(bound, make_problem(PLAIN))
    if refuses:
        assert finding == NAME
    elif convention == "sdpa":
        assert finding == REMARK + LENGTH_REMARK
    else:
        assert finding.startswith(f"{NAME}: 6 keys and 7 values get an answer")
    for other in ({"attn": "causal"}, {"padding": "bool"}, {"inputs": "self", "keys": 5},
                  {"form": "qkv", "projection": "none"}):  # fmt: skip
        assert [] == list(check_lengths(bound, make_problem(PLAIN.replace(**other)))), other


def test_who_has_few_digits_is_not_asked() -> None:
    """In 16 bits alone no plain problem tells casts from roundings."""
    bound: Any = Bound(offer=whole_offer() | {"dtype": ("float16",)})
    assert [] == list(check_rejected_inputs(bound, PLAIN.replace(dtype="float16")))
