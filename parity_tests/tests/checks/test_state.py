"""An object that keeps something of a call with other sizes fails statelessness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_numpy import MultiheadAttention
from mha_parity.checks.conduct import MonitoredCandidate
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


def judged(target: object) -> Verdict:
    """Judge a target over the first cases, in which each call is repeated."""
    return check(MonitoredCandidate(bind(target)), Options(cases=16, **PLAIN))  # type: ignore[arg-type]  # options vary


@pytest.mark.parametrize(
    ("target", "sentence"),
    [(KeepsKeys, "between a new object and one that answered"),
     (KeepsLength, "in the answer of the same object after a problem")],
)  # fmt: skip
def test_what_stays_from_other_sizes_is_named(target: type, sentence: str) -> None:
    """A kept key and a kept length are findings of statelessness that name the other call."""
    found = [
        each.check_result.detail
        for each in judged(target).failures
        if each.check_result.check == "statelessness"
    ]

    assert any(sentence in detail for detail in found), found


def test_a_layer_without_state_passes() -> None:
    """The layer itself fails nothing of it."""
    assert () == judged(MultiheadAttention).failures
