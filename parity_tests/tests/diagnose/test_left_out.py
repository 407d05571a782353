"""Keys, channels, rows and heads that are left out are found, with their rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import Caller


class Window(Attention):
    """Keys further than 16 places away are not seen."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what is far."""
        i, j = np.indices(scores.shape[-2:])
        return np.where(np.abs(i - j) <= 16, super().mask_scores(scores), -np.inf)


class NoTail(Attention):
    """The keys behind the last whole tile of 32 are left out."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide the tail."""
        keys = scores.shape[-1]
        whole = max(keys // 32, 1) * 32
        return np.where(np.arange(keys) < whole, super().mask_scores(scores), -np.inf)


class FirstHeadLeftOut(Attention):
    """Head 0 stays 0."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Clear head 0."""
        mixed = super().apply_weights(weights, v)
        mixed[:, 0] = 0
        return mixed


class FewerChannels(Attention):
    """The dot product leaves out the last D % 4 channels."""

    def scores(self, q: Array, k: Array) -> Array:
        """Cut q."""
        kept = q.shape[-1] // 4 * 4
        return super().scores(q[..., :kept], k[..., :kept])


class WholeTilesOfChannels(Attention):
    """The dot product leaves out the last D % 16 channels where D > 16, as by whole tiles."""

    def scores(self, q: Array, k: Array) -> Array:
        """Cut q and k."""
        kept = max(q.shape[-1] // 16 * 16, min(q.shape[-1], 16))
        return super().scores(q[..., :kept], k[..., :kept])


class OverlappingSlices(Attention):
    """Slices of 8 rows; the last one reaches back to be whole, and is added to what is there."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Add the rows that the last two slices share once more."""
        mixed = super().apply_weights(weights, v)
        rows = mixed.shape[2]
        if rows > 8:
            mixed[:, :, rows - 8 : rows // 8 * 8] *= 2
        return mixed


class SlicesOfRows(Attention):
    """A causal rule by slices of 32 rows, each masked as if it were the last rows."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what follows the last row of the slice, aligned at the end of the keys."""
        rows, keys = scores.shape[-2:]
        row, key = np.indices((rows, keys))
        ends = np.minimum(32 * (row // 32 + 1), rows)
        return np.where(key <= row + keys - ends, super().mask_scores(scores), -np.inf)


class OneInEight(Attention):
    """The dot product leaves out channels 7, 15 and so on."""

    def scores(self, q: Array, k: Array) -> Array:
        """Cut q."""
        return super().scores(np.where(np.arange(q.shape[-1]) % 8 == 7, 0, q), k)


class LastRowsLeftOut(Attention):
    """The rows behind the last whole tile of 8 stay 0."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Clear the tail."""
        mixed = super().apply_weights(weights, v)
        mixed[:, :, mixed.shape[2] // 8 * 8 :] = 0
        return mixed


PLANTED: dict[str, tuple[type[Attention], str]] = {
    "window": (Window, "row i sees keys i-16 … i+16"),
    "tail": (NoTail, "the last keys beyond a multiple of 32"),
    "channels": (FewerChannels, "leaves out the last channels beyond a multiple of 4: 128–130"),
    "tiles of channels": (WholeTilesOfChannels, "last channels beyond a multiple of 16: 192"),
    "lanes": (OneInEight, "the dot product leaves out channels 7, 15, … (one in 8)"),
    "head": (FirstHeadLeftOut, "head 0 of 2 has weights that are all 0"),
    "overlap": (OverlappingSlices, "rows 159 of 167 are added 2 times in all heads: their weights"),
    "slices": (SlicesOfRows, "i + (S - e), e the end of its tile of 32 rows"),
}  # fmt: skip


class NoTailOfOne(Attention):
    """The last key is left out where it alone is behind the last tile of 64."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide it."""
        keys = scores.shape[-1]
        lost = (np.arange(keys) == keys - 1) & (keys > 64) & (keys % 64 == 1)
        return np.where(lost, -np.inf, super().mask_scores(scores))


@pytest.mark.parametrize("layer", [False, True])
def test_a_key_that_is_lost_at_few_lengths_is_read_there(
    layer: bool, caller: Callable[..., Caller]
) -> None:
    """No plain reading has 64 k + 1 keys; a layer shows them with wider heads alone."""
    form = {} if layer else {"form": "qkv", "projection": "none"}
    offered = make_offer(inputs=("cross",), size=("small", "medium"), **form)
    (found, *_) = cause_findings(run_experiments(caller(NoTailOfOne, offered)))
    assert "no row gives weight to the last key (here 64 of 65)" == found.text


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_left_out_is_said_with_its_rule(
    name: str, causes: Callable[[type[Attention]], str]
) -> None:
    """The first line that is understood names the places and the rule."""
    kind, sentence = PLANTED[name]
    assert sentence in causes(kind).partition("\n")[0]


def test_a_dead_tail_of_rows_has_its_size_and_its_place(
    causes: Callable[[type[Attention]], str],
) -> None:
    """Rows that were not written: which, what stands there, and for which lengths."""
    found = causes(LastRowsLeftOut)
    assert "wrong wherever L % 8 != 0" in found
