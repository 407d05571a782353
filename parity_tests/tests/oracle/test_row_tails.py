"""NaN that a bfloat16 product carries into the row before is let pass there and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.check_result import Severity
from mha_parity.judging.accuracy import relative_error
from mha_parity.judging.output import JudgeSettings, judge_answer
from mha_parity.oracle import row_tails
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.row_tails import TILE, nan_past_rows, rows_before_marked
from mha_torch import rows_share_nan

MASKED = "mha-N3-L9-S9-H3-D7-seqfirst-boolmask3d-maskedrows-bfloat16-s52"


@pytest.mark.parametrize("terms", [1, 7, 9, 31, 32, 33, 35, 64, 65, 97])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_torch_has_nan_in_no_other_rows(terms: int, dtype: str) -> None:
    """With NaN in one row, torch's product has NaN there and in the reached rows alone."""
    rows = np.zeros((18, 5), dtype=bool)
    rows[9, 2] = True
    left = torch.ones(18, 5, terms, dtype=getattr(torch, dtype))
    left[9, 2] = torch.nan
    allowed = rows | (rows_before_marked(rows, terms) if rows_share_nan(dtype) else False)

    for product in (left @ torch.ones(18, terms, 4, dtype=left.dtype),
                    left.reshape(-1, terms) @ torch.ones(terms, 4, dtype=left.dtype)):  # fmt: skip
        found = product.isnan().any(-1).reshape(18, 5).numpy()
        assert rows[9, 2] == found[9, 2]
        assert not (found & ~allowed).any()


def test_rows_are_reached_as_far_as_a_tile() -> None:
    """A row of 65 terms is read to 96: the next row begins there; one of 7 reaches four rows."""
    rows = np.array([[False] * 6, [True] + [False] * 5])
    assert [5] == np.flatnonzero(rows_before_marked(rows, 65)).tolist()
    assert [2, 3, 4, 5] == np.flatnonzero(rows_before_marked(rows, 7)).tolist()
    assert not rows_before_marked(rows, 2 * TILE).any()


def test_wide_dtypes_share_no_rows() -> None:
    """The kernel is one of bfloat16: the probe finds nothing in float32 and float64."""
    assert not rows_share_nan("float32")
    assert not rows_share_nan("float64")


@pytest.mark.parametrize("shares", [True, False], ids=["shares", "keeps"])
def test_nan_is_let_pass_only_where_the_product_shares_rows(
    shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN beside a masked row is wrong on a machine whose product keeps its rows to themselves."""
    monkeypatch.setattr(row_tails, "rows_share_nan", lambda _dtype: shares)
    problem = make_problem(parse(MASKED))
    reference = reference_answer(problem)
    output = reference.output.astype(problem.dtype)
    sample, _, row = np.argwhere(np.asarray(problem.masked_rows()))[0]
    before = (sample - 1, row) if sample else (sample, row - 1)  # sequence first, or batch first
    output[before] = np.nan
    far = tuple(np.argwhere(np.isfinite(reference.output) & ~nan_past_rows(problem))[0])

    found = judge_answer(problem, reference, Answer(output=output), JudgeSettings())[-1]
    assert (Severity.MATCH if shares else Severity.WRONG) is found.severity
    output[far] = np.nan
    found = judge_answer(problem, reference, Answer(output=output), JudgeSettings())[-1]
    assert Severity.WRONG is found.severity


def test_nan_of_a_reached_row_is_in_all_heads_behind_the_projection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """17 weights are read to 32: row 13 has the NaN of row 14 in a head, and 0 times it in others.

    The width of 32 is a whole tile, so that the projection reaches no row itself. The error of
    such an output is that of its numbers, not infinite.
    """
    monkeypatch.setattr(row_tails, "rows_share_nan", lambda _dtype: True)
    text = "mha-N1-L17-S17-H4-D8-boolmask3d-maskedrows-bfloat16-s0"
    problem = make_problem(parse(text))
    masked = np.asarray(problem.masked_rows())[0]
    row = int(np.argwhere(masked)[0][1])
    assert not masked[:, row - 1].any()
    assert nan_past_rows(problem)[0, row - 1].all()
    assert not nan_past_rows(problem)[0, row - 2].any()

    reference = reference_answer(problem)
    output = reference.output.astype(problem.dtype)
    own = relative_error(problem, reference, output)
    output[0, row - 1] = np.nan
    assert np.isfinite(own)
    assert own == relative_error(problem, reference, output)
    output[0, row - 2] = np.nan
    assert not np.isfinite(relative_error(problem, reference, output))
