"""The layer held to one engine: classes that a test or a command can name as its target.

`auto` takes flash for long sequences and shares of the batch for many samples alone, so what is
wrong in these would not show at small sizes.
"""

from __future__ import annotations

from functools import partialmethod
from typing import TYPE_CHECKING

from mha_numpy.module import MultiheadAttention

if TYPE_CHECKING:
    from mha_numpy.call import CallOptions
    from mha_numpy.module import Asked


class PlainAttention(MultiheadAttention):
    """`MultiheadAttention` with engine="plain", each batch of two or more samples in shares."""

    __init__ = partialmethod(MultiheadAttention.__init__, engine="plain")

    def _options(self, asked: Asked) -> CallOptions:
        return super()._options(asked)._replace(always_share=True)


class FlashAttention(MultiheadAttention):
    """`MultiheadAttention` with engine="flash"; it refuses dropout in training."""

    __init__ = partialmethod(MultiheadAttention.__init__, engine="flash")
