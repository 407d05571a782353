"""Relations without an oracle: right attention obeys each, and each catches what breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.catalogue.registry import whole_offer
from mha_parity.checks.metamorphic import (
    RELATIONS,
    RelatedProblem,
    judge_relation,
    key_value_permutation,
    output_place,
    permute_rows,
    scheduled_relation,
)
from mha_parity.core.case import parse
from mha_parity.core.check_result import Place, Severity
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.oracle.error_bound import bound
from mha_parity.oracle.reference import reference_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.problem import Problem

CASES = 30


class CountsRows(Attention):
    """Lets the place of a query in the sequence weigh its scores."""

    def scores(self, q: Array, k: Array) -> Array:
        """Return scores that grow with the row."""
        return super().scores(q, k) * (1 + 0.3 * np.arange(q.shape[2])[:, None])


class CountsKeys(Attention):
    """Penalises keys by their place, as a positional bias does."""

    def scores(self, q: Array, k: Array) -> Array:
        """Return scores that fall with the column."""
        return super().scores(q, k) - 0.3 * np.arange(k.shape[2])


class FirstSampleForAll(Attention):
    """Lets every query look at the keys of the first sample."""

    def scores(self, q: Array, k: Array) -> Array:
        """Return scores against the keys of sample 0."""
        return super().scores(q, np.broadcast_to(k[:1], k.shape))


class SamplesLeak(Attention):
    """Adds a part of all samples to each, as a batch statistic does."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return heads with the mean over samples in them."""
        heads = super().apply_weights(weights, v)
        return np.asarray(heads + 0.1 * heads.mean(axis=0, keepdims=True))


class SeesTheFuture(Attention):
    """Forgets the causal rule."""

    def causal_mask(self) -> None:
        """Hide nothing."""


class SeesPadding(Attention):
    """Forgets the padding."""

    def padding_mask(self) -> None:
        """Hide nothing."""


class HeadsInterleaved(Attention):
    """Takes every H-th feature for a head where neighbours belong together."""

    def split(self, x: Array, heads: int) -> Array:
        """Return (N, T, D H) as (N, H, T, D)."""
        n, t, width = x.shape
        return np.moveaxis(x.reshape(n, t, width // heads, heads), 3, 1)


BROKEN: dict[str, type[Attention]] = {
    "permutation equivariance": CountsRows,
    "batch permutation": FirstSampleForAll,
    "key/value permutation invariance": CountsKeys,
    "causality": SeesTheFuture,
    "padding invariance": SeesPadding,
    "batch independence": SamplesLeak,
    "head independence": HeadsInterleaved,
}


def judged(name: str, kind: type[Attention], dtype: str, seed: int) -> Iterator[CheckResult]:
    """Ask an attention for one relation on every problem of a drawing that can be asked for it."""
    offer = whole_offer() | {"dtype": (dtype,), "size": ("small",)}
    for case in draw_cases(offer, CASES, seed):
        problem = make_problem(case)
        related = RELATIONS[name](problem)
        if related is None or case.regime in EXTREME_VALUES:  # a run asks no relation of those
            continue
        first, second = (answer_of(kind, p).output for p in (problem, related.problem))
        limit = bound(problem, reference_answer(problem)).output
        yield judge_relation(problem, limit, first, second, name, related)


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", RELATIONS)
def test_right_attention_obeys(name: str, dtype: str, seed: int) -> None:
    """A right attention never breaks a relation, and each is asked of several problems."""
    found = list(judged(name, Attention, dtype, seed))
    assert len(found) >= 3
    broken = [check_result for check_result in found if check_result.severity is not Severity.MATCH]
    assert [] == broken


@pytest.mark.parametrize("seed", [21, 22])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", RELATIONS)
def test_each_relation_catches_what_breaks_it(name: str, dtype: str, seed: int) -> None:
    """Of an attention that breaks a relation most answers are called wrong, with the place."""
    found = list(judged(name, BROKEN[name], dtype, seed))
    wrong = [check_result for check_result in found if check_result.severity is Severity.WRONG]
    assert len(wrong) > len(found) / 3, f"{len(wrong)} of {len(found)}"
    for check_result in wrong:
        assert check_result.check == name
        assert check_result.error > check_result.allowed
        assert check_result.where is not None


def _problem(seed: int, **features: str) -> Problem:
    offer = whole_offer() | {"size": ("small",), "masked_rows": ("none",)}
    offer |= {axis: (value,) for axis, value in features.items()}
    return make_problem(draw_cases(offer, 1, seed)[0])


def applicable_relations(problem: Problem) -> dict[str, RelatedProblem]:
    """Return the relations that apply to a problem, by name."""
    related = ((name, relate(problem)) for name, relate in RELATIONS.items())
    return {name: each for name, each in related if each is not None}


def _asked(problem: Problem) -> set[str]:
    return {*applicable_relations(problem)}


def test_a_causal_problem_is_not_asked_to_permute() -> None:
    """Under the causal rule places matter: rows and keys stay, the future is poisoned instead."""
    asked = _asked(_problem(5, form="mha", attn="causal", padding="none"))
    moving = {name for name in RELATIONS if "permutation" in name and "batch" not in name}
    assert 2 == len(moving)
    assert not asked & moving
    assert "causality" in asked


def test_an_output_projection_mixes_the_heads() -> None:
    """Head independence is only asked where no output projection mixes the heads."""
    mixed = _problem(6, form="mha", out_proj="general", heads="many", kv_heads="equal")
    separate = _problem(6, form="mha", out_proj="identity", heads="many", kv_heads="equal")
    assert "head independence" not in _asked(mixed)
    assert "head independence" in _asked(separate)


@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_leaves_its_problem_alone(name: str) -> None:
    """A changed problem shares nothing that it changed with the first."""
    for seed in range(30):
        problem = make_problem(draw_cases(whole_offer(), 1, seed)[0])
        before = [problem.query.copy(), problem.key.copy(), problem.value.copy()]
        RELATIONS[name](problem)
        for expected, actual in zip(
            before, (problem.query, problem.key, problem.value), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)


def test_a_second_answer_of_another_shape_is_named() -> None:
    """A candidate that answers the changed problem in another shape breaks the structure."""
    problem = _problem(7, form="mha", attn="none", padding="none", out_proj="identity")
    name, related = next(iter(applicable_relations(problem).items()))
    output = answer_of(Attention, problem).output
    limit = bound(problem, reference_answer(problem)).output
    found = judge_relation(problem, limit, output, output[:, :-1], name, related)
    assert Severity.STRUCTURE is found.severity
    assert str(output.shape) in found.detail


@pytest.mark.parametrize(("bounds", "severity"), [(1.9, Severity.MATCH), (2.1, Severity.WRONG)])
def test_a_relation_allows_two_bounds(bounds: float, severity: Severity) -> None:
    """Each answer may be off by one bound. Kills a larger allowance, say a thousand bounds."""
    problem = _problem(8, form="mha", attn="none", padding="none", out_proj="identity")
    name, related = next(iter(applicable_relations(problem).items()))
    reference = reference_answer(problem)
    limit = bound(problem, reference).output
    first = np.asarray(reference.output, dtype=np.float64)
    second = related.expected(first).copy()
    second[0, 0, 0] += bounds * related.expected(limit)[0, 0, 0]
    assert severity is judge_relation(problem, limit, first, second, name, related).severity


def test_a_float_padding_mask_is_asked_too() -> None:
    """Padding of -inf hides as True does. Kills "only boolean padding is asked"."""
    problem = _problem(9, form="mha", attn="none", padding="float")
    assert "padding invariance" in _asked(problem)


class SubtractsHabitually(Attention):
    """Adds -1e4 to hidden scores, as code for 16 bits does."""

    def mask_scores(self, scores: Array) -> Array:
        """Return scores that are hidden from all that lie above -9,000."""
        return np.asarray(scores + np.where(self.problem.hidden(), -1e4, 0.0))


@pytest.mark.parametrize("size", ["N1-L3-S3-H2-D1", "N5-L11-S11-H2-D72"])
def test_a_habitual_fill_hides_enlarged_keys(size: str) -> None:
    """Scores of some -1,000 are enlarged to no more than that: -1e4 lies far below all of them."""
    problem = make_problem(parse(f"mha-{size}-bias-padding-float64-verynegative-s466"))
    related = RELATIONS["padding invariance"](problem)
    assert related is not None
    first, second = (answer_of(SubtractsHabitually, p).output for p in (problem, related.problem))
    limit = bound(problem, reference_answer(problem)).output
    found = judge_relation(problem, limit, first, second, "padding invariance", related)
    assert Severity.MATCH is found.severity, found


def test_nan_in_one_answer_alone_breaks_a_relation() -> None:
    """Where only one of the two answers is a number, their difference is infinite."""
    problem = _problem(8, form="mha", attn="none", padding="none", out_proj="identity")
    name, related = next(iter(applicable_relations(problem).items()))
    output = answer_of(Attention, problem).output
    second = answer_of(Attention, related.problem).output
    second[0, 0, 0] = np.nan
    limit = bound(problem, reference_answer(problem)).output
    found = judge_relation(problem, limit, output, second, name, related)
    assert Severity.WRONG is found.severity
    assert found.error == np.inf


@pytest.mark.parametrize("count", [2, 4, 5], ids=["two", "several", "all"])
def test_permuted_rows_catch_a_dependence_on_the_row(count: int) -> None:
    """Two, several or all of five query rows permute with the output; row numbers in it show."""
    problem = _problem(9, form="mha", attn="none", padding="none", inputs="cross")
    problem = make_problem(problem.case.replace(queries=5))
    limit = bound(problem, reference_answer(problem)).output
    name = "permutation equivariance"
    related = permute_rows(problem, count)
    assert related is not None
    moved = (problem.query != related.problem.query).any(axis=(0, 2))
    assert count == moved.sum()
    found = {}
    for kind in (Attention, CountsRows):
        first, second = (answer_of(kind, p).output for p in (problem, related.problem))
        found[kind] = judge_relation(problem, limit, first, second, name, related)
    assert [Severity.MATCH, Severity.WRONG] == [each.severity for each in found.values()]
    assert found[CountsRows].detail.startswith(f"with {count} of 5 query rows permuted the output")


def test_seeds_select_every_relation_and_every_count_of_rows() -> None:
    """Of 84 consecutive seeds each relation gets its share, permuted rows two, several and all."""
    case = _problem(9, form="mha", attn="none", padding="none", inputs="cross").case
    case = case.replace(queries=5, batch=2, heads_count=3, out_proj="identity")
    scheduled = [scheduled_relation(make_problem(case.replace(seed=seed))) for seed in range(84)]
    changes = {name: set[str]() for name, _ in filter(None, scheduled)}
    for name, related in filter(None, scheduled):
        changes[name].add(related.change)
    assert {*RELATIONS} - {"causality", "padding invariance"} == {*changes}
    counts = {f"{count} of 5 query rows permuted" for count in (2, 4, 5)}
    assert counts == changes["permutation equivariance"]


def test_an_empty_problem_has_no_relation() -> None:
    """Where there is one row, one sample, one key and one head nothing can be changed."""
    case = _problem(9, form="mha", attn="none", padding="none", inputs="self").case
    case = case.replace(queries=1, keys=1, batch=1, heads_count=1)
    assert scheduled_relation(make_problem(case)) is None


class KeepsOneOfAGroup(Attention):
    """Keeps the keys' and values' weights of the first head of each group, as grouped layers do."""

    def parameter(self, name: str) -> Array | None:
        """Return a weight or bias whose rows are those of the first heads, repeated."""
        found = super().parameter(name)
        if found is None or name not in {"w_k", "w_v", "b_k", "b_v"}:
            return found
        case = self.problem.case
        heads = found.reshape(case.heads_count, case.head_dim, *found.shape[1:])
        size = case.heads_count // case.kv_heads_count
        return np.repeat(heads[::size], size, axis=0).reshape(found.shape)


class MixesGroups(KeepsOneOfAGroup):
    """Adds a part of the sum of all heads to each."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return outputs (N, H, L, D) that hold some of the others."""
        output = super().apply_weights(weights, v)
        return np.asarray(output + 0.1 * output.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", [0, 1, 6, 284])
@pytest.mark.parametrize(
    ("kind", "severity"), [(KeepsOneOfAGroup, Severity.MATCH), (MixesGroups, Severity.WRONG)]
)
def test_heads_of_one_group_are_negated_together(
    kind: type[Attention], severity: Severity, seed: int
) -> None:
    """They have one value: a layer that keeps it once is right; mixed groups are still found."""
    problem = make_problem(parse(f"mha-N1-L2-S2-H8-D1-G4-float64-s{seed}"))
    related = RELATIONS["head independence"](problem)
    assert related is not None
    assert f"heads {seed % 8 // 2 * 2} to {seed % 8 // 2 * 2 + 1} negated" == related.change
    first, second = (answer_of(kind, p).output for p in (problem, related.problem))
    limit = bound(problem, reference_answer(problem)).output
    found = judge_relation(problem, limit, first, second, "head independence", related)
    assert severity is found.severity, found


def test_one_group_of_all_heads_has_no_others() -> None:
    """Nothing would stay the same."""
    problem = make_problem(parse("mha-N1-L2-S2-H4-D2-G1-float64-s3"))
    assert RELATIONS["head independence"](problem) is None


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("cross", True),
        ("distinct-boolmask-padding", True),
        ("cross-causal", False),
        ("cross-lengths", False),
        ("self", False),
    ],
)
@pytest.mark.parametrize("keys", [1, 2, 5])
def test_keys_are_permuted_where_their_order_says_nothing(
    words: str, keys: int, *, asked: bool
) -> None:
    """Kills `and` for each `or`: under a causal rule a right target would break the relation.

    One key has no other order.
    """
    sizes = f"L{keys}-S{keys}" if words == "self" else f"L3-S{keys}-{words}"
    problem = make_problem(parse(f"mha-N2-H2-D3-{sizes}-float64-s1"))
    related = key_value_permutation(problem)
    assert (related is not None) is (asked and keys > 1)
    if related is not None:
        given, moved = (
            sorted(
                (k.tobytes(), v.tobytes()) for k, v in zip(one.key[0], one.value[0], strict=True)
            )
            for one in (problem, related.problem)
        )
        assert given == moved, "keys stay with their values"


def test_a_column_of_the_output_is_a_head_and_a_column_of_it() -> None:
    """Column c is column c % Dv of head c // Dv. Kills other operators."""
    problem = make_problem(parse("qkv-N2-L3-S4-H3-D2-V5-cross-float64-s1"))
    index = (np.intp(1), np.intp(2), np.intp(13))
    assert Place(1, 2, 2, 3) == output_place(problem, index)
