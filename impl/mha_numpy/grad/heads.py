"""Attention on heads, forwards now and backwards when asked: which engine does it.

One recomputes the weights by tiles, one holds them and goes by tiles, one does all heads at once.

For the cotangent dO of heads_out = P v, with P = softmax(scale * q k^T + masks):

    dv = P^T dO     dP = dO v^T     dS = P * (dP - rowsum(P * dP))
    dq = scale * dS k     dk = scale * dS^T q     d(float mask) = dS summed as it was broadcast
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mha_numpy._route import engine_for
from mha_numpy._vjp_materialised import attend_materialised_vjp
from mha_numpy._vjp_streaming import attend_streaming_vjp
from mha_numpy._vjp_weighted import attend_weighted_vjp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mha_numpy._masking import Masking
    from mha_numpy._vjp_targets import Pull


class Attended(NamedTuple):
    """Heads after attention, and the way back.

    `heads_out` (N, H, L, Dv) is 0 in rows that see no key; `weights` (N, H, L, S), after
    dropout, belongs to `pull` and is None where nothing holds it.
    """

    heads_out: NDArray[Any]
    weights: NDArray[Any] | None
    pull: Pull


def attend_heads_vjp(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    *,
    need_weights: bool,
    dropout_p: float,
    rng: np.random.Generator | None,
    engine: str,
) -> Attended:
    """Attend as `attend_heads` does and return the function back as well."""
    logits = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    engine = engine_for(engine, logits, need_weights=need_weights, drops=dropout_p > 0)
    if engine == "streaming":
        heads_out, pull = attend_streaming_vjp(q, k, v, masking, scale)
        return Attended(heads_out, None, pull)
    if engine == "weighted":
        return Attended(*attend_weighted_vjp(q, k, v, masking, scale))
    return Attended(*attend_materialised_vjp(q, k, v, masking, scale, dropout_p=dropout_p, rng=rng))
