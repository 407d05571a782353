"""The public border: `quiet`, and every refusal of shapes and options, each one sentence.

`check_*` return quickly when all is well; only a refusal builds its message. What was passed comes
first, then what should be, then the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_numpy.dtypes import Array


quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore")
"""Decorator of every public function that computes: NaN and infinity pass in silence, as in torch.

Infinite and missing numbers in the inputs, hidden rows and values past a dtype's range are part of
the answer here; the caller's own error state is restored afterwards. As a decorator it costs a
third of what a `with` block does.
"""
ENGINES = ("auto", "plain", "flash")


def check_sizes(embed_dim: int, num_heads: int, kdim: int, vdim: int) -> None:
    """Raise unless the widths are positive integers and the heads divide embed_dim."""
    sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "kdim": kdim, "vdim": vdim}
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"`{name}` is {size!r}, but should be an integer; pass an int.")
        if size <= 0:
            raise ValueError(f"`{name}` is {size}, but should be at least 1; pass a positive int.")
    if embed_dim % num_heads:
        raise ValueError(
            f"`embed_dim` {embed_dim} is not divisible by `num_heads` {num_heads}, but should be; "
            "each head takes embed_dim / num_heads columns, so choose a divisor."
        )


def check_number(name: str, value: object) -> None:
    """Raise unless it is a real number."""
    if not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"`{name}` is {value!r}, but should be a number; pass a float.")


def check_options(
    name: str, p: object = 0.0, rng: object = None, engine: object = "auto", drops: bool = False
) -> None:
    """Raise unless the share of dropout, named `name`, the generator and the engine are valid.

    `drops` says that the call draws from `rng` where p is not 0: it cannot be None then.
    """
    check_number(name, p)
    if not 0 <= p <= 1:  # type: ignore[operator]  # it is a number
        raise ValueError(f"`{name}` is {p}, but should be between 0 and 1; pass a probability.")
    if engine not in ENGINES:
        raise ValueError(f"`engine` is {engine!r}, but should be one of {ENGINES}; 'auto' chooses.")
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"`rng` is {rng!r}, but should be a numpy.random.Generator; "
            "pass np.random.default_rng(seed)."
        )
    if drops and p and rng is None:
        raise ValueError(
            f"`{name}` is {p} and `rng` is None, but dropout draws from a generator of yours; "
            "pass `rng=np.random.default_rng(seed)`."
        )


def check_sequences(
    query: Array, key: Array, value: Array, widths: tuple[int, int, int], batch_first: bool
) -> bool:
    """Return whether the inputs are batched (3-D), or raise unless they fit each other."""
    rank = query.ndim
    if query is key is value and rank == 3 and (query.shape[-1],) * 3 == widths:
        return True
    if rank not in {2, 3}:
        raise ValueError(
            f"`query` has shape {query.shape}, but should be 3-D, or 2-D without a batch; "
            "reshape it."
        )
    inputs = {"query": query, "key": key, "value": value}
    for (name, array), width in zip(inputs.items(), widths, strict=True):
        if array.ndim != rank:
            raise ValueError(
                f"`{name}` has shape {array.shape}, but should be {rank}-D as `query` is; "
                "give all three a batch axis or none."
            )
        if array.shape[-1] != width:
            raise ValueError(
                f"`{name}` has shape {array.shape}, but its last axis should be {width} wide; "
                "pass vectors of the width the layer was made for (embed_dim, kdim, vdim)."
            )
    if key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            f"`value` has shape {value.shape} and `key` has {key.shape}, but they should agree in "
            "all axes but the last; pass one value for each key."
        )
    batch = 0 if batch_first else 1
    if rank == 3 and key.shape[batch] != query.shape[batch]:
        raise ValueError(
            f"`key` has shape {key.shape} and `query` has {query.shape}, but axis {batch}, the "
            f"batch, should agree; mind batch_first={batch_first}."
        )
    return rank == 3


def check_attn_mask(mask: Array, batch: int, num_heads: int, queries: int, keys: int) -> None:
    """Raise unless the mask is (L, S) or (N*H, L, S)."""
    flat, full = (queries, keys), (batch * num_heads, queries, keys)
    if mask.shape not in {flat, full}:
        raise ValueError(
            f"`attn_mask` has shape {mask.shape}, but should be (L, S) = {flat} or "
            f"(N*num_heads, L, S) = {full}; reshape it."
        )


def check_key_padding_mask(mask: Array, batch: int, keys: int, batched: bool) -> Array:
    """Return the mask as (N, 1, 1, S), or raise unless it is (N, S), or (S,) without a batch."""
    wanted = (batch, keys) if batched else (keys,)
    if mask.shape != wanted:
        names = "(N, S)" if batched else "(S,)"
        raise ValueError(
            f"`key_padding_mask` has shape {mask.shape}, but should be {names} = {wanted}; "
            "give one entry for each key."
        )
    return mask.reshape(batch, 1, 1, keys)


def check_shapes(arrays: Mapping[str, Array | None], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless every array that is there has the shape named for it."""
    for name, array in arrays.items():
        if array is not None and array.shape != shapes[name]:
            raise ValueError(
                f"`{name}` has shape {array.shape}, but should be {shapes[name]}; reshape it."
            )
