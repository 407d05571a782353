"""Costs of multi-head attention, counted in two ways, and the sizes of well-known models.

`textbook_operations` counts as introductions do, to show that heads are free: H heads of width E/H
do as many operations as one head of width E. `flops` counts what a machine has to do. They differ:

* the textbook count of a projection is E*E, the size of its matrix, where applying it to L rows
  takes L*E*E multiplications: the sequence length is left out there, though not in the attention;
* it counts the scores Q K^T, or the mixing P V, but not both;
* it leaves out the softmax, which is the one part that does grow with the number of heads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = [
    "CONFIGURATIONS",
    "Configuration",
    "Flops",
    "Operations",
    "comparison",
    "flops",
    "textbook_operations",
]

# For each cell of the scores: scale, compare with the row's maximum, subtract it, exponentiate,
# add to the row's sum, divide by it.
SOFTMAX_FLOPS_PER_CELL = 6


@dataclass(frozen=True, slots=True)
class Operations:
    """Operation counts as introductions to attention give them.

    Attributes
    ----------
    projections
        of queries, keys and values, 3 * E * E.
    attention
        over all heads, H * (L * L * D), which is L * L * E for every H.
    output
        of the output projection, E * E.
    """

    projections: int
    attention: int
    output: int

    @property
    def total(self) -> int:
        """All operations together."""
        return self.projections + self.attention + self.output


@dataclass(frozen=True, slots=True)
class Flops:
    """Floating-point operations; a multiplication and its addition are two.

    Attributes
    ----------
    projections
        of queries, keys and values, 2 * N * (L + S + S) * E * E.
    scores
        Q K^T over all heads, 2 * N * H * L * S * D.
    softmax
        scaling and softmax, 6 * N * H * L * S.
    mixing
        P V over all heads, 2 * N * H * L * S * D.
    output
        of the output projection, 2 * N * L * E * E.
    """

    projections: int
    scores: int
    softmax: int
    mixing: int
    output: int

    @property
    def attention(self) -> int:
        """Everything between the projections: scores, softmax and mixing."""
        return self.scores + self.softmax + self.mixing

    @property
    def total(self) -> int:
        """All floating-point operations together."""
        return self.projections + self.attention + self.output


@dataclass(frozen=True, slots=True)
class Configuration:
    """The attention of a published model: its width and how many heads share it."""

    name: str
    embed_dim: int
    num_heads: int

    @property
    def head_dim(self) -> int:
        """Width of one head, embed_dim / num_heads."""
        return self.embed_dim // self.num_heads


CONFIGURATIONS = (
    Configuration("Transformer base", embed_dim=512, num_heads=8),
    Configuration("Transformer large", embed_dim=1024, num_heads=16),
    Configuration("GPT-2 small", embed_dim=768, num_heads=12),
    Configuration("GPT-3", embed_dim=12288, num_heads=96),
)


def textbook_operations(seq_len: int, embed_dim: int, num_heads: int = 1) -> Operations:
    """Count the operations of self-attention over one sequence as introductions do.

    Parameters
    ----------
    seq_len
        L, the number of tokens.
    embed_dim
        E, the width of the model; `num_heads` divides it.
    num_heads
        H.

    Raises
    ------
    ValueError
        a size is below 1, or `num_heads` does not divide `embed_dim`.
    """
    head_dim = _head_dim(embed_dim, num_heads)
    _require_positive("seq_len", seq_len)
    return Operations(
        projections=3 * embed_dim * embed_dim,
        attention=num_heads * (seq_len * seq_len * head_dim),
        output=embed_dim * embed_dim,
    )


def flops(
    num_queries: int,
    embed_dim: int,
    num_heads: int = 1,
    *,
    num_keys: int | None = None,
    batch_size: int = 1,
) -> Flops:
    """Count the floating-point operations of a whole attention layer, biases left out.

    Parameters
    ----------
    num_queries
        L.
    embed_dim
        E, the width of the model; `num_heads` divides it.
    num_heads
        H.
    num_keys
        S; L where it is not given, as in self-attention.
    batch_size
        N.

    Raises
    ------
    ValueError
        a size is below 1, or `num_heads` does not divide `embed_dim`.
    """
    num_keys = num_queries if num_keys is None else num_keys
    head_dim = _head_dim(embed_dim, num_heads)
    for name, size in (
        ("num_queries", num_queries),
        ("num_keys", num_keys),
        ("batch_size", batch_size),
    ):
        _require_positive(name, size)
    elements = batch_size * num_heads * num_queries * num_keys
    one_row = 2 * embed_dim * embed_dim
    return Flops(
        projections=batch_size * (num_queries + 2 * num_keys) * one_row,
        scores=2 * elements * head_dim,
        softmax=SOFTMAX_FLOPS_PER_CELL * elements,
        mixing=2 * elements * head_dim,
        output=batch_size * num_queries * one_row,
    )


def comparison(seq_len: int, embed_dim: int, num_heads: int) -> str:
    """Return the costs of one head next to those of `num_heads`, counted in both ways, as a table.

    Raises
    ------
    ValueError
        a size is below 1, or `num_heads` does not divide `embed_dim`.
    """
    head_counts = (1, num_heads)
    textbook = [_by_part(textbook_operations(seq_len, embed_dim, h)) for h in head_counts]
    machine = [_by_part(flops(seq_len, embed_dim, h)) for h in head_counts]
    lines = [f"{f'L={seq_len}, E={embed_dim}':<24}{'1 head':>16}{f'{num_heads} heads':>16}"]
    for unit, (single, multi) in (("textbook", textbook), ("FLOPs", machine)):
        lines += [
            f"{f'{part} ({unit})':<24}{single[part]:>16,}{multi[part]:>16,}" for part in single
        ]
    return "\n".join(lines)


def _by_part(count: Operations | Flops) -> dict[str, int]:
    return {**asdict(count), "total": count.total}


def _head_dim(embed_dim: int, num_heads: int) -> int:
    _require_positive("embed_dim", embed_dim)
    _require_positive("num_heads", num_heads)
    if embed_dim % num_heads:
        raise ValueError(
            f"`num_heads` is {num_heads}, but should divide `embed_dim`, {embed_dim}; "
            "heads share the width of the model equally."
        )
    return embed_dim // num_heads


def _require_positive(name: str, size: int) -> None:
    if size < 1:
        raise ValueError(
            f"`{name}` is {size}, but should be at least 1; pass the number of rows it stands for."
        )
