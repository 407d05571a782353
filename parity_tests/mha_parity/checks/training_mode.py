"""Check a layer in training, and in evaluation after that, where new objects are in evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.checks.call_sequence import TRAINING, differs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.checks.call_sequence import CallSequence


def in_training(sequence: CallSequence) -> Iterator[str]:
    """Yield that a layer in training answers otherwise, where it draws nothing.

    Two answers that differ from each other are those of dropout, which other checks are about.
    """
    if not sequence.can_train:
        return
    step = sequence.this._replace(mode=TRAINING)
    first, second = (sequence.after((), step) for _ in range(2))
    if first.answer is None or second.answer is None or differs(first.answer, second.answer):
        return
    if departure := sequence.departure(step, first):
        sequence.tell_departure((), step, first)
        yield f"statelessness: {departure} in the answer{step.mode.said}."


def after_training(sequence: CallSequence) -> Iterator[str]:
    """Yield that a layer answers otherwise in evaluation after a call in training.

    That call is a shorter one where there is one: what is kept of it may be a length or its values.
    """
    if not sequence.can_train:
        return
    step, earlier = sequence.this, next(iter(sequence.half), sequence.other)
    earlier = earlier._replace(mode=TRAINING)
    if sequence.after((), earlier).answer is None:
        return
    found = sequence.after((earlier,), step)
    if departure := sequence.departure(step, found):
        sequence.tell_departure((earlier,), step, found)
        yield f"statelessness: {departure} in the answer to {step} after {earlier}."
