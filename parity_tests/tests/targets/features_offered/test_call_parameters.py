"""Every parameter of a target is accounted for: what no case passed is named."""

from __future__ import annotations

from inspect import Parameter as Kind
from typing import Any

import numpy as np
import pytest

from mha_parity.core.options import Options
from mha_parity.core.parameters import Parameter, Role, Status, with_status
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.interpretations.roles import function_roles, may_be_keys
from mha_parity.targets.static.call_parameters import role
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS

ROLES = {
    Role.MASK: "mask attn_mask key_padding_mask src_mask causal_mask pad memory_mask",
    Role.LENGTHS: "valid_lens lengths key_lengths src_len xlen seqlens_k cu_seqlens_q",
    Role.CAUSAL: "causal is_causal use_causal look_ahead",
    Role.SCORE_BIAS: "attn_bias position_bias relative_position_bias alibi bias biases rel_pos",
    Role.CACHE: "kv_cache past_key_value attention_state use_cache layer_past incremental_state",
    Role.RETURN: "return_weights need_weights output_attentions average_attn_weights",
    Role.DROPOUT: "dropout dropout_p attn_drop p",
    Role.HEADS: "num_heads n_heads h nhead heads head_mask",
    Role.SIZE: "d_model embed_dim head_dim max_len k_dim max_seqlen_q max_length output_dim",
    Role.WEIGHTS: "w_q Wk W_o wv",
    Role.PROJECTION_BIAS: "b_q bo",
    Role.INPUT: "x q query keys value context memory hidden_states x_kv encoder_state hidden_state",
    Role.POSITIONS: "freqs_cis start_pos rotary_emb cos cos_sin",
}


@pytest.mark.parametrize(("expected", "names"), ROLES.items(), ids=str)
def test_names_tell_roles(expected: Role, names: str) -> None:
    """The names people give to parameters of a call."""
    assert dict.fromkeys(names.split(), expected) == {n: role(n, "call") for n in names.split()}


def test_a_default_tells_a_switch_from_a_matrix() -> None:
    """In a constructor a mask that is False is a switch, and a bias that is True a projection's."""
    assert Role.INPUT == role("mem", "call")
    assert Role.CACHE == role("mem", "call", None)
    assert Role.OTHER == role("further", "call", [1.0])  # which has no hash
    assert Role.CAUSAL == role("mask", "constructor", default=False)
    assert Role.CAUSAL == role("mask", "constructor", None)
    assert Role.CAUSAL == role("use_causal_mask", "call", default=False)
    assert Role.OTHER == role("mask_kv_only", "call", default=False)
    assert Role.MASK == role("key_padding_mask", "call", default=None)
    assert Role.PROJECTION_BIAS == role("attention_bias", "constructor", default=True)
    assert Role.PROJECTION_BIAS == role("bk", "call", default=None)
    assert Role.PROJECTION_BIAS == role("bk", "call", 0)
    assert Role.SIZE == role("bk", "call", 64)


def test_the_best_of_all_answers_counts() -> None:
    """One case with another value than the default is enough; None is no value."""
    listed = [Parameter(name=name, of="call", role=Role.MASK) for name in "abcd"]
    answers = [{"call.a": False, "call.b": False}, {"call.a": True}, {"call.a": False}]
    found = with_status(listed, answers, excluded=("a", "d"))
    expected = [Status.TRIED, Status.DEFAULT_ONLY, Status.NOT_TRIED, Status.EXCLUDED]
    assert expected == [each.status for each in found]


def attend(Q: Any, K: Any, V: Any, stage: int = 64, score_bias: Any = None) -> Any:
    """Attention of one head, with what no convention passes."""
    del stage
    scores = np.asarray(Q @ np.swapaxes(K, -1, -2)) / np.sqrt(Q.shape[-1]).astype(Q.dtype)
    if score_bias is not None:
        scores = scores + score_bias["table"][: len(scores)]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ V


def judged(**options: Any) -> Verdict:
    """Return the verdict on it."""
    asked = Options(cases=30, dtypes=("float64",), convention="qkv", **options)
    return check(bind_in_process(attend, asked), asked)


def test_no_green_while_what_hides_or_shifts_scores_is_untried() -> None:
    """The verdict is inconclusive, and its sentence names the parameter and the way out."""
    verdict = judged()
    assert Outcome.INCONCLUSIVE == verdict.outcome
    said = "no case passed `score_bias` (score bias): no call was answered with `score_bias` as "
    assert said in verdict.sentence
    assert "--without score_bias; parameters not tried: stage." in verdict.sentence


def test_what_is_left_out_knowingly_is_said() -> None:
    """It passes, and says without what."""
    verdict = judged(without=("score_bias",))
    assert Outcome.PASS == verdict.outcome
    assert "; parameters not tried: stage; parameters excluded: score_bias." in verdict.sentence


def test_constructor_and_call_are_listed_separately() -> None:
    """A layer's parameters of both, without self."""
    from mha_numpy import MultiheadAttention

    listed = bind(MultiheadAttention).parameters
    assert "constructor.num_heads" in {each.key for each in listed}
    assert {"call.attn_mask", "call.is_causal"} <= {each.key for each in listed}
    assert "self" not in {each.name for each in listed}


def test_what_is_only_filled_up_is_not_tried() -> None:
    """A required parameter that gets None, or a mask that hides nothing, is in the verdict."""
    target = load.load(f"{SUBJECTS}/given_weights.py:numbered")
    options = Options(cases=24, diagnose=False, dtypes=("float64",))
    verdict = check(bind_in_process(target, options), options)
    assert 0 == verdict.failed, verdict
    statuses = {each.name: each.status for each in verdict.parameters}
    assert (Status.TRIED, Status.NOT_TRIED) == (statuses["q"], statuses["layer_number"])
    assert "parameters not tried: layer_number" in verdict.sentence


@pytest.mark.parametrize(("mode", "is_named"), [("inference", False), ("scale", True)])
def test_a_key_beside_a_mode_is_no_input_by_its_name(mode: str, is_named: bool) -> None:
    """It is one of random numbers, as calls may show: rows passed for it would be read by none."""
    named = [Kind("x", Kind.POSITIONAL_OR_KEYWORD)]
    named += [Kind(name, Kind.KEYWORD_ONLY, default=None) for name in ("key", mode)]
    assert ("key", is_named) in [*may_be_keys(named)]


def test_a_number_of_heads_may_have_a_default_without_a_hash() -> None:
    """The roles of a function are found by names."""
    rows = [Kind(name, Kind.POSITIONAL_OR_KEYWORD) for name in ("q", "k", "v")]
    unhashable: list[int] = []
    heads = Kind("num_kv_heads", Kind.KEYWORD_ONLY, default=unhashable)
    assert next(function_roles([*rows, heads])).inputs


@pytest.mark.parametrize("name", ["keep", "visible", "allowed", "blocked"])
def test_a_word_for_what_is_seen_is_a_mask_where_it_is_none_by_default(name: str) -> None:
    """Kills a mask that is passed in no case since its name says none; a number is a rate."""
    assert Role.MASK is role(name, "call", None)
    assert Role.MASK is not role(name, "call", 0.9)
    assert Role.MASK is not role(name, "constructor", None)
