"""Weights in a dictionary or tuple are given under the names by which a function reads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.convention_by_signature import recognise
from mha_parity.targets.layers.layer_arrays import path_expression, set_array
from mha_parity.targets.static.names_in_code import keys_read
from subject_checks import SUBJECTS, checks_of

FILE = "weight_dictionaries.py"


judged = checks_of(FILE, cases=40, dtypes=("float64",))


@pytest.mark.repeats(14)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("flat", "wq, wk, wv, wo applied as X @ W"),
        ("biased", "W_q, W_k, W_v, W_o applied as X @ W"),
        ("configured", "W_q, W_k, W_v, W_o applied as X @ W"),
        ("nested", "qkv, out applied as X @ W"),
        ("nested_unsaid", "qkv, proj applied as X @ W"),
        ("within_another", "qkv, out applied as X @ W"),
        ("without_output", "wq, wk, wv applied as X @ W.T"),
        ("with_heads", "Wq, Wk, Wv, Wo applied as X @ W"),
        ("by_letter", "q, k, v, o applied as X @ W"),
        ("in_a_tuple", "w_k, w_q, w_v, w_o applied as X @ W"),
        ("heads_behind_inputs", "wq, wk, wv, wo"),
        ("of_a_state", "Wq, Wk, Wv, Wo as Linears"),
        ("of_record", "wq, wk, wv, wo"),
        ("of_dataclass", "w_q, w_k, w_v, w_o applied as X @ W"),
        ("of_torchs_state", "in_proj_weight, out_proj applied as X @ W.T; (L, N, E)"),
    ],
)
def test_right_ones_pass(name: str, said: str) -> None:
    """Flat, nested or in a tuple, also with the number of heads; what is read is said."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any(said in note for note in verdict.notes)


@pytest.mark.parametrize(
    "name",
    [
        "crossed",
        "doubled",
        "doubled_heads",
        "in_a_tuple_crossed",
        "by_letter_crossed",
        "heads_behind_inputs_crossed",
        "of_a_state_crossed",
        "of_record_crossed",
        "of_torchs_state_crossed",
        "configured_by_width",
        "within_another_crossed",
    ],
)
def test_wrong_ones_fail(name: str) -> None:
    """A key's matrix is never given as the value's, whatever would fit."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


def test_weights_and_biases_may_have_the_heads_first() -> None:
    """Kills a flat bias beside weights (H, E, D), by which such a dictionary was refused."""
    heads_first = checks_of("heads_first_weights.py", cases=40, dtypes=("float64",))
    assert Outcome.PASS == heads_first("attention").outcome
    assert Outcome.FAIL == heads_first("crossed", fail_fast=True).outcome


def test_names_that_a_function_of_another_file_reads_are_known() -> None:
    """Kills keys of the same module alone, by which what a helper reads was no name."""
    elsewhere = checks_of("heads_first_weights.py", cases=40, dtypes=("float64",))
    assert Outcome.PASS == elsewhere("read_by_another_file").outcome
    assert Outcome.FAIL == elsewhere("read_by_another_file_crossed", fail_fast=True).outcome


def test_masks_of_jax_s_names_do_not_make_it_jax_s_attention() -> None:
    """Kills a convention by `mask` and `bias` alone, in which no call of such a function answered.

    By the names of both a function of a dictionary and two inputs was taken for one of q, k and v.
    """
    two_inputs = checks_of("heads_first_weights.py", cases=60, dtypes=("float64",))
    right = two_inputs("of_two_inputs")
    assert Outcome.PASS == right.outcome, right
    assert any("`bias`: floats are added" in note for note in right.notes)
    assert Outcome.FAIL == two_inputs("of_two_inputs_scaled").outcome


@pytest.mark.parametrize("names", ["query, key, value", "head_q, head_k, head_v", "params, x, y"])
def test_q_k_and_v_are_known_by_their_first_or_last_words(names: str) -> None:
    """JAX's attention takes three inputs of these names, whatever stands before or behind them."""
    scope: dict[str, Any] = {}
    exec(f"def f({names}, bias=None, mask=None): ...", scope)  # noqa: S102  (the names alone differ)
    assert ("params" not in names) == (recognise(scope["f"], ()) == "jax-attention")


@pytest.mark.parametrize(
    ("order", "convention"),
    [("(batch, length, heads, dim)", True), ("(batch, heads, length, dim)", False)],
)
def test_heads_before_rows_are_not_jaxs(order: str, *, convention: bool) -> None:
    """Kills the convention of JAX by names alone: another order of axes was called over heads."""

    def attention(q: Any, k: Any, v: Any, mask: Any = None, bias: Any = None) -> None: ...

    attention.__doc__ = f"q, k, v: {order}."
    try:
        found = recognise(attention, ())
    except TargetError:
        found = "other"
    assert convention == (found == "jax-attention")


def test_keys_of_what_is_called_are_read() -> None:
    """The names stand in tuples, and in functions of the same file; or are put together there."""
    whole = {*keys_read(load.load(f"{SUBJECTS}/{FILE}:of_a_state"))}
    assert {"Wq.weight", "Wq.bias", "Wo.bias"} <= whole
    assert {"qkv", "out", "kernel", "bias"} <= {*keys_read(load.load(f"{SUBJECTS}/{FILE}:nested"))}
    assert {"wq", "wk", "wv", "wo"} <= {*keys_read(load.load(f"{SUBJECTS}/{FILE}:flat"))}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Kept", "p.wq, p.wk, p.wv, p.wo applied as X @ W"),
        ("KeptWithoutBiases", "weights.qkv, weights.out applied as X @ W"),
    ],
)
def test_constructors_get_what_calls_read(name: str, said: str) -> None:
    """Names that are put together, optional biases, packed ones; what a call keeps is no weight."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any(said in note for note in verdict.notes), verdict.notes
    passed = {each.value for each in verdict.features if each.axis == "bias" and each.cases}
    assert {"no", "yes"} == passed


@pytest.mark.parametrize(
    ("name", "bug"), [("KeptCrossed", "qkv-order-qvk"), ("KeptUnscaled", "scale-none")]
)
def test_wrong_ones_with_kept_dictionaries_are_named(name: str, bug: str) -> None:
    """The dictionary says which array is whose, and hides no mistake."""
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert bug in [each.bug for each in verdict.diagnosis], verdict.diagnosis


def test_names_of_no_projection_are_refused() -> None:
    """No array is made for a name that means none."""
    with pytest.raises(TargetError, match="KeptInside"):
        judged("KeptInside")


def test_a_key_may_have_dots() -> None:
    """Flax allows them in a name: kills a path that is cut at each dot."""
    layer = SimpleNamespace(params={"to_out.conv": {"kernel": np.zeros(2)}, "to_out": {}})
    set_array(layer, "params.to_out.conv.kernel", np.ones(2))
    assert [1, 1] == layer.params["to_out.conv"]["kernel"].tolist()
    assert 'layer.params["to_out.conv"]["kernel"]' == path_expression(
        layer, "params.to_out.conv.kernel", "layer"
    )
