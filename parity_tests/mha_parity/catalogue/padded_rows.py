"""Family 5: padding that meets the rows of queries: hidden in place of keys, with them, zeroed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array


@register_bug(
    "kpm-query-axis",
    5,
    "key_padding_mask is laid along the queries",
    wrong="mask[:, None, :, None]",
    right="mask[:, None, None, :]",
    visible="padding with L = S (else it crashes): padded query rows see nothing, padding is seen",
    remedy="broadcast key_padding_mask as (N, 1, 1, S)",
    sources="hyunwoongko/transformer#40 lsdefine/attention-is-all-you-need-keras#16 "
    "keras-team/keras-io#1046",
    needs="padding=bool/float/lengths",
    variants=tuple(
        {"hidden_rows": rows} for rows in ("uniform", "uniform over the others", "zero", "output")
    ),
)
class AlongQueries(Attention):
    """Rows of padded queries are hidden whole, and no key is.

    ``hidden_rows``: what such a row is: NaN of -inf throughout; uniform, of one finite number, over
    all keys or over those that the other masks leave; zero, as of a softmax that is safe from -inf;
    or zero in the output, behind the projection.
    """

    hidden_rows = "nan"

    def padding_mask(self) -> Array | None:
        """Return the mask as (N, 1, L, 1), where rows of -inf are all there is to it."""
        own = super().padding_mask()
        return own.swapaxes(-1, -2) if own is not None and self.hidden_rows == "nan" else None

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores)
        hidden = self._hidden()
        if hidden is None or not self.hidden_rows.startswith("uniform"):
            return masked
        kept = np.isneginf(masked) if self.hidden_rows.endswith("others") else np.False_
        return np.where(hidden & ~kept, self.work_dtype.type(0), masked)

    def softmax(self, scores: Array) -> Array:
        return self._emptied(super().softmax(scores), "zero")

    def project_output(self, x: Array) -> Array:
        output = super().project_output(x)
        return self._emptied(output[:, None], "output")[:, 0]

    def _emptied(self, x: Array, where: str) -> Array:
        """Return (N, ..., L, d) with rows of 0 where those of padded queries are that."""
        hidden = self._hidden()
        if hidden is None or self.hidden_rows != where:
            return x
        return np.where(hidden, self.work_dtype.type(0), x)

    def _hidden(self) -> Array | None:
        """Return which rows are hidden, (N, 1, L, 1), where that is by other than -inf."""
        own = super().padding_mask()
        return (
            None if own is None or self.hidden_rows == "nan" else np.isneginf(own.swapaxes(-1, -2))
        )


# For which inputs code takes query rows for the padded keys: where the three are one; where query
# and key are one array, which shows in a batch alone; or wherever the lengths are equal.
ROWS_ARE_KEYS: tuple[Mapping[str, object], ...] = (
    {"rows": "self"},
    {"rows": "query is key"},
    {"rows": "query is key, or unbatched"},
    {"rows": "L = S"},
)


class PaddedRows(Attention):
    """A padding mask that meets query rows as well."""

    rows = "self"

    def rows_are_keys(self, padding: Array) -> bool:
        """Return whether the rows are taken for the keys that ``padding`` hides."""
        one = self.problem.query is self.problem.key
        unbatched = self.case.layout == "unbatched"
        return (
            padding.shape[-1] == self.case.queries
            and {
                "self": self.case.inputs == "self",
                "query is key": one,
                "query is key, or unbatched": one or unbatched,
                "L = S": True,
            }[self.rows]
        )


@register_bug(
    "kpm-both-axes",
    5,
    "padded positions are hidden as keys and as queries",
    wrong="mask[:, None, None, :] | mask[:, None, :, None]",
    right="mask[:, None, None, :]",
    visible="self-attention with padding, padded query rows alone",
    remedy="mask keys, not queries",
    sources="pytorch/pytorch#63271",
    needs="padding=bool/float/lengths inputs=self",
    policy=True,
    variants=ROWS_ARE_KEYS[1:],
)
class BothAxes(PaddedRows):
    """Keys and queries."""

    def padding_mask(self) -> Array | None:
        own = super().padding_mask()
        if own is None or not self.rows_are_keys(own):
            return own
        return own + np.where(own == -np.inf, own, 0).swapaxes(-1, -2)


@register_bug(
    "kpm-zeroes-queries",
    5,
    "the output of padded query rows is set to zero",
    wrong="output * ~padding[:, :, None]",
    right="padding hides keys; padded queries are answered like others",
    visible="self-attention with padding, padded query rows alone",
    remedy="leave the output rows of padded queries as they are",
    sources="Kyubyong/transformer#16",
    needs="padding=bool/float/lengths inputs=self",
    policy=True,
    variants=(*ROWS_ARE_KEYS[1:], *({**each, "projected": True} for each in ROWS_ARE_KEYS)),
)
class ZeroesQueries(PaddedRows):
    """Padded rows answered by 0, or by the bias of the output projection that follows."""

    projected = False

    def merge(self, x: Array) -> Array:
        merged = super().merge(x)
        return merged if self.projected else self._zeroed(merged)

    def project_output(self, x: Array) -> Array:
        output = super().project_output(x)
        return self._zeroed(output) if self.projected else output

    def _zeroed(self, x: Array) -> Array:
        padding = self.padding_mask()
        if padding is None or not self.rows_are_keys(padding):
            return x
        return np.where(padding[:, 0, 0, :, None] == -np.inf, self.work_dtype.type(0), x)
