"""Attention of one array over itself, as it is first taught, is judged without projections."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.commands.adapt import source_of_adapter
from mha_parity.core.candidate import CandidateError
from mha_parity.core.case import parse
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, checks_of, load_subject

FILE = "one_array.py"
checked = checks_of(FILE, cases=60)


@pytest.mark.parametrize("name", ["of_rows", "of_heads", "of_tensors"])
def test_right_ones_pass(name: str) -> None:
    """Every problem has one object as query, key and value, and a mask is found by trial."""
    verdict = checked(name, grad=name == "of_tensors")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(("projection", "one_array") == (row.axis, row.value) for row in verdict.features)
    masked = any("`mask`: True keeps" in note for note in verdict.notes)
    assert masked is (name == "of_tensors")


@pytest.mark.parametrize(
    ("name", "bug"),
    [("of_heads_by_width", "scale-dmodel"), ("of_tensors_by_columns", "softmax-query-axis")],
)
def test_wrong_ones_are_named(name: str, bug: str) -> None:
    """The names of the catalogue need no more than the answers."""
    verdict = checked(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert bug == verdict.diagnosis[0].bug


def test_another_key_is_not_asked() -> None:
    """It has no place in the call: the answer would be that of the query alone."""
    bound = bind(load_subject(f"{FILE}:of_rows"))
    problem = make_problem(parse("qkv-N2-L3-S3-H1-D4-onearray-s5"))
    assert problem.query is problem.key is problem.value
    assert problem.output_shape == bound(problem).output.shape
    other = problem.replace(key=np.array(problem.key))
    with pytest.raises(CandidateError, match="not asked: it takes one array") as caught:
        bound(other)
    assert "inconclusive" == caught.value.severity


def test_its_adapter_is_left_to_its_author() -> None:
    """A call has three arrays: lines that pass the query alone would be red for a right target."""
    source = source_of_adapter(f"{SUBJECTS / FILE}:of_heads")
    assert "one array as query, key and value" in source
    assert "raise NotImplementedError" in source
