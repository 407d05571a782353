"""What stays from other calls, or depends on a mode, fails statelessness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mha_numpy import MultiheadAttention
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.run.check import check
from mha_parity.targets.bind import bind

# Calls are repeated on plain cases alone.
PLAIN = {"features": (("regime", "normal"), ("masked_rows", "none")), "diagnose": False,
         "shrink": False, "draw": False}  # fmt: skip


class KeepsKeys(MultiheadAttention):
    """Keep keys and values of the longest call, and use their beginning in shorter ones."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return attention to the kept keys where they are more than those given."""
        axis = 0 if query.ndim == 2 or not self.batch_first else 1
        kept = getattr(self, "kept", None)
        if kept is not None and kept[0].shape[axis] > key.shape[axis]:
            part = [slice(None)] * key.ndim
            part[axis] = slice(-key.shape[axis], None)
            key, value = (array[tuple(part)] for array in kept)
        else:
            self.kept = (key.copy(), value.copy())
        return super().forward(query, key, value, **options)

    __call__ = forward  # type: ignore[assignment]  # narrower than the base


class KeepsLength(MultiheadAttention):
    """Scale by the square root of the shortest length ever seen over the present one."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return the output scaled by what an earlier, shorter call left."""
        axis = 0 if query.ndim == 2 or not self.batch_first else 1
        self.least = min(getattr(self, "least", key.shape[axis]), key.shape[axis])
        output, weights = super().forward(query, key, value, **options)
        factor = np.sqrt(self.least / max(key.shape[axis], 1))
        return output * output.dtype.type(factor), weights

    __call__ = forward  # type: ignore[assignment]  # narrower than the base


class KeepsMasks(MultiheadAttention):
    """Keep the masks of the first call of each size."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return attention with the masks that came with these shapes first."""
        kept = self.__dict__.setdefault("kept", {})
        masks = {name: options.get(name) for name in ("key_padding_mask", "attn_mask")}
        options |= kept.setdefault((query.shape, key.shape), masks)
        return super().forward(query, key, value, **options)

    __call__ = forward  # type: ignore[assignment]  # narrower than the base


class ForInference(torch.nn.MultiheadAttention):
    """Forget the scale where no gradient is asked for."""

    def forward(self, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
        """Return attention of other scores without autograd."""
        return super().forward(query * (1 + (not torch.is_grad_enabled())), *rest, **options)


class ForEvaluation(torch.nn.MultiheadAttention):
    """Forget the scale in evaluation mode; no dropout gives a reason to ask for that mode."""

    def __init__(self, embed_dim: int, num_heads: int, *, bias: bool = True) -> None:
        """Leave most of torch's options out."""
        super().__init__(embed_dim, num_heads, bias=bias)

    def forward(self, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
        """Return attention of other scores in evaluation mode."""
        return super().forward(query * (1 + (not self.training)), *rest, **options)


def judged(target: object) -> Verdict:
    """Judge a target over the first cases, in which each call is repeated."""
    return check(MonitoredCandidate(bind(target)), Options(cases=16, **PLAIN))  # type: ignore[arg-type]  # options vary


@pytest.mark.parametrize(
    ("target", "sentence"),
    [(KeepsKeys, "between a new object and one that answered"),
     (KeepsLength, "in the answer of the same object after a problem"),
     (KeepsMasks, "one that answered a problem of the same sizes and other masks before"),
     (ForInference, "in the answer without autograd"),
     (ForEvaluation, "in the answer in evaluation mode")],
)  # fmt: skip
def test_what_stays_or_depends_on_a_mode_is_named(target: type, sentence: str) -> None:
    """Each is a finding of statelessness that names the other call or the mode."""
    found = [
        each.check_result.detail
        for each in judged(target).failures
        if each.check_result.check == "statelessness"
    ]

    assert any(sentence in detail for detail in found), found


@pytest.mark.parametrize("target", [MultiheadAttention, torch.nn.MultiheadAttention])
def test_a_layer_without_state_passes(target: type) -> None:
    """The own layer and torch's fail nothing of it."""
    assert () == judged(target).failures
