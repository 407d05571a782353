"""Check masks of single rows where a target is causal by itself.

Its cases have padding beside the causal rule, which is the same in all rows: torch's layer takes
one mask of rows, and that is the rule. A row should be what it is under a mask that hides the same
keys from every row, which the cases hold against torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.checks.plain_problems import plain_sequence
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_float32
from mha_parity.targets.calls.mask_format import VALUES, MaskContent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.mask_format import MaskFormat
    from mha_parity.targets.convention_base.convention import Convention

NAME = "masks of single rows"
CHECKS = {NAME: "a mask beside a causal rule hides from each row what it says of that row"}
REMEDY = "take row i of the mask for row i of the scores, and the causal rule besides"
LENGTH, HEAD_DIM = 7, 4
HIDDEN = 0.4  # of the keys of a row, the first one left out


def check_masks_of_rows(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem, of the kind of ``problem``, with such a mask.

    ``number`` is that of the case among those for which this is asked.
    """
    plan = bound.masks
    if plan is None or not plan.causal_inside:
        return
    whole = plain_sequence(bound, problem, LENGTH, HEAD_DIM, causal=True)
    if whole is None:
        return
    for found in plan.by_layout.get(whole.case.layout, ()):
        of_rows = (each for each in found.taken if each.kind in VALUES and "L" in each.axes)
        taken = next(of_rows, None)
        if taken is None or found.replaces_causal or found.inputs == "cross":
            continue
        yield from _findings(bound, whole, (found.parameter.key, taken), number)


def _findings(
    bound: Convention, whole: Problem, passed: tuple[str, MaskFormat], number: int
) -> Iterator[str]:
    """Yield the first row that is not what it is under a mask that is its own in every row."""
    key, taken = passed
    rng = np.random.default_rng(number)
    hidden = rng.random((LENGTH, LENGTH)) < HIDDEN
    hidden[:, 0] = False  # each row sees a key
    try:
        found = _answered(bound, whole, key, taken, hidden)
        expected = [_answered(bound, whole, key, taken, row[None]) for row in hidden]
    except CandidateError:  # what raises is the finding of other cases
        return
    yield NAME
    for row, each in enumerate(expected):
        if not equal_up_to_float32(each[:, row], found[:, row]):
            difference = describe_difference(each[:, row], found[:, row])
            keys = np.flatnonzero(hidden[row, : row + 1])
            listed = f"key{'s' * (len(keys) > 1)} {', '.join(map(str, keys))}"
            said = f"hides {listed if keys.size else 'no key before it'}"
            masked = whole.replace(attn_mask=hidden)
            tell_compared(
                NAME,
                ComparedCall("a mask whose rows differ, and the causal rule", masked, found),
                ComparedCall(f"the mask of row {row} in every row", masked, each),
            )
            yield (
                f"{NAME}: {difference} in row {row}, of which `{key.partition('.')[2]}` {said}, "
                "from the same row where every row has that mask."
            )
            return


def _answered(
    bound: Convention, whole: Problem, key: str, taken: MaskFormat, hidden: Array
) -> Array:
    """Return the output where rows of all samples and heads hide these keys."""
    content = MaskContent(np.broadcast_to(hidden, whole.weights_shape))
    return bound.answer_with(whole, {key: taken.value(content, whole.dtype)}).output
