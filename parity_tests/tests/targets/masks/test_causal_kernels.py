"""A function like F.sdpa that has no mask, and hides the future by itself, is judged as causal."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.always_causal import CAUSAL
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

FILE = SUBJECTS / "causal_kernels.py"


@pytest.mark.parametrize("name", ["causal", "plain"])
def test_a_right_kernel_passes(name: str) -> None:
    """Causal or not: what is hidden is measured, and said."""
    verdict = check(bind(load(f"{FILE}:{name}")), Options(cases=30, seed=3, shrink=False))
    assert "sdpa" == verdict.convention
    assert verdict.outcome is Outcome.PASS
    assert (CAUSAL in verdict.notes) is (name == "causal")


def test_blocks_that_are_skipped_are_said_and_not_the_causal_rule() -> None:
    """The rule of the rows that miss keys of their own block has the sizes of the blocks."""
    verdict = check(bind(load(f"{FILE}:skips_blocks")), Options(cases=30, seed=3, shrink=False))
    assert verdict.outcome is Outcome.FAIL
    assert "min(i, 16 * (i // 16) + 7): blocks of keys that it needs" in verdict.diagnosis[0].title


def test_a_forgotten_last_key_is_no_causal_rule() -> None:
    """A change of the last row reaches no other row either, one of the row before does."""
    verdict = check(bind(load(f"{FILE}:forgets_last_key")), Options(cases=30, shrink=False))
    assert verdict.outcome is Outcome.FAIL
    assert CAUSAL not in verdict.notes
