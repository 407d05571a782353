"""Layers that decode with a key/value cache are asked row by row, however the cache is passed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue, passed_cache
from mha_parity.catalogue.layer_base import bound_layer
from mha_parity.checks.cached_rows import (
    AFTERWARDS,
    BEGINS,
    CAUSES,
    NAME,
    STALE,
    UNSEEN,
    check_cached_rows,
)
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.candidate import REMARK
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.oracle.recorded import problem_of
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.conventions.cache_use import CacheUse

if TYPE_CHECKING:
    from collections.abc import Sequence

CASE = Case(seed=3, batch=2, queries=6, keys=6, heads_count=2, head_dim=3, inputs="self")
PROBLEM = make_problem(CASE)


class Layer(nn.Module):
    """Causal self-attention, with what the subjects have in common."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v, (N, H, L, D)."""
        q, k, v = (
            p(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        return q, k, v

    def attend(self, q: Tensor, kv: Sequence[Tensor], behind: int | None = None) -> Tensor:
        """Return attention of the last rows, or of those behind as many others."""
        k, v = kv
        rows, keys = q.shape[-2], k.shape[-2]
        seen = torch.ones(rows, keys).tril(keys - rows if behind is None else behind) > 0
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        joined: Tensor = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        return joined


def joined(past: Any, *new: Tensor) -> tuple[Tensor, ...]:
    """Return the arrays of a cache with the new ones behind them."""
    if past is None:
        return new
    return tuple(torch.cat(pair, dim=2) for pair in zip(past, new, strict=True))


class Pair(Layer):
    """Takes and returns a pair."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return the output and the keys and values of all rows."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        return self.attend(q, pair), pair


class Stacked(Layer):
    """Takes one array, and returns it where it is asked for."""

    def forward(self, x: Tensor, layer_past: Any = None, use_cache: bool = False) -> Any:
        """Return the output and, where asked, keys and values in one array."""
        q, *new = self.project(x)
        pair = joined(layer_past, *new)
        return self.attend(q, pair), torch.stack(pair) if use_cache else None


class TwoParameters(Layer):
    """Takes keys and values one by one."""

    def forward(self, x: Tensor, past_k: Any = None, past_v: Any = None) -> Any:
        """Return three arrays."""
        q, *new = self.project(x)
        k, v = joined(None if past_k is None else (past_k, past_v), *new)
        return self.attend(q, (k, v)), k, v


class Dictionary(Layer):
    """Fills a dictionary of the caller's."""

    def forward(self, x: Tensor, incremental_state: Any = None) -> Tensor:
        """Return the output alone."""
        q, *pair = self.project(x)
        if incremental_state is not None:
            pair = list(joined(incremental_state.get("kv"), *pair))
            incremental_state["kv"] = pair
        return self.attend(q, pair)


class Inside(Layer):
    """Keeps keys and values in buffers of its own."""

    buffers_of_rows: Any = None

    def forward(self, x: Tensor, start_pos: int = 0, use_cache: bool = False) -> Tensor:
        """Return the output alone."""
        q, *pair = self.project(x)
        if use_cache:
            if self.buffers_of_rows is None:
                self.buffers_of_rows = [torch.zeros_like(a[:, :, :1]).repeat(1, 1, 32, 1)
                                        for a in pair]  # fmt: skip
            end = start_pos + x.shape[1]
            for buffer, new in zip(self.buffers_of_rows, pair, strict=True):
                buffer[:, :, start_pos:end] = new.detach()
            pair = [buffer[:, :, :end] for buffer in self.buffers_of_rows]
        return self.attend(q, pair)


class FirstRow(Layer):
    """Keeps keys and values always, and is told where a call begins."""

    held: Any = None

    def forward(self, x: Tensor, start_pos: int) -> Tensor:
        """Return the output alone."""
        q, *new = self.project(x)
        past = None if self.held is None else [each[:, :, :start_pos] for each in self.held]
        self.held = joined(past if start_pos else None, *new)
        return self.attend(q, self.held)


class FirstRowStale(FirstRow):
    """Sees what longer sequences left behind its last row, in calls of one row."""

    longest: Any = None

    def forward(self, x: Tensor, start_pos: int) -> Tensor:
        """Attend to all that was kept, behind the rows up to this one."""
        output = super().forward(x, start_pos)
        end = start_pos + x.shape[1]
        if self.longest is None or self.longest[0].shape[2] <= end:
            self.longest = self.held
        if x.shape[1] > 1:
            return output
        q, *_ = self.project(x)
        kept = [each[:, :, end:] for each in self.longest]
        return self.attend(q, joined(self.held, *kept))


PROTOCOLS = {
    Pair: CacheUse(("past",), places=(0,)),
    Stacked: CacheUse(("layer_past",), ("use_cache",), places=(0,)),
    TwoParameters: CacheUse(("past_k", "past_v"), places=(0, 1)),
    Dictionary: CacheUse(("incremental_state",), begun="dict"),
    Inside: CacheUse((), ("use_cache",), ("start_pos",)),
    FirstRow: CacheUse((), (), ("start_pos",)),
}


class TopLeft(Pair):
    """Counts the new rows from 0 in the causal mask."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Hide what lies behind the first rows."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        return self.attend(q, pair, behind=0), pair


class ValuesFirst(Pair):
    """Puts the new values before the cached ones."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Join keys and values in unlike orders."""
        q, *new = self.project(x)
        k, v = joined(past, *new)
        v = v if past is None else v.roll(x.shape[1], dims=2)
        return self.attend(q, (k, v)), (k, v)


class Leaves(Pair):
    """Scales by what the last cache held, also without one."""

    held = 1

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Multiply the output of a call without a cache after one with it."""
        output, pair = super().forward(x, past)
        if past is not None:
            self.held = 2
        return output * (self.held if past is None else 1), pair


class Ignores(Layer):
    """Takes a cache and reads nothing of it."""

    def forward(self, x: Tensor, past_key_value: Any = None, use_cache: bool = False) -> Any:
        """Return what it was passed."""
        del use_cache
        q, *kv = self.project(x)
        return self.attend(q, kv), past_key_value


class OneRowAtATime(Pair):
    """Hides nothing among the new rows of a call with a cache."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Let a new row see the next one."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        return self.attend(q, pair, behind=None if past is None else pair[0].shape[2]), pair


class LastRowOfEach(Pair):
    """Returns the last of its new rows behind those that it was passed."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Attend to all rows, and drop all new ones but the last."""
        output, _ = super().forward(x, past)
        _, *new = self.project(x)
        return output, joined(past, *(each[:, :, -1:] for each in new))


class ManyRows(Pair):
    """Returns a row for each key where it has a cache."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return as many rows as there are keys."""
        output, pair = super().forward(x, past)
        return output.expand(-1, pair[0].shape[2], -1) if past is not None else output, pair


class NoNumbers(Pair):
    """Returns a cache of NaN."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return the right output and a wrong cache."""
        output, pair = super().forward(x, past)
        return output, tuple(each * torch.nan for each in pair)


class Float32Cache(Pair):
    """Returns a cache in float32."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Attend in the dtype of the input."""
        past = past and tuple(each.to(x.dtype) for each in past)
        output, pair = super().forward(x, past)
        return output, tuple(each.float() for each in pair)


class OfFourRows(Pair):
    """Has room for four rows, and refuses more by a ValueError."""

    error: type[Exception] = ValueError

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Refuse what is longer."""
        if past is not None and past[0].shape[2] + x.shape[1] > 4:
            raise self.error("a cache of four rows")
        return super().forward(x, past)


class BreaksAtFourRows(OfFourRows):
    """Raises an IndexError there."""

    error = IndexError


class Concatenates(Pair):
    """Joins the cache along another axis, which raises."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Join heads."""
        q, *new = self.project(x)
        pair = new if past is None else [torch.cat(p, 1) for p in zip(past, new, strict=True)]
        return self.attend(q, pair), tuple(new)


class OfMemory(Layer):
    """Takes the keys and values of earlier calls in the place of its own, as of a context."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, past_key_value: Any = None
    ) -> tuple[Tensor, Any]:
        """Return attention without the causal rule."""
        q, _, _ = self.project(query)
        pair = past_key_value or (self.project(key)[1], self.project(value)[2])
        return self.attend(q, pair, behind=pair[0].shape[2]), pair


class OddlyAnnotated(Pair):
    """Has annotations that are no types, and cannot be hashed."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return what a pair does."""
        return super().forward(x, past)

    forward.__annotations__ |= {"x": [Tensor], "past": {"k": Tensor}}


class Updates(Layer):
    """Has a cache of transformers join the rows of its own number."""

    def __init__(self, d_model: int, n_heads: int, layer_idx: int | None = None) -> None:
        super().__init__(d_model, n_heads)
        self.layer_idx = layer_idx

    def forward(self, x: Tensor, past_key_values: Any = None) -> Tensor:
        """Return the output alone."""
        q, *pair = self.project(x)
        if past_key_values is not None:
            pair = past_key_values.update(*pair, self.layer_idx)
        return self.attend(q, pair)


class DynamicCache(dict[int, Any]):
    """Keys and values by the number of a layer, as transformers' class of the name."""

    def update(self, key: Tensor, value: Tensor, layer_idx: int) -> Any:  # type: ignore[override]  # another method
        """Return the rows of a layer with the new ones behind them."""
        self[layer_idx + 0] = joined(self.get(layer_idx), key, value)
        return self[layer_idx]


def findings(kind: type, number: int = 0) -> list[str]:
    """Return what the check says of a layer."""
    return list(check_cached_rows(bind(kind), PROBLEM, number))


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.__name__)
def test_ways_to_pass_a_cache_are_found_and_hold(kind: type[Layer]) -> None:
    """A right layer is asked with its cache, in whatever way that is passed, and holds."""
    assert PROTOCOLS[kind] == bind(kind).cache
    assert [[NAME]] * len(BEGINS) == [findings(kind, number) for number in range(len(BEGINS))]


@pytest.mark.parametrize("number", range(len(BEGINS)))
@pytest.mark.parametrize(("clause", "bug"), CAUSES.items())
def test_wrong_caches_are_named(clause: str, bug: str, number: int) -> None:
    """The clause that a wrong cache of the catalogue ends with is that of its own name."""
    kind = catalogue()[bug].layer
    assert kind is not None
    said = [*check_cached_rows(bound_layer(kind()), PROBLEM, number)]
    assert said[1].endswith(f"asked with the cache of those before it: {clause}.")


def test_the_right_cached_layer_of_the_catalogue_holds() -> None:
    """The layer that the wrong ones are changed from has no finding, in cases of all kinds."""
    candidate = MonitoredCandidate(bound_layer(passed_cache.CachedLayer))
    verdict = check(candidate, Options(cases=60, diagnose=False, shrink=False))
    assert Outcome.PASS == verdict.outcome, verdict.failures[0].check_result.detail
    assert any(NAME == row.name and row.cases for row in verdict.checks)


@pytest.mark.parametrize(
    ("kind", "said"),
    [(TopLeft, UNSEEN), (ValuesFirst, "in row 2"), (Leaves, AFTERWARDS), (FirstRowStale, STALE)],
)
def test_wrong_rows_are_found(kind: type, said: str) -> None:
    """A causal mask at the wrong corner, mixed orders and what a cache leaves are findings."""
    assert said in findings(kind)[1]


def test_rows_that_are_not_seen_are_listed() -> None:
    """Of a mask that begins at the first key, the keys behind it are unseen."""
    assert findings(TopLeft, 2)[1].endswith(f"{UNSEEN}s 1, 2.")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (LastRowOfEach, f"{UNSEEN}s 0, 1."),
        (ManyRows, "became (2, 4, 6) float64 in row 3"),
        (NoNumbers, "elements differ by up to inf in row 3"),
        (BreaksAtFourRows, "a call with the cache of the rows before it raised IndexError"),
    ],
)
def test_what_else_goes_wrong_with_a_cache_is_said(kind: type, said: str) -> None:
    """Rows that are dropped, of another number, NaN or raise are findings of their own."""
    assert said in findings(kind, 2)[1]


@pytest.mark.parametrize("kind", [OfFourRows, OddlyAnnotated])
def test_a_cache_without_room_and_odd_annotations_are_no_finding(kind: type) -> None:
    """A ValueError at more rows is a refusal, and an annotation may be anything."""
    assert [NAME] == findings(kind)


def test_a_cache_in_float32_is_a_remark() -> None:
    """Digits that a cache loses are said, and fail nothing: they are those of float32."""
    (name, remark) = findings(Float32Cache)
    assert (NAME, True) == (name, "it has the digits of float32" in remark)


def test_keys_of_a_context_that_are_kept_are_no_cache_of_rows() -> None:
    """A layer that takes what came back in the place of keys and values is not asked row by row."""
    assert bind(OfMemory).cache is None


def test_a_cache_that_raises_is_named_in_a_note() -> None:
    """What the next call raised is said, and the parameter counts as not tried."""
    verdict = check(MonitoredCandidate(bind(Concatenates)), Options(cases=12, diagnose=False))
    said = "its cache was not judged: with `past` as a call returned it, the next one raised"
    assert any(said in note for note in verdict.notes)
    assert "parameters not tried: past" in verdict.sentence


def test_a_cache_of_transformers_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that updates a cache by its own number is built with one, and gets such a cache."""
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(DynamicCache=DynamicCache))
    assert CacheUse(("past_key_values",), begun="transformers") == bind(Updates).cache
    assert [NAME] == findings(Updates)
    monkeypatch.delitem(sys.modules, "transformers")
    assert bind(Updates).cache is None


def test_several_new_rows_are_a_remark() -> None:
    """That two new rows of one call see each other is said, and fails nothing."""
    (name, remark) = findings(OneRowAtATime)
    assert (NAME, True) == (name, remark.startswith(REMARK))


def test_a_cache_that_is_not_read_is_not_tried() -> None:
    """A parameter that nothing comes back for stays at its default, and the verdict says so."""
    bound = bind(Ignores)
    assert bound.cache is None
    verdict = check(MonitoredCandidate(bound), Options(cases=12, diagnose=False))
    found = {each.name: each.status for each in verdict.parameters}
    assert {Status.NOT_TRIED} == {found["past_key_value"], found["use_cache"]}


def test_a_cache_that_is_passed_is_tried() -> None:
    """The verdict on a right layer with a cache leaves no parameter out, and says what it takes."""
    verdict = check(MonitoredCandidate(bind(Stacked)), Options(cases=12, diagnose=False))
    found = {each.name: each.status for each in verdict.parameters if each.of == "call"}
    assert {"x": Status.TRIED, "layer_past": Status.TRIED, "use_cache": Status.TRIED} == found
    assert any("`layer_past`: takes what" in note for note in verdict.notes)


def test_a_layer_that_is_built_answers_its_own_rows() -> None:
    """A layer that is given as it is decodes rows of the problem with its own weights."""
    torch.manual_seed(0)
    for layer, wrong in ((Pair(8, 2).double(), 0), (TopLeft(8, 2).double(), 1)):
        bound = bind(layer)
        own = bound.own_weights
        assert own is not None
        problem = problem_of(CASE.replace(head_dim=4, attn="causal", keys=9, queries=9), own)
        assert 1 + wrong == len([*check_cached_rows(bound, problem, 0)])


def test_a_wrong_cache_makes_the_verdict_red_and_is_its_diagnosis() -> None:
    """The whole run names a cache that two sequences share."""
    kind = catalogue()["cache-shared"].layer
    assert kind is not None
    verdict = check(MonitoredCandidate(bound_layer(kind())), Options(cases=40))
    assert "cache-shared" == verdict.diagnosis[0].bug
