"""Cases: readable ids that replay, pairwise coverage, and the same bits everywhere."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from mha_parity.cases.case_order import asked_cases
from mha_parity.cases.clashes import CLASHES
from mha_parity.cases.covering import (
    RUNS,
    case_index,
    cover,
    draw_cases,
    drawn_cases,
)
from mha_parity.cases.generate import make_problem
from mha_parity.cases.rng import largest_number
from mha_parity.core.case import Case, parse
from mha_parity.core.features import AXES, EXTREME_VALUES, PLAIN, Offer, make_offer
from mha_parity.core.problem import Problem

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
    "mha, drawn": "38b743a2988af87a",
    "qkv, drawn": "9961b5f9bfd00edf",
    "all, drawn": "c24fb24e86d72d7e",
    "all, asked": "aa5bd76b719a01dd",
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


@pytest.mark.parametrize("seed", [0, 1, RUNS - 1, RUNS, 2**31])
def test_a_case_knows_its_place_in_a_run_of_any_seed(seed: int) -> None:
    """Further calls go by the place. Kills a seed that wraps around 32 bits within a run."""
    drawn = draw_cases(WHOLE, 12, seed)
    assert list(range(12)) == [case_index(case) for case in drawn]
    assert all(0 <= case.seed < 2**32 for case in drawn)
