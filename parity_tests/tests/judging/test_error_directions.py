"""Directions of error and the statistic over them are what their definitions say, computed anew."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import Array, merge_heads
from mha_parity.core.case import parse
from mha_parity.core.problem import Problem
from mha_parity.judging import error_directions, systematic_error
from mha_parity.judging.error_directions import (
    DIRECTIONS,
    DISTANCES,
    FRACTIONS,
    project_error,
)
from mha_parity.judging.systematic_error import (
    LEAST_EFFECTS,
    NO_DIRECTION,
    SPREAD_RATE,
    SystematicErrorTest,
    case_sums,
    finding_sort_key,
    larger_statistic,
    mean_shares,
)
from mha_parity.oracle.reference import Reference, reference_answer

STEP = 1e-30  # of a complex derivative: no difference is formed, so that none is rounded


def outputs(problem: Problem, reference: Reference, name: str) -> Array:
    """Return the derivative of the output for one mistake, (N, G, L, W), by its definition."""
    q, k, v, known = (
        each.astype(np.float64)
        for each in (reference.q, reference.k, reference.v, reference.logits)
    )
    additive = problem.additive()
    scores = np.where(np.isfinite(known), known - additive, 0)
    del q, k
    factor = 1 + 1j * STEP
    logits = np.where(
        np.isfinite(known), (scores * factor if name == "scale" else scores) + additive, -np.inf
    )
    real = np.where(np.isfinite(known), known, -np.inf)
    highest = real.max(axis=-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0)
    powers = np.where(np.isfinite(known), np.exp(logits - highest), 0)
    if name not in {"gain", "scale"}:
        powers = np.where(in_bin(name, highest - real), powers * factor, powers)
    sums = powers.sum(axis=-1, keepdims=True)
    heads = powers / np.where(sums == 0, 1, sums) @ v
    output = merge_heads(heads * factor if name == "gain" else heads)
    groups = problem.num_heads
    if problem.w_out is not None:
        output, groups = output @ problem.w_out.astype(np.float64).T, 1
    moved = output.imag / STEP
    return np.asarray(moved.reshape(*moved.shape[:2], groups, -1).swapaxes(1, 2))


def in_bin(name: str, distance: Array) -> Array:
    """Return which arguments of exp, distance below the largest, are in a named bin."""
    inside = np.isfinite(distance) & (distance > 0)
    number = DIRECTIONS.index(name) - 2
    if number < FRACTIONS:
        exponent = -np.where(inside, distance, 0) * math.log2(math.e)
        return np.asarray(inside & (np.floor((exponent % 1.0) * FRACTIONS) == number))
    edges = (0.0, *DISTANCES, math.inf)
    low, high = edges[number - FRACTIONS : number - FRACTIONS + 2]
    return np.asarray(inside & (distance > low) & (distance <= high))


def without(direction: Array, other: Array) -> Array:
    """Return a direction less its part along another."""
    length = other @ other
    left = direction - (direction @ other) / length * other if length else direction
    return left if left @ left > 1e-6 * (direction @ direction) else np.zeros_like(left)


CASES = (
    "qkv-N2-L5-S6-H2-D4-cross-float64-s1",
    "mha-N2-L5-S6-H2-D4-cross-bias-biaskv-zeroattn-outproj-float64-s2",
    "mha-N2-L5-S6-H2-D4-cross-outproj-padding-floatmask-maskedrows-float64-s3",
    "qkv-N2-L5-S6-H2-D4-cross-floatpadding-floatmask3d-float64-s4",
    "qkv-N2-L6-S6-H4-D2-G2-V3-causal-scaled-float64-peaky-s5",
    "qkv-N1-L3-S1-H2-D4-cross-float64-s6",
    "qkv-N1-L1-S6-H2-D1-cross-float64-s7",
)


@pytest.mark.parametrize("words", CASES)
def test_an_error_is_projected_on_derivatives_made_orthogonal(words: str) -> None:
    """Each direction is the derivative of the output, and gain and scale are taken out of the rest.

    Kills changes of the bins, of the masks' part in the scores, and of the order of projections.
    """
    problem = make_problem(parse(words))
    reference = reference_answer(problem)
    found = {name: outputs(problem, reference, name) for name in DIRECTIONS}
    rng = np.random.Generator(np.random.Philox(1))
    error = np.asarray(rng.standard_normal(found["gain"].shape))
    pushed, norms = project_error(problem, reference, error)
    assert (found["gain"].shape[1], len(DIRECTIONS)) == pushed.shape == norms.shape
    for group, (number, name) in itertools.product(range(len(pushed)), enumerate(DIRECTIONS)):
        rows = {each: array[:, group].ravel() for each, array in found.items()}
        pure = without(rows["scale"], rows["gain"])
        if name == "gain":
            direction = without(rows["gain"], rows["scale"])
        else:
            direction = (
                pure if name == "scale" else without(without(rows[name], rows["gain"]), pure)
            )
        assert direction.any() or not norms[group, number], "what is left is rounding"
        assert norms[group, number] == pytest.approx(direction @ direction, rel=1e-6), name
        assert pushed[group, number] == pytest.approx(
            direction @ error[:, group].ravel(), rel=1e-6, abs=1e-12
        ), name


def test_each_argument_of_exp_is_in_one_bin_of_either_kind() -> None:
    """Also one just below 0, whose fraction is rounded to 1: kills the changes of the last bin."""
    problem = make_problem(parse(CASES[0]))
    reference = reference_answer(problem)
    logits = reference.logits.copy()
    logits[0, 0, 0, :2] = [0.0, -1e-17]
    logits[0, 0, 0, 2:] = -1.0
    moves = error_directions.weight_moves(problem, logits, reference.weights.astype(np.float64))
    largest = logits == logits.max(axis=-1, keepdims=True)
    for bins in (moves[:, :, 1 : 1 + FRACTIONS], moves[:, :, 1 + FRACTIONS :]):
        assert np.array_equal(bins.sum(axis=2), ~largest)
    assert 1 == moves[0, 0, FRACTIONS, 0, 1], "the last bin of fractions"


def test_the_bins_are_named_by_their_edges() -> None:
    """Kills other edges in the names that reports show."""
    assert error_directions.FRACTION_BINS[3].endswith("a fraction between 0.375 and 0.5")
    assert "of arguments between -0.25 and -0" == error_directions.DISTANCE_BINS[0]
    assert "of arguments between -inf and -9" == error_directions.DISTANCE_BINS[-1]


def test_large_problems_have_gain_and_scale_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit the bins are there, one weight beyond it they are not, and gain is the same."""
    problem = make_problem(parse(CASES[0]))
    reference = reference_answer(problem)
    error = np.ones((2, 2, 5, 4))
    monkeypatch.setattr(error_directions, "MAX_WEIGHTS", reference.weights.size)
    whole = project_error(problem, reference, error)
    monkeypatch.setattr(error_directions, "MAX_WEIGHTS", reference.weights.size - 1)
    for all_of_them, two in zip(whole, project_error(problem, reference, error), strict=True):
        assert (2, 2) == two.shape
        assert all_of_them[:, :2] == pytest.approx(two)


def test_the_statistic_is_the_one_that_is_documented() -> None:
    """T = sum w (beta - d) / sqrt(sum w^2 (beta - d)^2), and likewise with -(beta + d).

    Kills changes of each term of the sums; a case without a direction counts in none.
    """
    rng = np.random.Generator(np.random.Philox(2))
    shape = (30, len(DIRECTIONS))
    beta, norms = 6 * rng.standard_normal(shape), rng.random(shape)
    norms[3] = 0
    energy = 100 + rng.random(shape)
    rows = zip(beta, norms, energy, strict=True)
    sums = np.sum([case_sums(b * n, n, e) for b, n, e in rows], axis=0)
    weight = np.sqrt(norms)
    above, below = (
        (weight * (sign * beta - LEAST_EFFECTS)).sum(axis=0)
        / np.sqrt((norms * (sign * beta - LEAST_EFFECTS) ** 2).sum(axis=0))
        for sign in (1, -1)
    )
    assert larger_statistic(sums) == pytest.approx(np.maximum(above, below))
    assert sums[0] == pytest.approx(29)
    assert sums[2] / sums[1] == pytest.approx((weight * beta).sum(axis=0) / weight.sum(axis=0))
    shares = (beta**2 * norms / energy).sum(axis=0) / 29
    found = mean_shares(sums)
    assert [found["gain"], found["scale"]] == pytest.approx(shares[:2])
    ends = (2, 2 + FRACTIONS, len(DIRECTIONS))
    for first, last in itertools.pairwise(ends):
        for name in DIRECTIONS[first:last]:
            assert found[name] == pytest.approx(shares[first:last].sum()), name
    assert not case_sums(np.ones(2), np.zeros(2), np.zeros(2)).any()
    assert not case_sums(np.ones(2), np.ones(2), np.ones(2))[:, 2:].any(), "no bins, no terms"


@pytest.mark.parametrize(
    ("cases", "far"), [(100, 5), (100, 6), (100, 40), (100, 50), (200, 200), (8, 8)]
)
def test_a_spread_is_found_by_chernoffs_bound(cases: int, far: int) -> None:
    """The count's relative entropy to the rate decides, and is reported with its share."""
    test = SystematicErrorTest()
    case = parse(CASES[0])
    test.spread_counts["float64"] += (cases, far)
    test.last["float64"] = case
    share = far / cases
    entropy = share * math.log(share / SPREAD_RATE)
    if share < 1:
        entropy += (1 - share) * math.log((1 - share) / (1 - SPREAD_RATE))
    statistic = math.sqrt(2 * cases * entropy)
    if share <= SPREAD_RATE or statistic <= systematic_error.THRESHOLD:
        assert [] == test.findings()
        assert [] == test.check_results()
        return
    (finding,) = test.findings()
    assert ("float64", "spread", "all", cases, NO_DIRECTION, case) == (
        finding.dtype, finding.direction, finding.group, finding.cases, finding.share, finding.case,
    )  # fmt: skip
    assert (share, statistic) == pytest.approx((finding.effect, finding.statistic))
    (result,) = test.check_results()
    assert SPREAD_RATE == result.allowed
    assert f"over {cases} cases in float64, {share:.0%} have errors" in result.detail


def test_a_run_in_parts_gathers_what_it_gathers_whole() -> None:
    """Sums and counts add, the later case is the last, and findings name where they stand."""
    first, second = SystematicErrorTest(), SystematicErrorTest()
    early, late = (parse(words) for words in CASES[:2])
    norms = np.ones(len(DIRECTIONS))
    for test, case in ((first, early), (second, late)):
        test.last["float64"] = case
        test.spread_counts["float64"] += (40, 0)
        test.sums["float64", "head 1"] += 40 * case_sums(9 * norms, norms, 81 * norms)
    first.merge(second)
    assert [80, 0] == first.spread_counts["float64"].tolist()
    findings = first.findings()
    assert [("gain", 80), ("scale", 80)] == [(each.direction, each.cases) for each in findings]
    assert all(late == each.case and each.share == 1 for each in findings)
    assert all(each.effect == pytest.approx(9) for each in findings)
    (result,) = first.check_results()
    assert 9 == pytest.approx(result.error)
    assert "over 80 cases in float64 (head 1)" in result.detail
    assert "too large" in result.detail
    broad, narrow = (
        max(findings, key=finding_sort_key),
        replace(findings[0], group="attn=none", share=2.0),
    )
    assert finding_sort_key(narrow) < finding_sort_key(broad), "a head says more than a feature"
