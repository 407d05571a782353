"""Gradients of a mask are asked in the shapes that its documentation says."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.masks.documented_shapes import documented_shapes
from mha_parity.targets.static.documented_layout import documentation
from subject_checks import checks_of, load_subject

judged = checks_of("bias_of_lengths.py", cases=80, dtypes=("float64", "float32"), grad=True)


def test_a_backward_pass_of_one_documented_shape_holds() -> None:
    """A call broadcasts other shapes: kills gradients that are asked of these too."""
    right = judged("documented")
    assert Outcome.PASS is right.outcome, right
    assert Outcome.FAIL is judged("undocumented", fail_fast=True).outcome


def test_a_wrong_gradient_of_the_documented_shape_fails() -> None:
    """Kills gradients of masks that are asked in no shape."""
    wrong = judged("halved", max_failures=0)
    assert Outcome.FAIL is wrong.outcome, wrong
    checks = {each.check_result.check for each in wrong.failures}
    # Of one sample padding is said by the same array.
    assert {"gradient of attn_mask", "gradient of key_padding_mask"} == checks


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("bias is None or a tensor of exactly (L, S), shared by all.", (("L", "S"),)),
        ("`bias` must be (N, 1, L, S)", (("N", "1", "L", "S"),)),
        ("the bias is learned. (L, S) are lengths.", ()),
        ("no_bias is (L, S)", ()),
    ],
)
def test_a_sentence_says_the_shape_of_a_mask(
    text: str, shapes: tuple[tuple[str, ...], ...]
) -> None:
    """Of that parameter, and within the sentence."""

    def subject() -> None: ...

    subject.__doc__ = text
    assert shapes == documented_shapes(subject, subject, "bias")


def test_documentation_is_followed_where_it_refers() -> None:
    """By a line of its own: kills a docstring that says no more than where to look."""
    text = documentation(load_subject("bias_of_lengths.py:documented"))
    assert "exactly (L, S)" in text
    assert "exactly (L, S)" not in documentation(load_subject("bias_of_lengths.py:undocumented"))
