"""Layers of torch in the forms that people give them: built, filled and called as they want it."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path

import numpy as np
import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.always_causal import CAUSAL
from mha_parity.targets.interpretations.roles import infer_inputs, is_no_input
from mha_parity.targets.layers.config_objects import RecordingConfig
from mha_parity.targets.layers.constructor_arguments import constructions
from mha_parity.targets.layers.weight_packing import ProjectionSlot
from mha_parity.targets.static.argument_meanings import LENGTH, LayerSizes
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS, checks_of

RIGHT = [
    "ClonedLinears", "Packed", "HeadByHead", "ColumnByColumn", "Sequenced", "Crossed", "Configured",
    "WithContextLength", "ValuesFirst", "ListOfHeads",
    "SingleHead", "InATuple", "WithCache", "BiasedRows", "ByColumns",
]  # fmt: skip


def subject(name: str) -> object:
    """Return one of the layers."""
    return load.load(f"{SUBJECTS}/layers_in_the_wild.py:{name}")


CASES = {"InATuple": 60}  # some with weights, some of normal scores


judged = checks_of("layers_in_the_wild.py", cases=40)


@pytest.mark.parametrize(("name", "failed"), [("FromTorch", False), ("FromTorchHeadByHead", True)])
def test_a_method_that_takes_over_torchs_weights_is_judged(name: str, failed: bool) -> None:
    """Rows that lie head by head are right with weights laid so, and wrong with torch's."""
    bound = bind(load.load(f"{SUBJECTS}/own_layers.py:{name}"))
    options = Options(cases=12, diagnose=False, shrink=False)
    assert failed == bool(check(bound, options).failed)


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_hold(name: str) -> None:
    """Whatever they call their sizes and weights, they are built, filled and found right."""
    verdict = judged(name, cases=CASES.get(name, 40))
    assert Outcome.PASS == verdict.outcome, verdict
    assert "fitted" == verdict.convention
    assert 0 == verdict.failed


@pytest.mark.parametrize(
    ("name", "bug"),
    [("PackedUnscaled", "scale-none"), ("CausalShifted", "causal-loose")],
)
def test_wrong_ones_are_named(name: str, bug: str) -> None:
    """A bug in a packed or causal layer is named as in any other."""
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    assert bug in [each.bug for each in verdict.diagnosis]


@pytest.mark.parametrize("name", ["ByColumnsCrossed", "PackedInterleaved"])
def test_orders_that_no_name_and_no_torch_has_are_not_explained_away(name: str) -> None:
    """Parts in neither the order of the name nor torch's, and interleaved heads, are red."""
    assert Outcome.FAIL == judged(name, cases=24, fail_fast=True).outcome


def test_what_was_found_out_is_said() -> None:
    """A reader learns how packed rows were filled, and that the future was hidden."""
    lies = "called with qkv, proj as Linears and rows {}; (N, L, E)."
    assert lies.format("head by head") in judged("HeadByHead", cases=8).notes
    assert lies.format("column by column") in judged("ColumnByColumn", cases=8).notes
    said = "called with to_qvk, W_0 as Linears and rows by columns, parts and heads; (N, L, E)."
    assert said in judged("ByColumns", cases=8).notes
    verdict = judged("WithContextLength", cases=8)
    assert CAUSAL in verdict.notes
    assert {"causal"} == {r.value for r in verdict.features if r.axis == "attn" and r.cases}


def test_one_sample_alone_is_asked_for_only_where_it_is_understood() -> None:
    """Some take its two axes for others and give back their shape: that is no bug, but no offer."""
    confused = bind(subject("Packed"))
    assert ("batch_first",) == confused.offer["layout"]
    assert (
        "another answer than the same sample in a batch" in confused.reasons["layout", "unbatched"]
    )
    taken = bind(load.load(f"{SUBJECTS}/linear_layers.py:Attention"))
    assert "unbatched" in taken.offer["layout"]


def test_a_layer_that_knows_no_heads_has_one() -> None:
    """Its constructor takes widths alone."""
    assert ("one",) == bind(subject("SingleHead")).offer["heads"]
    assert ("one", "many") == bind(subject("Packed")).offer["heads"]


def test_the_name_of_a_folder_makes_no_layer_causal(tmp_path: Path) -> None:
    """Nor does that of a class which says that it is not."""
    folder = tmp_path / "causal_models"
    folder.mkdir()
    source = (SUBJECTS / "layers_in_the_wild.py").read_text("utf-8")
    source += "\n\nclass NotCausal(Packed):\n    pass\n"
    (folder / "layers.py").write_text(source, "utf-8")
    for name in ("Packed", "NotCausal"):
        text = f"{folder}/layers.py:{name}"
        verdict = check(bind_in_process(load.load(text), Options(), text), Options(cases=30))
        assert Outcome.PASS == verdict.outcome
        assert CAUSAL not in verdict.notes


def test_inputs_follow_from_the_call() -> None:
    """One, two or three sequences; three by the letters they begin with."""
    offered = {name: bind(subject(name)).offer["inputs"] for name in RIGHT}
    assert ("self",) == offered["Packed"]
    assert ("self", "cross") == offered["Crossed"]
    assert ("self", "cross", "distinct") == offered["ValuesFirst"] == offered["ClonedLinears"]
    called = {
        "values, keys, query, mask": ("value", "key", "query"),
        "x_q, x_k, x_v": ("query", "key", "value"),
        "a, b, c": ("query", "key", "value"),
        "x, memory": ("query", "key"),
        "x, mask": ("query",),
    }
    for names, expected in called.items():
        named = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names.split(", ")]
        found = infer_inputs([each for each in named if not is_no_input(each)])
        assert expected == tuple(role for _, role in found)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Tempered", r"got Tempered, but `temperature` has no counterpart in torch's layer; judge"),
        ("NeedsMore", r"got NeedsMore, but `rotary` has no counterpart in torch's layer; judge"),
        ("Broken", r"but building one of width 24 with 4 heads raised ZeroDivisionError: .*; j"),
    ],
)
def test_others_are_refused_in_a_sentence(name: str, sentence: str) -> None:
    """What is more than attention, or cannot be built, is no failing attention."""
    with pytest.raises(ValueError, match=sentence):
        bind(subject(name))


def test_weights_that_are_turned() -> None:
    """A packed weight of (in, 3 * out) is filled as x @ weight reads it."""
    slot = ProjectionSlot("c_attn", tuple("qkv"), transposed=True)
    arrays = {part: np.arange(36.0).reshape(6, 6) + 100 * i for i, part in enumerate("qkv")}
    expected = np.concatenate(list(arrays.values())).T
    np.testing.assert_array_equal(expected, slot.pack(arrays, 2))


@pytest.mark.parametrize(
    ("each", "rows"),
    [
        ("parts", [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]),
        ("heads", [0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23]),
        ("columns", [0, 10, 20, 1, 11, 21, 2, 12, 22, 3, 13, 23]),
    ],
)
def test_packed_rows(each: str, rows: list[int]) -> None:
    """Two heads of width 2: how the rows of q (0 ...), k (10 ...) and v (20 ...) lie."""
    arrays = {part: np.arange(4) + 10 * i for i, part in enumerate("qkv")}
    assert rows == ProjectionSlot("qkv", tuple("qkv"), each).pack(arrays, 2).tolist()


def test_arguments_are_known_by_their_names() -> None:
    """Sizes in any order; two that tell nothing may be width and heads; a configuration has all."""
    sizes = LayerSizes(6, 2, bias=False, dropout=0.5)

    def given(*required: str, **optional: object) -> list[dict[str, object]]:
        kind = Parameter.POSITIONAL_OR_KEYWORD
        named = [Parameter(name, kind) for name in required]
        named += [Parameter(name, kind, default=default) for name, default in optional.items()]
        return [each.arguments(sizes) for each in constructions(object, named)]

    assert {"n_heads": 2, "d_model": 6} == given("n_heads", "d_model")[0]
    assert {"a": 6, "b": 2} in given("a", "b")
    optional = {"heads": 8, "dim_head": 64, "dropout": 0.1, "qkv_bias": True, "max_len": 512}
    known = {"dim": 6, "heads": 2, "dim_head": 3, "dropout": 0.5, "qkv_bias": False}
    expected = known | {"max_len": LENGTH}
    assert expected == given("dim", **optional, window_len=7, more=1)[0]
    width = {"embed_dim": 6, "num_heads": 2, "block_size": LENGTH}
    assert width == given("embed_dim", "num_heads", "block_size")[0]
    config = given("config")[0]["config"]
    assert isinstance(config, RecordingConfig)
    assert (6, 2, 0.5, False) == (
        config.hidden_size, config.num_attention_heads, config.attn_pdrop, config.bias
    )  # fmt: skip
    with pytest.raises(AttributeError, match="asks its configuration for 'unheard_of', which is"):
        _ = config.unheard_of
    assert not hasattr(config, "__len__")


def test_a_bias_that_a_layer_lacks_is_not_drawn() -> None:
    """Where q, k and v have biases and the output has none, problems have theirs: it is said."""
    bound = bind(subject("BiasedRows"))
    assert ("no", "in") == bound.offer["bias"]
    assert "the projection of out has no bias" == bound.reasons["bias", "yes"]
    assert ("no", "yes") == bind(subject("Packed")).offer["bias"]
