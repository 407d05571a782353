"""Check heads that are narrower than rows make them, where a constructor has a width for them.

Cases have heads of E / H channels, as torch's layer does. A layer of narrower heads should give
what the layer of equal widths gives in whose weights the missing channels are zero, and whose
queries are larger by the root of the ratio of widths, which the scale takes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.checks.built_widths import OtherWidth, width_findings, without_channels
from mha_parity.checks.plain_problems import plain_sequence
from mha_parity.targets.convention_base.interpreted_layers import InterpretedLayers
from mha_parity.targets.layers.narrow_widths import QUERIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

NAME = "narrower heads"
CHECKS = {NAME: "heads of a width of their own are scaled by the root of that width"}
REMEDY = "scale by the width that heads have, and not by that of rows divided by heads"
# Widths whose ratio is a power of 4: its root rounds nothing.
LENGTH, HEAD_DIM, NARROW, LARGER = 7, 16, 4, 2
SELDOM = 4  # where each width is compiled, one of 4 is asked


def check_head_widths(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem, of the kind of ``problem``, with narrower heads.

    ``number`` is that of the case among those for which this is asked.
    """
    if not isinstance(bound, InterpretedLayers):
        return
    if bound.facts.compiles and number % SELDOM != 1:
        return
    of_queries = [e for e in bound.head_width_names.items() if e[1].parts >= QUERIES]
    if not of_queries:
        return
    place = number // SELDOM if bound.facts.compiles else number
    names, found = of_queries[place % len(of_queries)]
    whole = plain_sequence(bound, problem, LENGTH, HEAD_DIM, causal=bound.hides_future)
    # Key heads that are shared, or own channels of each head, are cut by the width of query heads.
    if whole is None or (whole.case.kv_heads, whole.case.projection) != ("equal", "packed"):
        return
    narrow = without_channels(whole, found.parts, NARROW)
    equal = narrow.replace(w_q=_larger(narrow.w_q), b_q=_larger(narrow.b_q))
    other = OtherWidth("head_widths", names, found.size(NARROW, whole.num_heads), "heads")
    heads = "1 head" if whole.num_heads == 1 else f"{whole.num_heads} heads"
    of = f"queries of width {whole.query.shape[-1]} in {heads}"
    yield from width_findings(bound, other, narrow, (equal, bound(equal).output), NAME, of)


def _larger(array: Array | None) -> Array | None:
    return None if array is None else array * array.dtype.type(LARGER)
