"""A layer for inference, its weights prepared once.

What is folded away: the scale goes into the query's weights; the key bias is dropped, since it
adds the same number to all logits of a row and cancels in the softmax; the value bias goes behind
the attention and into the output's bias, since the weights of a row sum to 1. All weights are
stored the way the product reads them.

Each of these needs rows that see a key, and no appended keys. So the fast ways (see `_folded`) are
for self-attention without masks; every other call takes the layer's ordinary way. So do all calls
of wide layers: there the products are all of the time, and folding would only cost the memory of
the weights once more (2.3 GiB in a layer as wide as GPT-3's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._errstate import quiet
from mha_numpy._folded import Folded
from mha_numpy._layer import Options, layer_forward

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from mha_numpy._projections import Projections


WIDEST_FOLDED = 1024
"""Up to this width weights are folded: 16 MiB of float32 at most. Wider ones gain no time by it."""


class PreparedAttention:
    """What `MultiheadAttention.prepare()` returns: the layer's function for inference.

    Parameters
    ----------
    parameters : Projections
        The layer's parameters, float32 or float64, one width; copied, so that later changes to
        the layer do not reach here.
    num_heads : int
        Number H of heads.
    batch_first : bool
        Sequences are (N, L, E) and not (L, N, E).
    add_zero_attn : bool
        As in the layer.
    """

    def __init__(
        self,
        parameters: Projections,
        num_heads: int,
        widths: tuple[int, int, int],
        *,
        batch_first: bool,
        add_zero_attn: bool,
    ) -> None:
        self._parameters = parameters.astype(parameters.out_proj.weight.dtype)
        self._widths = widths
        self._options = Options(
            num_heads, add_zero_attn, batch_first, need_weights=False, engine="auto"
        )
        self._rest = widths[:1]  # of the shape of x, behind its first two axes
        self._dtype = self._parameters.out_proj.weight.dtype
        packed = self._parameters.in_proj_weight is not None
        plain = packed and self._parameters.bias_k is None and not add_zero_attn
        narrow = widths[0] <= WIDEST_FOLDED
        self._folded = (
            Folded(self._parameters, num_heads)
            if plain and narrow and self._dtype in {np.dtype(np.float32), np.dtype(np.float64)}
            else None
        )

    @quiet
    def __call__(
        self,
        query: ArrayLike,
        key: ArrayLike,
        value: ArrayLike,
        key_padding_mask: ArrayLike | None = None,
        attn_mask: ArrayLike | None = None,
        is_causal: bool = False,
    ) -> NDArray[Any]:
        """Return the output alone, as the layer does with need_weights=False and no dropout.

        Shapes, masks, dtypes and refusals are those of `MultiheadAttention.forward`.
        """
        folded = self._folded
        if (
            folded is not None
            and query is key is value
            and key_padding_mask is None
            and attn_mask is None
            and not is_causal
            and type(query) is np.ndarray
            and query.shape[2:] == self._rest
            and query.dtype == self._dtype
            and query.size
        ):
            if self._options.batch_first:
                return folded(query)
            return folded(query.swapaxes(0, 1)).swapaxes(0, 1)
        options = self._options._replace(
            key_padding_mask=key_padding_mask, attn_mask=attn_mask, is_causal=is_causal
        )
        return layer_forward(query, key, value, self._parameters, self._widths, options)[0]
