"""Masks with samples behind keys are tried of JAX's arrays too, where rows stand before samples."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        find_spec("jax") is None, reason="jax is not installed; make test-frameworks does"
    ),
]
judged = checks_of("jax_time_first.py", cases=24, dtypes=("float32",))


def test_keys_before_samples_are_a_shape_of_their_own() -> None:
    """Of each library whose calls are compiled few shapes are tried: kills those of rows alone."""
    right = judged("keys_before_samples")
    assert Outcome.PASS is right.outcome, right.sentence
    assert any("`key_padding`: True hides" in note and "(S, N)" in note for note in right.notes)
    wrong = judged("of_what_is_kept")
    assert Outcome.FAIL is wrong.outcome, wrong.sentence
