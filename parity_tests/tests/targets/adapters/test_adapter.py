"""An adapter is judged on what it reads of its call."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import mha_parity
from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.adapters.adapted import NO_MASKS
from mha_parity.targets.adapters.attention_call import AttentionCall
from mha_parity.targets.backends.numpy_arrays import NumpyArrays
from mha_parity.targets.bind import bind
from mha_parity.targets.calls.target_call import Arguments
from mha_parity.targets.convention_base.always_causal import CAUSAL
from mha_parity.targets.convention_base.convention import Convention
from subject_checks import SUBJECTS

FILE = SUBJECTS / "adapters.py"
RUN = Options(cases=20, shrink=False, diagnose=False)
CASE = Case(seed=1, batch=2, queries=3, keys=4, heads_count=2, head_dim=5, inputs="cross")


def bound(name: str) -> Convention:
    """Return an adapter as a candidate."""
    return bind(load.load(f"{FILE}:{name}"))


def call_of(case: Case) -> AttentionCall:
    """Return the call of a case in NumPy's arrays."""
    return AttentionCall(Arguments(make_problem(case), NumpyArrays()))


@pytest.mark.parametrize("name", ["everything", "tensors", "windowed"])
def test_right_ones_pass(name: str) -> None:
    """Adapters of functions and layers are targets, recognised as what they are."""
    candidate = bound(name)
    assert "adapter" == candidate.convention
    assert 0 == check(candidate, RUN).failed


def test_a_wrong_one_fails() -> None:
    """An inverted mask behind an adapter is found."""
    assert check(bound("inverted"), RUN).failed > RUN.cases / 4


def test_all_that_is_read_is_offered() -> None:
    """Masks of each kind, a scale, biases, both projections, other keys, and weights."""
    offer = bound("everything").offer
    assert ("none", "bool2d", "bool3d", "float2d", "float3d", "causal") == offer["attn"]
    assert ("none", "bool", "float", "lengths") == offer["padding"]
    assert ("none", "per_head") == offer["weights"]
    assert ("self", "cross", "distinct") == offer["inputs"]
    assert all(len(offer[each]) == 2 for each in ("bias", "out_proj", "scale", "masked_rows"))


def test_what_is_not_read_is_not_offered() -> None:
    """The reason names the attribute; without weights the inputs are projected already."""
    candidate = bound("inverted")
    assert ("qkv",) == candidate.offer["form"]
    assert "the adapter does not read `scale`" == candidate.reasons["scale", "given"]
    assert "cannot be said as one of shape (N, 1, L, S)" in candidate.reasons["attn", "bool3d"]


def test_gradients_of_what_is_copied_are_not_offered() -> None:
    """Weights of a functional adapter have gradients, those copied into a layer have none."""
    assert ("no", "yes") == bound("tensors").offer["gradients"]
    reason = bound("windowed").reasons["gradients", "yes"]
    assert "`q_proj_weight` has no gradient: the adapter copies it into a layer" == reason


def test_gradients_of_a_functional_one_pass() -> None:
    """Gradients of inputs and weights are those of torch."""
    assert 0 == check(bound("tensors"), Options(cases=12, grad=True, diagnose=False)).failed


GROUPED = Options(cases=20, features=(("kv_heads", "fewer"),), shrink=False, diagnose=False)


@pytest.mark.parametrize("name", ["grouped", "grouped_rows"])
def test_fewer_heads_of_keys_are_offered_where_their_number_is_read(name: str) -> None:
    """Kills a refusal of those whose weights are read, which have as many rows as G heads."""
    candidate = bound(name)
    assert ("equal", "fewer") == candidate.offer["kv_heads"]
    assert 0 == check(candidate, GROUPED).failed


def test_heads_of_keys_in_another_order_fail() -> None:
    """Kills weights that repeat the rows of a shared head: each order is right of these."""
    assert check(bound("grouped_otherwise"), GROUPED).failed > GROUPED.cases / 4


def test_gradients_of_weights_of_shared_heads_pass() -> None:
    """Kills an in-projection's gradient whose parts have no rows for heads that share one."""
    asked = Options(
        cases=12, features=(("kv_heads", "fewer"),), grad=True, shrink=False, diagnose=False
    )
    assert 0 == check(bound("grouped"), asked).failed


def test_why_no_fewer_heads_of_keys_are_offered_is_said() -> None:
    """Kills silence: what an adapter does not read is the reason."""
    reason = bound("tensors").reasons["kv_heads", "fewer"]
    assert "the adapter does not read `num_kv_heads`" == reason


def test_what_a_target_does_by_itself_is_said() -> None:
    """A causal layer is judged as such; masks that are not read are said not to be judged."""
    notes = check(bound("windowed"), RUN).notes
    assert {CAUSAL} <= {*notes}
    without = bind(mha_parity.adapter(lambda call: call.query[:, ::-1]))
    assert (NO_MASKS,) == without.remarks


def test_every_attribute_of_a_call_is_documented() -> None:
    """The public names of the class have docstrings that say the shape or the meaning."""
    named = {k: v for k, v in vars(AttentionCall).items() if not k.startswith("_")}
    assert {"query", "attn_mask", "hidden", "added", "lengths", "q_proj_weight"} <= named.keys()
    assert all(inspect.getdoc(each) for each in named.values())


def test_masks_are_joined_in_the_shape_asked_for() -> None:
    """Booleans and floats of all masks together, the causal one on demand; lengths."""
    case = CASE.replace(padding="lengths", attn="causal")
    both, expected = call_of(case), make_problem(case).hidden()
    np.testing.assert_array_equal(expected, both.hidden("N H L S"))
    np.testing.assert_array_equal(expected[:, :1], both.added("N 1 L S") == -np.inf)
    lengths = both.lengths(causal=False)
    np.testing.assert_array_equal((~expected[:, 0, -1]).sum(-1), np.minimum(lengths, 3))


def test_masks_that_cannot_be_said_are_refused() -> None:
    """Floats as booleans, a mask of each sample without N, and a shape of unknown axes."""
    with pytest.raises(Exception, match="float masks of this case cannot be said as booleans"):
        call_of(CASE.replace(attn="float2d")).hidden("L S")
    with pytest.raises(Exception, match=r"cannot be said as one of shape \(L, S\)"):
        call_of(CASE.replace(padding="bool")).hidden("L S")
    with pytest.raises(ValueError, match="got a mask of axes 'B L', but should be like 'N 1 L S'"):
        call_of(CASE).hidden("B L")
