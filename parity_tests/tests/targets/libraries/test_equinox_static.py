"""Arrays that equinox holds as static are no weights, and dropout without a key is not asked."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.convention_base.dropout_argument import WITHOUT_KEY
from subject_checks import checks_of

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        find_spec("equinox") is None, reason="equinox is not installed; make test-frameworks does"
    ),
]
judged = checks_of("equinox_static.py", cases=40, dtypes=("float32",))


def test_a_static_mask_is_no_weight_and_inference_drops_nothing() -> None:
    """Kills an array `bias` that torch's layer lacks, and a call of dropout without a key."""
    right = judged("Static")
    assert Outcome.PASS is right.outcome, right.sentence
    assert WITHOUT_KEY in right.notes
    assert Outcome.FAIL is judged("Unscaled", fail_fast=True).outcome
