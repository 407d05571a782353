"""Calls of a sequence run with or without autograd, and answers are compared whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mha_parity.checks.call_sequence import autograd_state, copied, differs
from mha_parity.core.candidate import Answer

OUTPUT = np.linspace(-1, 1, 12).reshape(1, 3, 4)


@pytest.mark.parametrize("off", [False, True])
def test_autograd_is_off_where_asked_and_there_alone(*, off: bool) -> None:
    """Kills `not not off`: inference would be asked as training is, and training as inference."""
    with autograd_state(off=off):
        assert torch.is_grad_enabled() is not off
    assert torch.is_grad_enabled()


def test_output_and_weights_are_compared_where_both_have_them() -> None:
    """Kills changes of each condition: the sentence names the weights where they alone differ."""
    weights = np.full((1, 3, 2), 0.5)
    whole = Answer(output=OUTPUT, weights=weights)
    for other in (
        whole,
        Answer(output=OUTPUT),
        Answer(output=OUTPUT, weights=weights * (1 + 1e-15)),
    ):
        assert "" == differs(whole, other) == differs(other, whole)
    assert differs(whole, Answer(output=OUTPUT, weights=2 * weights)).endswith(" (weights)")
    assert not differs(whole, Answer(output=2 * OUTPUT, weights=weights)).endswith(" (weights)")
    assert differs(whole, Answer(output=2 * OUTPUT))


def test_a_copy_is_of_its_own_memory() -> None:
    """A later call that writes into what it returned changes no kept answer."""
    answer = Answer(output=OUTPUT.copy(), weights=OUTPUT.copy())
    kept = copied(answer)
    assert answer.weights is not None
    answer.output[:], answer.weights[:] = 7, 7
    assert kept.weights is not None
    assert np.array_equal(kept.output, OUTPUT)
    assert np.array_equal(kept.weights, OUTPUT)
    assert copied(Answer(output=OUTPUT)).weights is None
