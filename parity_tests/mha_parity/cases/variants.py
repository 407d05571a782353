"""Further problems of the kind of a case, but plain, and in sizes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.features import PLAIN

if TYPE_CHECKING:
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer

# Made plain where the candidate takes it so; dtype, layout, projections and biases stay.
LEVELLED = ("padding", "attn", "masked_rows", "bias_kv", "zero_attn")
SAMPLES, HEADS = 2, 2
# In fewer digits a dropped weight may be mistaken for a kept one.
EXACT = ("float64", "float32")


def plain_variant(
    case: Case, offer: Offer, queries: int, keys: int, head_dim: int, *, square: bool = False
) -> Case | None:
    """Return a plain case of the kind of ``case``; None where the candidate has too few digits.

    Query, key and value are distinct where the candidate takes three; ``square``: of one length.
    """
    dtypes = [dtype for dtype in (case.dtype, *EXACT) if dtype in EXACT and dtype in offer["dtype"]]
    if not dtypes:
        return None
    grouped = PLAIN["kv_heads"] not in offer["kv_heads"]
    heads = HEADS if grouped else min(case.heads_count, HEADS)
    inputs = "distinct" if "distinct" in offer["inputs"] and case.form == "mha" else case.inputs
    separate = case.projection == "separate"
    plain = {axis: PLAIN[axis] for axis in LEVELLED if PLAIN[axis] in offer[axis]}
    return case.replace(
        **plain,
        dtype=dtypes[0],
        regime="normal",
        inputs=inputs,
        batch=1 if case.layout == "unbatched" else SAMPLES,
        queries=keys if square or inputs == "self" else queries,
        keys=keys,
        heads_count=heads,
        kv_heads_count=int(grouped),
        head_dim=head_dim,
        v_head_dim=0,
        kdim=heads * head_dim + 1 if separate else 0,
        vdim=heads * head_dim + 2 if separate else 0,
    )
