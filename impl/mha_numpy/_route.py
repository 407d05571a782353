"""Which engine computes the heads of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._engine import attend_streaming, attend_weighted, choose_engine
from mha_numpy._materialised import attend
from mha_numpy._products import holding_blas

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy._masking import Masking


def attend_heads(
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
    average_weights: bool = False,
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return (heads_out, weights), weights None where they are not needed.

    weights (N, H, L, S), or their mean over the heads (N, L, S) where `average_weights`.
    Rows that see no key are NaN where weights are needed and 0 elsewhere, as in torch.
    """
    logits = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    engine = engine_for(engine, logits, need_weights=need_weights, drops=dropout_p > 0)
    if engine == "streaming":
        return attend_streaming(q, k, v, masking, scale), None
    if engine == "weighted":
        return attend_weighted(q, k, v, masking, scale, average=average_weights)
    with holding_blas(q.shape[2] * k.shape[2] * q.shape[3]):
        heads_out, weights = attend(
            q,
            k,
            v,
            masking,
            scale,
            dropout_p=dropout_p,
            rng=rng,
            empty_rows_are_zero=not (need_weights or masking.is_empty),
        )
    if not need_weights:
        return heads_out, None
    if average_weights:
        weights = np.add.reduce(weights, axis=1)
        weights /= q.shape[1]
    return heads_out, weights


def engine_for(engine: str, logits: int, *, need_weights: bool, drops: bool) -> str:
    """Return the engine for so many logits (N * H * L * S); raise ValueError if it cannot be."""
    if engine == "streaming" and (need_weights or drops):
        raise ValueError(
            "`engine` is 'streaming', but it holds no weights to return or to drop; "
            "pass need_weights=False and no dropout, or engine='auto'."
        )
    if engine == "wide" and drops:
        raise ValueError(
            "`engine` is 'wide', but more digits of weights dropped by chance are of no use; "
            "pass engine='auto', or no dropout."
        )
    if engine in {"auto", "wide"} and not drops:
        return choose_engine(logits, need_weights=need_weights)
    return engine
