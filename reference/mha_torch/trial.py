"""Torch on trial: where `torch.nn.MultiheadAttention` does not agree with itself.

Each finding has a small case that is run here and now, on the torch that is installed, so that a
later torch that has mended it says so, and one that computes something else is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from mha_torch import _trial_masks as masks
from mha_torch import _trial_values as values
from mha_torch._paths import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mha_torch._evidence import Evidence

SLOW = frozenset({Path.WEIGHTS, Path.NO_WEIGHTS})
KERNELS = frozenset({Path.SDPA_MATH, Path.SDPA_FLASH})
SDPA = KERNELS | {Path.NO_WEIGHTS}
FAST = frozenset({Path.FAST, Path.EVAL})
ALL = frozenset(Path)

GROUPS: Mapping[str, frozenset[Path]] = {"fast": FAST, "slow": SLOW, "sdpa": SDPA, "all": ALL}


class State(StrEnum):
    """State of a finding on the torch that is installed: found, mended or not run."""

    FOUND = "found"
    MENDED = "mended"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency of torch."""

    name: str
    title: str
    case: str
    """What the reproducer computes, in words."""
    paths: frozenset[Path]
    """The paths that take part in the difference."""
    reproduce: Callable[[], Evidence]
    threads: tuple[str, ...] = ()
    """Where it was reported, as repository#number; empty where no report is known."""


@dataclass(frozen=True, slots=True)
class FindingOutcome:
    """State of one finding, with the numbers that its reproducer measured."""

    finding: Finding
    state: State
    numbers: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    torch: str = torch.__version__

    @property
    def sentence(self) -> str:
        """The outcome in one line, for reports."""
        formatted = ", ".join(f"{name} {number:.3g}" for name, number in self.numbers.items())
        return (
            f"{self.finding.title}: {self.state} in torch {self.torch} ({formatted or self.error})"
        )


def findings_of_group(group: str = "all") -> list[Finding]:
    """Return the findings in which a path of the group takes part.

    Raises
    ------
    ValueError
        If the group is none of fast, slow, sdpa, all.
    """
    if group not in GROUPS:
        msg = f"`group`={group!r}, but should be one of {', '.join(GROUPS)}."
        raise ValueError(msg)
    return [finding for finding in FINDINGS if finding.paths & GROUPS[group]]


def reproduce_finding(finding: Finding) -> FindingOutcome:
    """Run one reproducer; a torch on which it cannot run is reported and stops nothing."""
    try:
        evidence = finding.reproduce()
    except Exception as error:  # noqa: BLE001 - whatever a future torch may raise
        return FindingOutcome(finding, State.NOT_RUN, error=f"{type(error).__name__}: {error}")
    state = State.FOUND if evidence.differs else State.MENDED
    return FindingOutcome(finding, state, evidence.numbers)


def trial(group: str = "all", chosen: Iterable[Finding] | None = None) -> list[FindingOutcome]:
    """Examine the findings of a group, or those `chosen`."""
    return [
        reproduce_finding(finding)
        for finding in (findings_of_group(group) if chosen is None else chosen)
    ]


def _pytorch(*numbers: int) -> tuple[str, ...]:
    return tuple(f"pytorch/pytorch#{number}" for number in numbers)


FINDINGS = (
    Finding(
        "fully-masked-row",
        "A query that sees no key is NaN with need_weights=True and 0 with need_weights=False",
        "self-attention, one row of a boolean attn_mask all True, train()",
        SLOW,
        masks.fully_masked_row,
        _pytorch(131060, 160064, 152028, 103749),
    ),
    Finding(
        "fully-masked-row-fast",
        "A query that sees no key is NaN on the fast path and 0 on the slow one",
        "the same with need_weights=False, eval() against train()",
        FAST | {Path.NO_WEIGHTS},
        masks.fully_masked_row_fast,
        _pytorch(81077),
    ),
    Finding(
        "fully-masked-row-identity",
        "In eval() that NaN becomes 0 when key and value are copies of query, or batch_first=False",
        "f(x, x, x), f(x, x.clone(), x.clone()) and the other layout on one module",
        FAST | {Path.NO_WEIGHTS},
        masks.fully_masked_row_identity,
        _pytorch(107084),
    ),
    Finding(
        "fully-masked-row-gradient",
        "A fully padded sample turns all in_proj gradients NaN with need_weights=True alone",
        "sample 1 padded away, loss of sample 0 only",
        SLOW,
        masks.fully_masked_row_gradient,
        _pytorch(41508, 42323, 189045),
    ),
    Finding(
        "sentinel-row",
        "A row masked with -1e9 is uniform in float32, unmasked in float64, and NaN with -inf",
        "one row of a float attn_mask all -1e9, or all -inf",
        ALL - {Path.FAST},
        masks.sentinel_row,
        _pytorch(110213, 109517),
    ),
    Finding(
        "boolean-meaning",
        "True in a boolean mask hides in the module and keeps in F.scaled_dot_product_attention",
        "one mask given to both, and inverted",
        SDPA,
        masks.boolean_meaning,
        _pytorch(114083, 170415),
    ),
    Finding(
        "mask-kinds",
        "A float mask with a boolean one warns; integer masks are refused",
        "float attn_mask with boolean key_padding_mask; int64 and uint8 attn_mask",
        ALL,
        masks.mask_kinds,
        _pytorch(95702, 96103),
    ),
    Finding(
        "empty-with-mask",
        "No keys and a padding mask raise with need_weights=False and work with True",
        "key and value of length 0, key_padding_mask of shape (N, 0)",
        SLOW | SDPA,
        masks.empty_with_mask,
    ),
    Finding(
        "hint-without-mask",
        "is_causal=True without attn_mask raises, although SDPA would need no mask",
        "is_causal=True alone, module and F.scaled_dot_product_attention",
        SLOW | SDPA,
        masks.hint_without_mask,
        _pytorch(108517, 172338, 178588, 195660),
    ),
    Finding(
        "hint-contradicts-mask",
        "is_causal=True with another mask wins with need_weights=False, loses everywhere else",
        "a mask hiding key 0 from the later queries, with the hint; and an idle padding mask",
        SLOW | SDPA | FAST,
        masks.hint_contradicts_mask,
        _pytorch(178588, 105342),
    ),
    Finding(
        "hint-hides-appended-key",
        "is_causal=True with need_weights=False hides the key of add_bias_kv or add_zero_attn",
        "is_causal=True with the causal mask, need_weights=True against False",
        SLOW | SDPA,
        masks.hint_hides_appended_key,
    ),
    Finding(
        "nan-query",
        "A NaN in a query gives 0 in the flash kernel if keys are few, and NaN everywhere else",
        "one NaN in one query of a cross-attention with 1 to 64 keys",
        SLOW | SDPA,
        values.nan_query,
        _pytorch(141128),
    ),
    Finding(
        "nan-at-masked-key",
        "A NaN at a padded key reaches every query of its sample, on every path",
        "one NaN at a padded position of a self-attention",
        ALL,
        values.nan_at_masked_key,
        _pytorch(101967),
    ),
    Finding(
        "key-value-lengths",
        "Keys and values of different length: the flash kernel answers, the math kernel refuses",
        "twelve keys, eleven values",
        KERNELS,
        values.key_value_lengths,
        _pytorch(193728),
    ),
    Finding(
        "mask-dtype",
        "A float32 mask beside float64 rows: the flash kernel answers wrongly from 8 or 16 rows on",
        "a mask of zeros for 7 and for 16 rows, F.scaled_dot_product_attention",
        KERNELS,
        values.mask_dtype,
    ),
    Finding(
        "dropped-weights",
        "The returned weights are those after dropout: their rows do not sum to 1",
        "train() with dropout 0.5",
        frozenset({Path.WEIGHTS}),
        values.dropped_weights,
        _pytorch(42929, 33360, 90842),
    ),
    Finding(
        "precision-of-paths",
        "The paths round differently, most in half precision",
        "one self-attention on all paths in four dtypes",
        ALL,
        values.precision_of_paths,
        _pytorch(103167, 123911, 128922),
    ),
    Finding(
        "row-independence",
        "Reordering queries or keys changes the rounding of rows that should only move",
        "float32, logits of standard deviation 16, 33 rows of width 64",
        SLOW,
        values.row_independence,
        _pytorch(33841, 23525),
    ),
    Finding(
        "quantizable-sibling",
        "torch.ao.nn.quantizable.MultiheadAttention merges heads wrongly with batch_first=True",
        "its answer compared with nn.MultiheadAttention's, same weights, both layouts",
        frozenset({Path.EVAL, Path.WEIGHTS}),
        values.quantizable_sibling,
        _pytorch(67651),
    ),
    Finding(
        "initialisation",
        "Packed and separate input projections are initialised with different spread",
        "largest initial query weight at width 64, packed and with kdim=63",
        ALL,
        values.initialisation,
        _pytorch(166378),
    ),
)
