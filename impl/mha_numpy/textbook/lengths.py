"""Valid lengths: how many keys of a padded sequence are real, and the mask that says the same.

Polarity: the mask is True where a key is hidden, as in `torch.nn.MultiheadAttention`. For a
`key_padding_mask` of torch take `hidden_keys(valid_lens, S)[:, 0, 0]`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["hidden_keys"]


def hidden_keys(valid_lens: npt.ArrayLike, num_keys: int) -> npt.NDArray[np.bool_]:
    """Turn valid lengths into a mask of hidden keys: key j is hidden where j >= length.

    Parameters
    ----------
    valid_lens
        integers from 0 to `num_keys`; (N,), one length for all queries of a sample,
        or (N, L), one length for each query.
    num_keys
        S, the number of keys, padding included.

    Returns
    -------
    Booleans, True = hidden, of shape (N, 1, 1, S) or (N, 1, L, S): the axes are sample, head,
    query and key, and an axis along which nothing changes has size 1. Length 0 hides every key.

    Raises
    ------
    TypeError
        `valid_lens` are not integers.
    ValueError
        their rank is neither 1 nor 2, or a length is negative or above `num_keys`.
    """
    lengths = np.asarray(valid_lens)
    if lengths.dtype.kind not in "iu":
        raise TypeError(
            f"`valid_lens` have dtype {lengths.dtype}, but should be integers; "
            "convert them with .astype(int)."
        )
    if lengths.ndim not in (1, 2):
        raise ValueError(
            f"`valid_lens` have shape {lengths.shape}, but should be (N,), one length a sample, "
            "or (N, L), one a query; reshape them."
        )
    _require_range(lengths, num_keys)
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    return np.arange(num_keys) >= per_query[:, None, :, None]


def _require_range(lengths: npt.NDArray[np.integer], num_keys: int) -> None:
    outside = lengths[(lengths < 0) | (lengths > num_keys)]
    if outside.size:
        raise ValueError(
            f"`valid_lens` hold {outside[0]}, but should lie between 0 and {num_keys}, the number "
            "of keys; clip them."
        )
