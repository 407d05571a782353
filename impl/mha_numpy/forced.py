"""The layer held to one engine: classes that a test or a command can name as its target.

`auto` takes flash for long sequences alone, so a wrong kernel would not show at small sizes.
"""

from __future__ import annotations

from functools import partialmethod

from mha_numpy.module import MultiheadAttention


class PlainAttention(MultiheadAttention):
    """`MultiheadAttention` with engine="plain"."""

    __init__ = partialmethod(MultiheadAttention.__init__, engine="plain")


class FlashAttention(MultiheadAttention):
    """`MultiheadAttention` with engine="flash"; it refuses dropout in training."""

    __init__ = partialmethod(MultiheadAttention.__init__, engine="flash")
