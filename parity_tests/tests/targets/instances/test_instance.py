"""A layer that is built already is judged with its own weights, and it, not its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.candidate import TargetError
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.judging.output import DEFAULT_SETTINGS
from mha_parity.run.case_run import run_case
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.instance_calls import InstanceCalls
from mha_parity.targets.instances.instance import layer_of
from subject_checks import SUBJECTS, check_subject

if TYPE_CHECKING:
    from mha_parity.core.own_weights import OwnWeights

# Masks and causality are the class's affair, and a run this short meets few of them.
FEW = {"cases": 20, "features": (("attn", "none"), ("padding", "none"))}


def own_weights(name: str) -> OwnWeights:
    """Return the weights that are read out of a subject."""
    bound = bind(load.load(f"{SUBJECTS}/loaded.py:{name}"))
    assert isinstance(bound, InstanceCalls)
    assert bound.own_weights is not None
    return bound.own_weights


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("of_torch", "q_proj_weight as w_q, k_proj_weight as w_k, v_proj_weight as w_v, in_proj_b"),
        ("of_numpy", "in_proj_weight as w_q w_k w_v, in_proj_bias as b_q b_k b_v, out_proj.weight"),
        ("linear", "W_v.weight as w_v, W_o.weight as w_out, W_o.bias as b_out; left over: steps"),
    ],
)
def test_a_loaded_layer_passes_and_the_report_says_what_went_where(
    name: str, sentence: str
) -> None:
    """Torch's own layer, NumPy's and one of Linears hold with their own weights."""
    verdict = check_subject(f"loaded.py:{name}", **FEW)
    assert verdict.holds, str(verdict)
    assert sentence in verdict.notes[0]


def test_a_layer_that_differs_from_its_class_fails_by_its_bug_s_name() -> None:
    """The layer whose scale was changed fails, though its class is right."""
    verdict = check_subject("loaded.py:changed", diagnose=True, **FEW)
    assert "scale-dmodel" == verdict.diagnosis[0].bug
    sizes = {(f.case.heads_count, f.case.head_dim) for f in verdict.failures}
    assert {(2, 4)} == sizes
    right = bind(load.load(f"{SUBJECTS}/loaded.py:Attention"))
    assert not run_case(MonitoredCandidate(right), right.plain_case(), DEFAULT_SETTINGS).fails


@pytest.mark.parametrize(
    ("name", "kv_heads"), [("two_of_four", 2), ("one_of_six", 1), ("as_many", 0)]
)
def test_a_layer_with_fewer_key_heads_is_judged_with_as_many(name: str, kv_heads: int) -> None:
    """A layer of four query heads and two of keys was refused by the size of its W_k."""
    verdict = check_subject(f"grouped_layers.py:{name}", cases=40)
    assert verdict.holds, str(verdict)
    bound = bind(load.load(f"{SUBJECTS}/grouped_layers.py:{name}"))
    assert isinstance(bound, InstanceCalls)
    assert bound.own_weights is not None
    assert kv_heads == bound.own_weights.sizes["kv_heads_count"]


def test_fewer_key_heads_in_one_array_are_refused_by_that() -> None:
    """Kills the width of a square that the array is not: the sentence named one of 33."""
    with pytest.raises(TargetError, match="fewer key heads are read of arrays of their own"):
        bind(load.load(f"{SUBJECTS}/grouped_layers.py:packed"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiled", "the weights are no function of the true scores alone"),
        ("flipped", "heads are not independent: changing head 0 changes the outputs of heads 0, 3"),
    ],
)
def test_a_wrong_layer_is_measured_by_copies_of_it(name: str, said: str) -> None:
    """Kills a diagnosis that asks the layer with its own weights alone, and measures nothing."""
    verdict = check_subject(f"grouped_layers.py:{name}", cases=40, diagnose=True)
    assert not verdict.holds
    (diagnosis,) = verdict.diagnosis
    assert said in f"{diagnosis.title} {diagnosis.evidence}"


def test_the_layer_s_own_numbers_are_the_problem_s() -> None:
    """Weights go in as the layer has them, a lacking bias as zeros, and dropout is off."""
    import torch

    module = load.load(f"{SUBJECTS}/loaded.py:of_torch")
    own = own_weights("of_torch")
    case = own.case(Case(seed=3, batch=2, queries=4, keys=6, heads_count=1, head_dim=1))
    assert (3, 4, 7, 5) == (case.heads_count, case.head_dim, case.kdim, case.vdim)
    problem = own.problem(make_problem(case.replace(inputs="distinct")))
    with torch.no_grad():
        np.testing.assert_array_equal(problem.w_k, module.k_proj_weight.numpy())
    lacking = own_weights("linear")
    assert not lacking.arrays["b_v"].any()
    assert lacking.arrays["b_q"].any()


def test_other_sizes_keep_their_weights_without_the_lacking_bias() -> None:
    """A smaller case has drawn weights, and a bias of 0 where the layer's class has none."""
    own = own_weights("linear")
    case = own.case(Case(seed=3, batch=2, queries=4, keys=4, heads_count=1, head_dim=1))
    smaller = make_problem(case.replace(heads_count=1, head_dim=3))
    found = own.problem(smaller)
    assert not own.are_of(found)
    assert found.b_v is not None
    assert not found.b_v.any()
    np.testing.assert_array_equal(found.b_q, smaller.b_q)


@pytest.mark.parametrize(
    ("target", "sizes", "said"),
    [
        ("optional_inputs.py:GroupedMatrices", (6, 3, 3), "W_q as w_q, W_o as w_out, W_k as w_k"),
        ("layers_in_the_wild.py:HeadByHead", (6, 3), "qkv.weight as w_q w_k w_v"),
        ("layers_in_the_wild.py:ListOfHeads", (6, 3), "heads.2.value.weight as w_v"),
    ],
)
def test_weights_are_read_where_small_calls_of_the_class_found_them(
    target: str, sizes: tuple[int, ...], said: str
) -> None:
    """Bare matrices (in, out), packed rows head by head, and Linears of one head each."""
    import torch

    layer = load.load(f"{SUBJECTS}/{target}")(*sizes)
    layer.num_heads = 3
    generator = torch.Generator().manual_seed(4)
    for held in layer.parameters():
        torch.nn.init.normal_(held, generator=generator)
    bound = bind(layer)
    assert said in getattr(bound.own_weights, "sentence", "")
    assert check(MonitoredCandidate(bound), Options(cases=12)).holds


def test_a_layer_that_is_judged_otherwise_than_it_is_built_is_refused() -> None:
    """The norm and the input that it adds are part of the layer, and not of its class as judged."""
    layer = load.load(f"{SUBJECTS}/residual.py:PostNormed")(2, 8, 4, 4)
    layer.num_heads = 2
    with pytest.raises(
        TargetError, match=r"which is judged otherwise than it is built \(.*taken o"
    ):
        bind(layer)


def test_a_layer_without_a_number_of_heads_is_refused() -> None:
    """Where no attribute says how many heads there are, one sentence names the attributes."""
    with pytest.raises(ValueError, match=r"none of its attributes num_heads, .* is a number of h"):
        bind(load.load(f"{SUBJECTS}/loaded.py:headless"))


def test_a_function_without_parameters_makes_the_layer() -> None:
    """The layer that it returns is judged, and what it raises is one sentence."""

    def made() -> Any:
        return load.load(f"{SUBJECTS}/loaded.py:of_torch")

    def raising() -> Any:
        raise RuntimeError("no weights")

    assert "in_proj_bias as b_q b_k b_v" in getattr(bind(made).own_weights, "sentence", "")
    with pytest.raises(ValueError, match=r"raising, which should make a layer, but raised Runtime"):
        bind(raising)


def test_a_function_makes_the_same_layer_each_time() -> None:
    """The generators are seeded for it, and left as they were found."""
    import torch

    def made() -> Any:
        return torch.nn.MultiheadAttention(6, 2)

    before = torch.get_rng_state()
    first, second = layer_of(made), layer_of(made)
    assert torch.equal(first.in_proj_weight, second.in_proj_weight)
    assert torch.equal(before, torch.get_rng_state())
