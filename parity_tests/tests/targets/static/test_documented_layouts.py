"""The order of axes that a class documents is demanded; what says both says nothing."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.documented_layout import (
    SAMPLES_FIRST,
    documents_heads,
    documents_samples_first,
    documents_samples_of_heads,
)
from subject_checks import checks_of

checked = checks_of("documented_layouts.py", cases=60, dtypes=("float64",))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (True, "q (batch, heads, seq, dim)"),
        (True, "[B, T, H, D]"),
        (True, "(bsz, num_heads, q_len, head_dim)"),
        (False, "(batch, seq, dim)"),
        (False, "(query, key, value, num_heads)"),
        (False, ""),
    ],
)
def test_what_documentation_says_of_heads(text: str, *, said: bool) -> None:
    """A tuple of four axes has one of heads, as its second or third."""
    assert said == documents_heads(documented(text))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (True, "q (B, T, H, D)"),
        (True, "(B, H, T, D)"),
        (True, "(batch_size, num_queries, num_heads, head_dim)"),
        (True, "b x t x h x d"),
        (True, "n × heads × tokens × d"),
        (False, "(L, N, H, D)"),
        (False, "(T, B, H, D), inside (B, T, H, D)"),
        (False, "(query, key, value, num_heads)"),
        (False, "[sq, b, np, hn]"),
    ],
)
def test_rows_of_heads_may_be_documented_behind_the_samples(text: str, *, said: bool) -> None:
    """Heads may stand before the rows: the samples are first all the same."""
    assert said == documents_samples_of_heads(documented(text))


def documented(text: str) -> type:
    """Return a class of that documentation."""
    return type("Documented", (), {"__doc__": text, "forward": lambda _, x: x})


@pytest.mark.parametrize(
    "name", ["SamplesFirst", "RowsFirst", "EitherFirst", "Undocumented", "HeadsOfRows"]
)
def test_layers_that_do_what_they_document_hold(name: str) -> None:
    """So does one that documents no order, or two."""
    verdict = checked(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert SAMPLES_FIRST not in verdict.notes


def test_attention_over_samples_that_are_documented_first_is_named() -> None:
    """`batch_first=True` is missing: the layer is right in the other order, which is not called."""
    verdict = checked("SamplesSaidFirst", diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert "batch-first-confusion" == verdict.diagnosis[0].bug
    assert SAMPLES_FIRST in verdict.notes


def test_heads_of_rows_are_asked_with_masks_and_gradients() -> None:
    """(L, N, H, D) in, (L, N, E) out: masks are found, and gradients follow the merged output."""
    verdict = checked("HeadsOfRows", grad=True)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any("(L, N, H, D)" in note for note in verdict.notes)
    passing = {(row.axis, row.value) for row in verdict.features if row.status == "pass"}
    assert {("layout", "sequence_first"), ("gradients", "yes"), ("attn", "bool2d")} <= passing


def test_heads_of_samples_that_are_documented_first_are_not_called_rows_first() -> None:
    """Attention over the first of four axes is no layout where that is documented as samples."""
    for name in ("HeadsOfSamples", "HeadsBeforeRows"):
        with pytest.raises(TargetError, match=r"nearest tried: .*\(N, L, H, D\)"):
            checked(name)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (True, "x: (batch, seq_len, d_model)"),
        (True, "Rows of [B, T, C]."),
        (True, "Tokens (B, N, C), heads (B, H, N, D)."),
        (True, "rows (N, L, E)"),
        (True, "(batch_size, sequence_length, hidden)"),
        (True, "returns (bsz, tgt_len, dim)"),
        (True, "q (B, T, H, D)"),
        (True, "(N, L, H, D)"),
        (False, "(L, N, H, D)"),
        (False, "(batch, seq, heads, dim), inside (seq, batch, heads, dim)"),
        (False, "rows (L, N, E)"),
        (False, "(seq_len, batch, d_model)"),
        (False, "(batch, seq, dim), or (seq, batch, dim)"),
        (False, "(batch, dim)"),
        (False, "a mask (N, L, S), weights (batch, tgt_len, src_len) or [B, T, T]"),
        (False, "(batch, seq, dim) inside; input shape: Time x Batch x Channel"),
        (False, "(B, T, C) behind batch_first=False"),
        (False, "sequence-first; (batch, seq_len, dim) is refused"),
        (False, "heads (batch, heads, seq, dim)"),
        (False, "(d_model, num_heads, dropout)"),
        (False, "attends from a sequence to a batch"),
        (False, ""),
    ],
)
def test_what_documentation_says_of_axes(text: str, *, said: bool) -> None:
    """A tuple of samples, rows and a width says it, and one of rows first takes it back."""
    assert said == documents_samples_first(documented(text))
