"""Check value heads that are narrower than query heads, where a constructor has a width for them.

Cases have equal widths, as torch's layer does. A narrower layer should give what the layer of equal
widths gives in whose weights the missing channels are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.checks.built_widths import OtherWidth, width_findings, without_channels
from mha_parity.checks.plain_problems import plain_sequence
from mha_parity.targets.convention_base.interpreted_layers import InterpretedLayers
from mha_parity.targets.layers.narrow_widths import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

NAME = "narrower value heads"
CHECKS = {NAME: "value heads of a width of their own change the width of the values alone"}
REMEDY = "scale by the width of query heads: that of value heads is for values and output alone"
LENGTH, HEAD_DIM = 7, 4


def check_value_widths(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem, of the kind of ``problem``, with narrower value heads.

    ``number`` is that of the case among those for which this is asked.
    """
    if not isinstance(bound, InterpretedLayers):
        return
    of_values = [each for each in bound.head_width_names.items() if each[1].parts == PARTS]
    if not of_values:
        return
    names, found = of_values[number % len(of_values)]
    whole = plain_sequence(bound, problem, LENGTH, HEAD_DIM, causal=bound.hides_future)
    # Key heads that are shared, or own channels of each head, are cut by the width of query heads.
    if whole is None or (whole.case.kv_heads, whole.case.projection) != ("equal", "packed"):
        return
    width = 1 + number % (HEAD_DIM - 1)
    zeroed = without_channels(whole, PARTS, width)
    expected = bound(zeroed).output
    other = OtherWidth("head_widths", names, found.size(width, whole.num_heads), "value heads")
    of = f"query heads of width {HEAD_DIM}"
    yield from width_findings(bound, other, zeroed, (zeroed, expected), NAME, of)
