"""Cases: readable ids that replay, pairwise coverage, and the same bits everywhere."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from mha_parity.cases.asking_order import asked_cases
from mha_parity.cases.clashes import CLASHES
from mha_parity.cases.covering import (
    RUNS,
    case_index,
    cover,
    draw_cases,
    drawn_cases,
)
from mha_parity.cases.generate import make_problem, scale_factor
from mha_parity.cases.memory_layout import copy_in_layout
from mha_parity.cases.rng import SPREAD, Stream, largest_number
from mha_parity.core.case import Case, parse
from mha_parity.core.features import AXES, EXTREME_VALUES, PLAIN, Offer, make_offer
from mha_parity.core.problem import Problem
from mha_parity.oracle.reference import reference_answer

BITS = {
    "mha-N2-L5-S7-H3-D4-cross-bias-padding-floatmask3d-float32-peaky-s1234": "9048a569500a5b16",
    "mha-N3-L7-S7-H2-D5-bias-outproj-lengths-float16-offset-s77": "e1b5a726e626714c",
    "qkv-N2-L5-S9-H4-D3-G2-V5-cross-boolmask3d-scaled-float64-huge-s9": "a009ea19d113f7fa",
    "mha-N2-L4-S6-H3-D5-Ek16-Ev19-distinct-separate-bias-biaskv-zeroattn-bfloat16-largehead-s31": (
        "d1e2664d6bf59752"
    ),
}
SMALL = 5000  # elements of an array of (N, H, L, S, D)
DRAWS = {
    "mha, drawn": "0f1706cacaa5639a",
    "qkv, drawn": "0824c861800c3213",
    "all, drawn": "45e14ffa9de8f161",
    "all, asked": "5f52006c6cd0df3e",
}
# A layer has all of torch's biases or lacks some: none offers both.
# No target offers one array as all three beside layers, or functions of Q, K and V.
WHOLE: Offer = {axis: tuple(values) for axis, values in AXES.items()} | {
    "bias": ("no", "yes"),
    "projection": tuple(each for each in AXES["projection"] if each != "one_array"),
}


def arrays(case: Case) -> dict[str, np.ndarray]:
    """Return every array of a case's problem."""
    problem = make_problem(case)
    return {k: v for k, v in vars(problem).items() if isinstance(v, np.ndarray)}


@pytest.mark.parametrize("seed", range(3), ids="seed{}".format)
def test_an_id_names_its_case(seed: int) -> None:
    """The id of a case, parsed, is the case: nothing is lost in it."""
    cases = draw_cases(WHOLE, 400, seed)

    assert cases == [parse(case.id) for case in cases]
    assert len(cases) == len({case.id for case in cases})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mha-N2-L5-S7-H3-s1", "D missing"),
        ("mha-N2-L5-S7-H3-D4-N3-s1", "says batch twice"),
        ("mha-N2-L5-S7-H3-D4-causl-s1", "the word `causl` is unknown"),
        ("N2-L5-S7-H3-D4-s1", "form missing"),
        ("", "the word `` is unknown"),
    ],
    ids=lambda value: str(value)[:24] or "empty",
)
def test_a_broken_id_is_refused(text: str, message: str) -> None:
    """An id with a word missing, doubled or misspelt is refused in one sentence."""
    with pytest.raises(ValueError, match=message):
        parse(text)


# What torch's module alone has, and what its function on Q, K and V alone has.
OF_LAYERS = {
    ("form", "mha"), ("projection", "packed"), ("projection", "separate"),
    ("projection", "by_head"), ("projection", "shared"),
    ("bias", "yes"), ("bias", "in"), ("bias", "out"),
    ("bias_kv", "yes"), ("zero_attn", "yes"), ("out_proj", "general"), ("inputs", "distinct"),
}  # fmt: skip
OF_FUNCTIONS = {
    ("form", "qkv"), ("projection", "none"), ("projection", "one_array"), ("scale", "given"),
    ("kv_heads", "fewer"), ("v_dim", "other"),
}  # fmt: skip
ALIKE = {"normal", "tiny", "peaky", "huge", "ties", "zeros"}  # values of one kind for all three
BY_BIASES = {"very_negative", "offset", "rising", "falling"}  # regimes that biases make_problem
PLAIN_IF_EMPTY = (
    "padding", "attn", "regime", "memory", "masked_rows", "kv_heads", "v_dim"
)  # fmt: skip


def impossible(features: dict[str, str]) -> bool:
    """Return whether torch's definitions exclude that one problem has all these features."""
    items, get = set(features.items()), features.get
    appended = "yes" in {get("bias_kv"), get("zero_attn")}
    unmasked = get("padding") == "none" and get("attn") in {"none", "causal"}
    shared = {"self", "cross"} if get("form") == "mha" else set()  # the values are keys too
    masked_row, empty = get("masked_rows") == "some", get("size") == "empty"
    reasons = (
        items & OF_LAYERS and items & OF_FUNCTIONS,
        get("projection") == "separate" and get("inputs") in {"self", "cross"},  # one width
        get("heads") == "one" and get("kv_heads") == "fewer",  # one head has no groups
        get("heads") == "one" and get("size") == "equal",  # H = D
        masked_row and (appended or unmasked),  # every row sees a key
        get("form") == "mha" and get("bias") in {"no", "out"} and get("regime") in BY_BIASES,
        get("bias") == "out" and get("out_proj") == "identity",
        empty and any(get(a, PLAIN[a]) != PLAIN[a] for a in PLAIN_IF_EMPTY),
        empty and get("layout") == "unbatched",
        get("regime") in EXTREME_VALUES and (masked_row or get("inputs") in shared),
        {("form", "mha"), ("dtype", "bfloat16"), ("regime", "infinite_value")} <= items,
        get("regime") == "largest_value" and get("out_proj") == "general",
        get("regime") == "largest_value" and get("projection") == "shared",
        get("projection") == "one_array" and get("inputs") == "cross",
        get("projection") == "one_array" and "fewer" == get("kv_heads"),
        get("projection") == "one_array" and "other" == get("v_dim"),
        get("projection") == "one_array" and get("regime", "normal") not in ALIKE,
        get("projection") in {"separate", "by_head", "shared"} and get("kv_heads") == "fewer",
    )
    return any(reasons)


@pytest.mark.parametrize("seed", range(3), ids="seed{}".format)
def test_pairs_occur_unless_they_exclude_each_other(seed: int) -> None:
    """The cover holds every pair of offered values but those that no problem can have together.

    A case without a row or a key shows nothing of its other features, and none is held by it.
    """
    cases = draw_cases(WHOLE, 600, seed)
    drawn = [case.features() for case in cases if 0 not in (case.batch, case.queries, case.keys)]
    seen = {pair for f in drawn for pair in itertools.combinations(sorted(f.items()), 2)}
    axes = sorted(a for a in AXES if a not in {"heads", "size", "kv_heads", "v_dim", "gradients"})
    drawn_values = {a: [v for v in WHOLE[a] if v not in EXTREME_VALUES] for a in axes}
    missing = [
        ((a, u), (b, v))
        for a, b in itertools.combinations(axes, 2)
        for u, v in itertools.product(drawn_values[a], drawn_values[b])
        if ((a, u), (b, v)) not in seen and not impossible({a: u, b: v})
    ]

    assert [] == missing


@pytest.mark.parametrize("seed", range(8), ids="seed{}".format)
def test_a_short_run_has_normal_inputs(seed: int) -> None:
    """Cases without rows or keys have no other regime; they do not use it up in 40 cases."""
    cases = [case for case in draw_cases(WHOLE, 40, seed) if case.regime == "normal"]
    assert any(0 not in (case.batch, case.queries, case.keys) for case in cases)


def test_the_cover_is_small() -> None:
    """Pairs are covered in far fewer cases than the default run has."""
    assert len(list(cover(WHOLE, random.Random(0)))) < 150


def test_no_clash_is_drawn() -> None:
    """No drawn case holds features that exclude each other."""
    drawn = [case.features() for case in draw_cases(WHOLE, 400, 5)]

    assert [] == [features for features in drawn if impossible(features)]


def test_every_clash_has_its_reason() -> None:
    """What the drawing excludes is excluded by torch's definitions, and by nothing else."""
    assert [] == [(left, right) for left, right in CLASHES if not impossible(left | right)]


def test_one_array_that_is_all_three_has_values_of_one_kind() -> None:
    """Every such case is possible, each of the kinds is drawn, and its arrays are one object."""
    offered = {"form": ("qkv",), "projection": ("one_array",), "inputs": ("self", "cross")}
    cases = draw_cases(WHOLE | offered, 200, 0)
    assert ALIKE == {case.regime for case in cases}
    assert [] == [case for case in cases if impossible(case.features())]
    for problem in map(make_problem, cases[:20]):
        assert problem.query is problem.key is problem.value


def test_most_sizes_break_symmetry() -> None:
    """In most cases N, L, H and D differ, and S differs from L where inputs allow it."""
    cases = draw_cases(WHOLE, 500, 0)
    distinct = [
        len({case.batch, case.heads_count, case.head_dim}) == 3
        and (case.queries != case.keys or case.inputs == "self")
        for case in cases
    ]

    assert sum(distinct) > len(cases) / 2


def test_only_what_is_offered_is_drawn() -> None:
    """A candidate without masks is never asked for one."""
    narrow = make_offer(inputs=("self", "cross"), dtype="float32")

    assert {"none"} == {case.attn for case in draw_cases(narrow, 100, 0)}
    assert {"float32"} == {case.dtype for case in draw_cases(narrow, 100, 0)}


def test_an_unknown_feature_is_refused() -> None:
    """Offering what no case can have is an error that names what is known."""
    with pytest.raises(ValueError, match="no feature attn=sideways; known here: none, bool2d"):
        make_offer(attn="sideways")


def digest(text: str) -> str:
    """Return a short digest of all arrays of one case."""
    whole = hashlib.sha256()
    for name, array in arrays(parse(text)).items():
        whole.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


@pytest.mark.parametrize(("text", "expected"), BITS.items(), ids=list(BITS))
def test_the_same_id_gives_the_same_bits(text: str, expected: str) -> None:
    """The arrays of an id are fixed to the bit: exact arithmetic on a guaranteed stream."""
    assert expected == digest(text)


def run_digest(offered: Offer, draws: Callable[[Offer, int, int], Iterable[Case]]) -> str:
    """Return a digest of the ids that two seeds draw, and of the arrays of cases that are small."""
    whole = hashlib.sha256()
    for case in (case for seed in (0, 5000) for case in draws(offered, 400, seed)):
        whole.update(case.id.encode())
        elements = case.batch * case.heads_count * case.queries * case.keys * case.head_dim
        if draws is drawn_cases and elements < SMALL:
            whole.update(digest(case.id).encode())
    return whole.hexdigest()[:16]


@pytest.mark.parametrize(("name", "expected"), DRAWS.items(), ids=list(DRAWS))
def test_a_seed_draws_the_same_cases(name: str, expected: str) -> None:
    """A run of a seed is the same run later: its ids, their order, and the bits of its arrays.

    Published figures name seeds. Kills another share, size, order or number in the draw. Who
    changes the draw on purpose enters the new digest, which the failure shows.
    """
    form, order = name.split(", ")
    # Layers whose heads project their own channels offer no other projection.
    offered = WHOLE | {"projection": ("packed", "separate", "none")}
    offered = offered if form == "all" else offered | {"form": (form,)}
    assert expected == run_digest(offered, drawn_cases if order == "drawn" else asked_cases)


def test_another_seed_gives_other_bits() -> None:
    """The digest sees a changed seed."""
    first = next(iter(BITS))

    assert digest(first) != digest(first + "0")


def test_values_are_near_normal() -> None:
    """Drawn values have mean 0 and standard deviation 1 within sampling error."""
    drawn = Stream(3).normal(200_000)

    assert abs(drawn.mean()) < 4 / np.sqrt(drawn.size)
    assert abs(drawn.std() - 1) < 4 / np.sqrt(2 * drawn.size)


def test_a_product_of_drawn_values_is_exact() -> None:
    """Sums of products of drawn integers stay below 2**53, so any BLAS gives the same bits."""
    width = 4096

    assert width * (2 * 0xFFFF) ** 2 < 2**53
    x, w = Stream(1).integers(3, 97), Stream(2).integers(97, 5)
    exact = [
        [sum(int(a) * int(b) for a, b in zip(row, col, strict=True)) for col in w.T] for row in x
    ]

    assert exact == (x @ w).astype(object).astype(int).tolist()


def test_half_of_the_float_masks_hide_by_a_finite_number() -> None:
    """Programs write -1e4 and -1e9 for -inf; one row is lowered as a whole, the rest as without."""
    least = []
    for seed in range(40):
        mask = make_problem(parse(f"qkv-N2-L5-S7-H2-D3-floatmask3d-float64-s{seed}")).attn_mask
        assert mask is not None
        lowered = (mask < -5000).all(axis=-1)
        is_finite = bool(np.isfinite(mask).all()) and bool((mask < -5000).any())
        assert lowered.sum() == is_finite
        least.append(float(mask[~lowered].min()) if is_finite else -np.inf)

    assert {-1e4, -1e9, -np.finfo("float64").max, -np.inf} == set(least)
    assert 10 < sum(each > -np.inf for each in least) < 30


def test_self_attention_is_one_object() -> None:
    """Self-attention passes one array three times, as torch's fast path wants it."""
    problem = make_problem(parse("mha-N2-L5-S5-H3-D4-float32-s1"))

    assert problem.query is problem.key
    assert problem.key is problem.value


@pytest.mark.parametrize("regime", ["huge", "very_negative", "peaky"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_regimes_reach_where_they_should(regime: str, dtype: str) -> None:
    """Huge logits pass the range of exp, low ones sink below it, peaked ones have sd near 10."""
    case = Case(seed=7, batch=2, queries=13, keys=11, heads_count=3, head_dim=5, inputs="cross",
                bias="yes", dtype=dtype, regime=regime)  # fmt: skip
    p = make_problem(case)
    assert p.w_q is not None
    assert p.w_k is not None
    q = (p.query.astype(float) @ p.w_q.T + p.b_q).reshape(2, 13, 3, 5)
    k = (p.key.astype(float) @ p.w_k.T + p.b_k).reshape(2, 11, 3, 5)
    logits = np.einsum("nlhd,nshd->nhls", q, k) * p.scale
    limit = {"float32": 88.0, "float64": 709.0}[dtype]

    assert {"huge": logits.max() > limit, "very_negative": logits.max() < -limit / 2,
            "peaky": 5 < logits.std() < 25}[regime]  # fmt: skip


@pytest.mark.parametrize("form", ["mha", "qkv"])
@pytest.mark.parametrize(("regime", "sign"), [("rising", 1), ("falling", -1)])
def test_logits_rise_or_fall_along_the_keys(regime: str, sign: int, form: str) -> None:
    """The last third of the keys has larger logits than the first third, or smaller ones."""
    case = Case(seed=7, batch=2, queries=13, keys=12, heads_count=3, head_dim=5, inputs="cross",
                bias="yes" if form == "mha" else "no", form=form, regime=regime,
                projection="packed" if form == "mha" else "none")  # fmt: skip
    logits = reference_answer(make_problem(case)).logits

    assert 4 < sign * (logits[..., 8:].mean() - logits[..., :4].mean()) < 24


def test_zeros_and_subnormal_numbers_are_drawn() -> None:
    """Rows of 0 and -0.0 are there, and rows below the smallest normal number."""
    zeros = make_problem(parse("mha-N2-L6-S7-H2-D3-cross-float32-zeros-s1")).key
    small = np.abs(make_problem(parse("mha-N2-L6-S7-H2-D3-cross-float32-subnormal-s1")).key)

    assert (zeros == 0).all(axis=-1).any()
    assert np.signbit(zeros[zeros == 0]).any()
    assert not np.signbit(zeros[zeros == 0]).all()
    assert ((small > 0) & (small < np.finfo(np.float32).smallest_normal)).any()


@pytest.mark.parametrize("memory", AXES["memory"])
def test_memory_changes_no_number(memory: str) -> None:
    """However an array lies in memory, it holds the same numbers, and is a copy."""
    array = Stream(1).normal(3, 5, 7)
    copy = copy_in_layout(array, memory)

    np.testing.assert_array_equal(array, copy)
    assert not np.shares_memory(array, copy)
    assert copy.flags.writeable == (memory != "readonly")
    assert copy.flags.c_contiguous == (memory in {"c", "readonly"})


@pytest.mark.parametrize("seed", range(4), ids="seed{}".format)
def test_rows_are_masked_only_on_purpose(seed: int) -> None:
    """A query without a visible key occurs where the case says so, and nowhere else.

    Its keys are hidden by -inf, or all of them alike by the most negative number.
    """
    for case in draw_cases(WHOLE, 200, seed):
        problem = make_problem(case)
        masked = problem.masked_rows().any() or _has_lowest_row(problem)
        if 0 not in (case.batch, case.queries, case.keys):
            assert masked == (case.masked_rows == "some"), case.id


def _has_lowest_row(problem: Problem) -> bool:
    masks = [m for m in (problem.key_padding_mask, problem.attn_mask) if m is not None]
    lowest = -largest_number(problem.case.dtype)
    return any((mask.astype(float) == lowest).all(axis=-1).any() for mask in masks)


def test_plain_values_are_values() -> None:
    """The plain value of each axis is one of its values."""
    assert set(PLAIN) == set(AXES)
    assert all(PLAIN[axis] in AXES[axis] for axis in AXES)


def test_spread_is_the_standard_deviation() -> None:
    """SPREAD is the standard deviation of four 16-bit uniforms summed."""
    squares = sum(i * i for i in range(65536)) / 65536
    mean = sum(range(65536)) / 65536

    assert SPREAD**2 == pytest.approx(4 * (squares - mean**2), rel=1e-12)


@pytest.mark.parametrize("seed", [0, 1, RUNS - 1, RUNS, 2**31])
def test_a_case_knows_its_place_in_a_run_of_any_seed(seed: int) -> None:
    """Further calls go by the place. Kills a seed that wraps around 32 bits within a run."""
    drawn = draw_cases(WHOLE, 12, seed)
    assert list(range(12)) == [case_index(case) for case in drawn]
    assert all(0 <= case.seed < 2**32 for case in drawn)


@pytest.mark.parametrize("attn", ["causal", "bool2d", "none"])
def test_a_causal_case_has_a_scale_above_0(attn: str) -> None:
    """The flash path of torch multiplies -inf of hidden keys by it: 0 gives NaN, -1 gives +inf."""
    case = parse("qkv-N1-L5-S5-H2-D3-float64-s0").replace(scale="given", attn=attn)
    found = {scale_factor(case.replace(seed=seed)) or 0.0 for seed in range(64)}
    assert (min(found) > 0) == (attn == "causal")
    assert (0 in found) == (attn != "causal")
