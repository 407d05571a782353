"""The recorded answers that a release carries serve layers and functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mha_parity
from mha_parity.__main__ import main
from mha_parity.answers import answers_file
from mha_parity.core.verdict import Outcome
from subject_checks import LAYER, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTION = "mha_numpy:scaled_dot_product_attention"


def test_without_a_target_layers_and_functions_find_cases(record: Callable[..., str]) -> None:
    """Three fifths are cases of the layer; the bug of a function in float64 is named."""
    path = record("--cases", "60", "--compact")
    layer = mha_parity.judge(LAYER, in_process=True, answers=path, draw=False)
    function = mha_parity.judge(FUNCTION, in_process=True, answers=path, draw=False)
    wrong = mha_parity.judge(WRONG, in_process=True, answers=path, draw=False)
    assert (0, 36) == (layer.failed, layer.run)
    assert (0, True) == (function.failed, function.run >= 12)
    assert (Outcome.FAIL, "scale-dmodel") == (wrong.outcome, wrong.diagnosis[0].bug)


@pytest.mark.slow
def test_the_set_of_a_release_has_500_cases_in_20_mb(tmp_path: Path) -> None:
    """What `make release` records."""
    path = tmp_path / "answers.safetensors"
    assert 0 == main(["record", "--cases", "500", "--compact", "-o", str(path)])
    assert 500 == len(answers_file.read_record(str(path)).problems)
    assert path.stat().st_size <= 20e6
