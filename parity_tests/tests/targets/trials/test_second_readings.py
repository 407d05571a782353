"""What is easily misread of a right attention is read rightly, and wrong ones still fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from mha_parity.targets.trials.call_search import ONE_BY_DEFAULT
from subject_checks import check_subject, checks_of, load_subject

if TYPE_CHECKING:
    from pathlib import Path

judged = checks_of("second_readings.py", cases=60, dtypes=("float64",))


@pytest.mark.parametrize(
    "name",
    [
        "documented_in_a_table", "HidesByIndex", "FusedValuesFirst", "PairAndValues", "JoinsBiases",
        "BiasOrMask", "ReturnsThree", "BinaryMask", "PackedBehind", "OutputsFirst",
    ],
)  # fmt: skip
def test_right_ones_pass(name: str) -> None:
    """Each was refused, left open or red."""
    verdict = judged(name, cases=120)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


def test_a_table_says_what_a_mask_means() -> None:
    """The documentation goes before the name: `attn_mask` of such a function is torch's sdpa's."""
    candidate = bind(load_subject("second_readings.py:documented_in_a_table"))
    assert "True hides" in candidate.meanings["call.attn_mask"]
    assert "by its documentation" in candidate.meanings["call.attn_mask"]
    verdict = judged("documented_in_a_table_inverted")
    assert Outcome.FAIL == verdict.outcome, verdict.sentence


def test_a_shape_is_demanded_where_booleans_go_through() -> None:
    """Integers are an index of rows in other shapes than (L, S), in which booleans raise."""
    offer = bind(load_subject("second_readings.py:HidesByIndex")).offer
    assert "bool2d" in offer["attn"]
    assert "bool3d" not in offer["attn"]


def test_biases_of_zero_stand_for_none() -> None:
    """Cases without biases are asked all the same, and it is said."""
    candidate = bind(load_subject("second_readings.py:JoinsBiases"))
    assert {"no", "yes"} <= {*candidate.offer["bias"]}
    assert any("without biases its call raised TypeError" in each for each in candidate.remarks)


@pytest.mark.parametrize("name", ["JoinsBiasesByDefault", "BiasBreaksMask"])
def test_what_raises_by_mistake_fails(name: str) -> None:
    """A layer is judged as it is built by default, and a mistake excludes no pair of masks."""
    verdict = judged(name)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence


def test_one_dtype_that_no_sentence_names_is_tried() -> None:
    """Where every call in float64 raises, float32 is tried whatever is raised."""
    candidate = bind(load_subject("second_readings.py:in_float32_alone"))
    assert ("float32",) == candidate.offer["dtype"]


def test_memory_is_tried_with_masks() -> None:
    """The view of a bias raises where its memory is another one, and no case shows it."""
    candidate = bind(load_subject("second_readings.py:BiasOrMask"))
    assert "fortran" not in candidate.offer["memory"]
    assert any("are not passed together" in each for each in candidate.remarks)


def test_a_mask_that_raises_says_nothing_of_memory() -> None:
    """What was taken back by itself is not tried in other memory."""
    candidate = bind(load_subject("second_readings.py:hides_by_boolean_rows"))
    assert "float2d" not in candidate.offer["attn"]
    assert {"c", "fortran", "sliced"} <= {*candidate.offer["memory"]}


def test_a_binary_mask_gets_no_floats() -> None:
    """Floats would be booleans there: every number but 0 would hide its key."""
    candidate = bind(load_subject("second_readings.py:BinaryMask"))
    assert "float" not in candidate.offer["padding"]
    assert "is boolean" in candidate.reasons["padding", "float"]


def test_a_norm_that_is_read_is_named() -> None:
    """What stands in its place has no weights: the sentence says whose they are."""
    with pytest.raises(TargetError, match="`weight` of `norm` is read, which is taken out"):
        bind(load_subject("second_readings.py:ReadsItsNorm"))


def test_a_device_is_a_constant_of_a_notebook(tmp_path: Path) -> None:
    """Where arrays lie is asked without a call that computes."""
    source = """import torch
from torch.nn import functional as F
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
if torch.cuda.is_available():
    kind = 'cuda'
    print('on', kind)
else:
    kind = 'cpu'
def attend(q, k, v):
    q, k, v = (x.to(device).to(kind) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)
"""
    cell: dict[str, object] = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [],
            "execution_count": None}  # fmt: skip
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "book.ipynb").write_text(json.dumps(book), encoding="utf-8")
    verdict = check_subject(f"{tmp_path}/book.ipynb:attend", cases=60)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


def test_a_scale_that_is_1_by_default_is_torchs_in_each_call() -> None:
    """A kernel that wants it of the caller was red; the note says what calls get."""
    verdict = judged("scaled_by_callers")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(f"`sm_scale`: {ONE_BY_DEFAULT}" == note.rstrip(".") for note in verdict.notes)
    assert Outcome.FAIL is judged("scaled_twice_by_callers").outcome
    beside = judged("scaled_besides")
    assert Outcome.PASS is beside.outcome, beside.sentence
    assert not any(ONE_BY_DEFAULT in note for note in beside.notes)
