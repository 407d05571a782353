"""Tasks to time: sizes (N, L, E, H), masks, forward or forward and backward."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Self-attention over N sequences of length L, of width E in H heads."""

    batch: int
    length: int
    embed_dim: int
    num_heads: int

    def __str__(self) -> str:
        """Return the numbers as the command line takes them."""
        return f"{self.batch},{self.length},{self.embed_dim},{self.num_heads}"

    @property
    def head_dim(self) -> int:
        """D = E / H."""
        return self.embed_dim // self.num_heads

    @property
    def scores(self) -> int:
        """How many attention weights there are, N H L L."""
        return self.batch * self.num_heads * self.length * self.length

    @property
    def parameters(self) -> int:
        """How many numbers the four weight matrices hold."""
        return 4 * self.embed_dim * self.embed_dim


SMALL = (Size(1, 5, 6, 3), Size(2, 16, 64, 4))
MIDDLE = (Size(8, 32, 256, 4), Size(1, 100, 512, 8))
LARGE = (
    Size(8, 128, 512, 8), Size(4, 512, 768, 12), Size(1, 1024, 1024, 16), Size(1, 2048, 768, 12),
    Size(1, 4096, 512, 8), Size(1, 16384, 512, 8),
)  # fmt: skip
GPT3 = (Size(1, 128, 12288, 96),)
# Parameters from which weights are not widened to float64: some heads are judged, no gradients.
SEPARABLE = 1 << 26
SETS: Mapping[str, tuple[Size, ...]] = MappingProxyType(
    {
        "small": SMALL,
        "middle": MIDDLE,
        "large": LARGE,
        "gpt3": GPT3,
        "default": SMALL + MIDDLE + LARGE,
        "quick": (SMALL[0], MIDDLE[1], LARGE[0]),
        "lengths": tuple(Size(1, length, 512, 8) for length in (1024, 2048, 4096, 8192, 16384)),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem to be timed by every contender.

    ``form``: "mha", a whole layer with its projections, or "qkv", attention on projected heads.
    """

    size: Size
    form: str = "mha"
    causal: bool = False
    padded: bool = False
    backward: bool = False
    dtype: str = "float32"

    @property
    def name(self) -> str:
        """Return what tables, documents and comparisons call it."""
        marks = (("causal", self.causal), ("padded", self.padded), ("backward", self.backward))
        plain = "" if self.dtype == "float32" else f" {self.dtype}"
        plain += "" if self.form == "mha" else " projected"
        return str(self.size) + "".join(f" {word}" for word, said in marks if said) + plain

    @property
    def parameters(self) -> int:
        """How many numbers its weight matrices hold: none on projected heads."""
        return self.size.parameters if self.form == "mha" else 0

    @property
    def flops(self) -> float:
        """Operations in the matrix products that the task needs; an addition counts as one.

        Cells that a mask hides need none. Backward, each product asks for two more of its size.
        """
        size = self.size
        rows = size.batch * size.length
        projections = 2 * rows * self.parameters
        visible = sum(map(self._visible, self.lengths))
        mixing = 4 * size.embed_dim * visible
        return float(projections + mixing) * (3 if self.backward else 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Valid keys of each sample: all, or evenly spread between half of them and all."""
        size = self.size
        if not self.padded:
            return (size.length,) * size.batch
        step = size.length / (2 * (size.batch + 1))
        return tuple(max(1, round(size.length - step * (i + 1))) for i in range(size.batch))

    def _visible(self, keys: int) -> int:
        """Return how many (query, key) pairs of a sample are not hidden."""
        length = self.size.length
        if not self.causal:
            return length * keys
        return keys * (keys + 1) // 2 + (length - keys) * keys


def tasks(
    sizes: Sequence[Size],
    causal: Sequence[bool] = (False,),
    padded: Sequence[bool] = (False,),
    backward: Sequence[bool] = (False,),
    dtype: str = "float32",
) -> list[Task]:
    """Return every combination, sizes outermost."""
    return [
        Task(size=size, causal=c, padded=p, backward=b, dtype=dtype)
        for size, b, c, p in itertools.product(sizes, backward, causal, padded)
    ]


def parse_sizes(text: str) -> tuple[Size, ...]:
    """Return the sizes of ``"8,128,512,8; small"``: numbers N,L,E,H, or names of sets.

    Raises
    ------
    argparse.ArgumentTypeError
        Neither four numbers from 1 up, H dividing E, nor a set's name.

    """
    found: dict[Size, None] = {}
    for word in filter(None, (part.strip() for part in text.split(";"))):
        found |= dict.fromkeys(SETS.get(word) or (_size(word),))
    if not found:
        raise argparse.ArgumentTypeError(f"got {text!r}, but should name a size: {_FORM}")
    return tuple(found)


_FORM = f"N,L,E,H, or one of {', '.join(SETS)}; several with ';' between"


def _size(word: str) -> Size:
    parts = [part.strip() for part in word.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal()]
    if len(numbers) != 4 or len(parts) != 4 or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"got the size {word!r}, but should be {_FORM}")
    size = Size(*numbers)
    if size.embed_dim % size.num_heads:
        raise argparse.ArgumentTypeError(
            f"got the size {word!r}, but E = {size.embed_dim} should be a multiple of "
            f"H = {size.num_heads}"
        )
    return size
