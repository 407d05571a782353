"""What tiles of keys are merged by is read from the ratios of weights in two tiles."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.worker.open_target import bind_in_process
from subject_checks import load_subject


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("right", ""),
        ("in_float16", "the log-sum-exp of each tile is rounded to float16"),
        ("in_bfloat16", "the log-sum-exp of each tile is rounded to bfloat16"),
        ("maximum_in_float16", "the maximum of each tile is rounded to float16"),
        ("doubled", "between tiles their ratio is off by up to"),
    ],
)
def test_what_tiles_are_merged_by_is_named(name: str, said: str) -> None:
    """A rounding is named with its dtype, and not as a factor; a right kernel has no finding."""
    target = bind_in_process(load_subject(f"merged_tiles.py:{name}"), Options(cases=18))
    texts = [each.text for each in cause_findings(run_experiments(Caller(target, lambda *_: True)))]
    assert bool(said) == bool(texts)
    assert not said or any("tiles of 32" in text and said in text for text in texts), texts
