"""Keys and values that may be left out are given, and grouped queries are asked with fewer keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS

FILE = SUBJECTS / "optional_inputs.py"
RUN = Options(cases=30, dtypes=("float64", "float32"), shrink=False, diagnose=False, draw=False)
# Name of the right one, its wrong twin, the features that distinguish them.
PAIRS = [
    ("OptionalValue", "OptionalValueIgnored", {("inputs", "distinct")}),
    ("Optional", "OptionalIgnored", {("inputs", "distinct")}),
    ("OptionalContext", "OptionalContextIgnored", {("inputs", "cross")}),
    ("OptionalKey", "OptionalKeyIgnored", {("inputs", "cross")}),
    ("SwitchedContext", "SwitchedContextIgnored", {("inputs", "cross")}),
    ("Grouped", "GroupedTiled", {("kv_heads", "fewer")}),
    ("GroupedByName", "GroupedByNameTiled", {("kv_heads", "fewer")}),
    ("GroupedMatrices", "GroupedMatricesTiled", {("kv_heads", "fewer")}),
]


@pytest.mark.repeats(2)
@pytest.mark.parametrize(("right", "wrong", "features"), PAIRS)
def test_the_wrong_twin_fails_by_its_feature_alone(
    right: str, wrong: str, features: set[tuple[str, str]]
) -> None:
    """What the call or the constructor may leave out is passed: the right one passes all cases."""
    assert 0 == check(bind(load.load(f"{FILE}:{right}")), RUN).failed
    verdict = check(bind(load.load(f"{FILE}:{wrong}")), RUN)
    rows = {(row.axis, row.value): row for row in verdict.features}
    assert {"fail"} == {rows[feature].status for feature in features}
    plain = [("inputs", "self"), ("kv_heads", "equal")]
    assert any("pass" == rows[feature].status for feature in plain)


def test_grouped_heads_of_a_layer_share_weights() -> None:
    """Query heads h of one group have the same rows of W_k, W_v and their biases."""
    case = Case(seed=3, batch=2, queries=5, keys=5, heads_count=4, head_dim=3, kv_heads_count=2)
    for regime in ("normal", "large_head", "very_negative"):
        problem = make_problem(case.replace(bias="yes", regime=regime))
        for array in (problem.w_k, problem.w_v, problem.b_k, problem.b_v):
            assert array is not None
            heads = array.reshape(2, 2, -1)
            np.testing.assert_array_equal(heads[:, 0], heads[:, 1])
        assert 4 == problem.num_kv_heads


def test_a_layer_with_a_context_is_not_green_where_s_unlike_l_raises() -> None:
    """It is inconclusive, names the input and what it raised, and passes for S = L alone."""
    bound = bind(load.load(f"{FILE}:ContextOfEqualLengths"))
    verdict = check(bound, RUN)
    assert (Outcome.INCONCLUSIVE, 0) == (verdict.outcome, verdict.failed)
    said = "`context` is an input of its own, and every call with S unlike L raised RuntimeError"
    assert said in verdict.sentence
    assert "--features inputs=self" in verdict.sentence
    alone = check(bound, replace(RUN, features=(("inputs", "self"),)))
    assert alone.holds, alone


@pytest.mark.parametrize("name", ["Grouped", "OptionalContext"])
def test_self_attention_and_keys_that_are_served_stay_green(name: str) -> None:
    """A layer of one input promises no other keys, and one that serves them keeps its promise."""
    verdict = check(bind(load.load(f"{FILE}:{name}")), RUN)
    assert verdict.holds, verdict


def test_a_key_that_other_lengths_raise_is_left_out() -> None:
    """Its name alone makes no keys of it: the layer is judged without, and the verdict names it."""
    verdict = check(bind(load.load(f"{FILE}:KeyOfEqualLength")), RUN)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed)
    assert "parameters not tried: key" in verdict.sentence


def test_a_value_with_which_every_call_raises_is_left_out() -> None:
    """It means something else: keys are judged, and its own words say why values are not."""
    bound = bind(load.load(f"{FILE}:OptionalHeads"))
    assert ("self", "cross") == bound.offer["inputs"]
    assert "value has to be (N, H, S, D)" in bound.reasons["inputs", "distinct"]
    assert Outcome.PASS == check(bound, RUN).outcome


def test_a_switch_is_on_where_keys_are_an_input_of_their_own() -> None:
    """`cross_attn=False` leaves the context unread: it is asked as keys with True, and said."""
    verdict = check(bind(load.load(f"{FILE}:SwitchedContext")), RUN)
    (switch,) = (each for each in verdict.parameters if "cross_attn" == each.name)
    assert (Status.TRIED, "True where keys are another input than the queries") == (
        switch.status,
        switch.meaning,
    )


def test_keys_and_values_that_were_kept_are_inputs_beside_a_query_alone() -> None:
    """A function that decodes is refused where they are taken for a cache."""
    verdict = check(bind(load.load(f"{FILE}:decode")), RUN)
    assert Outcome.PASS is verdict.outcome, verdict
    assert "`q` the query, `k_cache` the key, `v_cache` the value" in " ".join(verdict.notes)
    assert Outcome.FAIL is check(bind(load.load(f"{FILE}:decode_one_more")), RUN).outcome


def test_self_attention_is_asked_without_the_other_input_as_users_call_it() -> None:
    """Kills a pass of a layer whose weights lie otherwise where an encoder is given.

    The other one reads them alike with and without.
    """
    verdict = check(bind(load.load(f"{FILE}:TwoOrders")), RUN)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert any("without `encoder_hidden_states` it answers" in each for each in verdict.notes)
    right = check(bind(load.load(f"{FILE}:TwoPaths")), RUN)
    assert Outcome.PASS is right.outcome, right
    assert not any("it answers otherwise" in each for each in right.notes)
