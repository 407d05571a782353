"""Attention on heads, forwards now and backwards when asked, by the engine that is named.

For the cotangent dO of heads_out = P v, with P = softmax(scale * q k^T + M):

    dv = P^T dO     dP = dO v^T     dS = P * (dP - rowsum(P * dP))
    dq = scale * dS k     dk = scale * dS^T q     d(float mask) = dS summed as it was broadcast
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mha_numpy.attention import draw_kept
from mha_numpy.grad.flash import attend_flash_vjp
from mha_numpy.grad.plain import attend_plain_vjp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy.call import Heads
    from mha_numpy.grad.targets import Pull


def attend_heads_vjp(heads: Heads, engine: str) -> tuple[NDArray[Any], NDArray[Any] | None, Pull]:
    """Return (heads_out, weights, pull): attention as in `dispatch`, and its backward pass.

    heads_out (N, H, L, Dv) is 0 in rows that see no key; weights (N, H, L, S), after dropout,
    belong to `pull`, and are None where nothing holds them.
    """
    options = heads.options
    if engine == "flash":
        return attend_flash_vjp(*heads[:5], need_weights=options.need_weights)
    kept = draw_kept(heads.scores, options.dropout_p, options.rng, heads.q.dtype)
    return attend_plain_vjp(*heads[:5], kept=kept)
