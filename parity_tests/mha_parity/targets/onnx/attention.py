"""Attention in a graph of ONNX: q, k, v and masks are its inputs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.own_weights import OwnWeights
from mha_parity.targets.calls.canonical_layout import only_sample
from mha_parity.targets.convention_base.convention import PLAIN_CORE, FeatureProbe
from mha_parity.targets.conventions.sdpa import SDPA, joined_mask
from mha_parity.targets.onnx.closeness import (
    graph_fit,
    refuse_unlike,
    settle_causal,
)
from mha_parity.targets.onnx.model import OnnxModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.calls.target_call import Arguments

MASK = "attn_mask"
NO_MASK = {"padding": ("none",), "attn": ("none",), "masked_rows": ("none",)}
BOOLEAN = {"padding": ("none", "bool", "lengths"), "attn": ("none", "bool2d", "bool3d", "causal")}
FLAT = ("none", "bool2d", "float2d", "causal")  # what a mask (L, S) can say


class OnnxAttention(SDPA):
    """A graph on (N, H, L, D), (N, L, H D) or (L, H D), in its declared dtype.

    A boolean `attn_mask` is True where a key takes part, as in ONNX's own Attention; what a mask of
    another name means is found by small calls. Static H and D are those of all cases.
    """

    name = "onnx"
    call = "FILE.onnx with the inputs q, k, v and perhaps masks, computed by onnxruntime"

    def __init__(
        self, subject: Any, *, library: Library | None = None, path: str | None = None
    ) -> None:
        del library
        if not isinstance(subject, OnnxModel):
            raise TargetError("got no model, but the convention onnx asks one; name a FILE.onnx.")
        super().__init__(subject, library=subject.library, path=path)
        self.filled = frozenset([*subject.inputs][:3])
        if self._static and self._static != {"heads_count": 1}:
            self.own_weights = OwnWeights(arrays={}, features={}, sizes=self._static, places={})

    def claims(self) -> Offer:
        """Return what ranks, types and static sizes of the inputs say."""
        self._nothing = True  # in a boolean mask: all keys are visible
        self._rank = len(self.subject.rows[0].shape)
        self._static = self.subject.sizes()
        offered = super().claims() | {"memory": ("c",)}
        mask = self.subject.inputs.get(MASK)
        ranks = (2, 4) if self._rank == 4 else (2,)
        if mask is None or len(mask.shape) not in ranks or set(mask.shape) != {None}:
            self.own_masks = frozenset()
            offered |= NO_MASK
        elif mask.dtype == "bool":
            offered |= BOOLEAN
        if self.own_masks and len(mask.shape) == 2:
            attn = tuple(each for each in offered["attn"] if each in FLAT)
            offered |= {"padding": ("none",), "attn": attn}
        plain = self.plain_case()
        offered["layout"] = (plain.layout,)
        if self._rank < 4 or "heads_count" in self._static:
            offered["heads"] = (plain.heads,)
        if "head_dim" in self._static:
            narrow = "ones" if plain.head_dim == 1 else plain.size
            offered["size"] = tuple(dict.fromkeys(("medium", "ones", narrow)))
        return offered

    def plain_case(self) -> Case:
        """Two samples, two heads of width 3, as far as the graph leaves it open."""
        case = PLAIN_CORE.replace(
            attn=self.plain_attn, dtype=self.library.dtypes[0], **self._static
        )
        return case if self._rank > 2 else case.replace(layout="unbatched", batch=1)

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; then wider values, weights and empty axes."""
        self._look(make_problem(self.plain_case()))
        case = self.plain_case()
        if "head_dim" not in self._static:
            yield FeatureProbe("v_dim", "other", (case.replace(v_head_dim=4),))
        yield FeatureProbe("weights", "per_head", (case.replace(weights="per_head"),))
        yield FeatureProbe("size", "empty", (case.replace(inputs="cross", queries=0),))

    def _look(self, problem: Problem) -> None:
        """Find what hides nothing: of an inverted mask, False; its cases with a mask then fail."""
        boolean = bool(self.own_masks) and self.subject.inputs[MASK].dtype == "bool"
        fits = {}
        for self._nothing in (True, False) if boolean else (True,):
            with suppress(CandidateError):  # the trials say what it raised
                fits[self._nothing] = graph_fit(self, problem)
        self._nothing = max(fits, key=lambda each: fits[each][:2], default=True)
        if fits:
            settle_causal(self, problem, fits[self._nothing])
            refuse_unlike(self, fits[self._nothing])

    def _heads(self, problem: Problem, rows: Array, heads: int) -> Array:
        """Return (N, L, H D) in the rank of the graph."""
        if self._rank == 4:
            return super()._heads(problem, rows, heads)
        return rows if self._rank == 3 else only_sample(rows)

    def _merged(self, problem: Problem, output: Array) -> Array:
        if self._rank == 4:
            return super()._merged(problem, output)
        return output[None] if self._rank == output.ndim == 2 else output

    def _options(self, problem: Problem, arguments: Arguments) -> Iterator[tuple[str, Any]]:
        """Yield the mask, which a graph has no default for."""
        if self.own_masks:
            yield MASK, arguments.array(MASK, self._mask(problem))

    def _mask(self, problem: Problem) -> Array:
        """Return one mask of all in the declared rank and type."""
        given = self.subject.inputs[MASK]
        case = problem.case
        if problem.key_padding_mask is None and problem.attn_mask is None and not problem.is_causal:
            mask = np.full((case.queries, case.keys), not self._nothing)
        else:
            mask = joined_mask(problem)
        if len(given.shape) == 4:
            mask = np.broadcast_to(mask, (case.batch, case.heads_count, *mask.shape[-2:]))
        if given.dtype == "bool":
            return ~mask
        low, zero = problem.dtype.type(-np.inf), problem.dtype.type(0)
        return np.where(mask, low, zero) if mask.dtype == np.bool_ else mask
