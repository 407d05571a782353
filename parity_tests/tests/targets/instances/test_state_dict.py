"""A target is judged with the weights of a .safetensors file, whatever the tensors are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mha_parity.__main__ import main
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core import safetensors
from mha_parity.core.candidate import TargetError
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.worker.client import isolated
from subject_checks import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mha_parity.core.arrays import Array
    from mha_parity.core.verdict import Verdict

NUMPY = "mha_numpy:MultiheadAttention"
E = 6
SHAPES = {"w": (E, E), "b": (E,), "W": (3 * E, E), "B": (3 * E,), "T": (E, 3 * E)}


def drawn(names: Mapping[str, str]) -> dict[str, Array]:
    """Return tensors of the kinds of ``SHAPES``, each with numbers of its own."""
    rng = np.random.default_rng(5)
    return {name: rng.standard_normal(SHAPES[kind]) for name, kind in names.items()}


def saved(folder: Path, state: Mapping[str, Array]) -> str:
    """Return the name of a file with these tensors."""
    path = folder / "layer.safetensors"
    path.write_bytes(safetensors.dump(state, {}))
    return str(path)


def bound(target: str, file: str, heads: int = 2) -> Any:
    """Return a target bound with the weights of a file."""
    return bind(load.load(target), state_dict=file, num_heads=heads)


STYLES = {
    "torch": ({"in_proj_weight": "W", "in_proj_bias": "B", "out_proj.weight": "w",
               "out_proj.bias": "b"}, ""),
    "separate": ({f"attn.{p}_proj.weight": "w" for p in "qkvo"}, "attn.o_proj.weight as w_out"),
    "words": ({f"self.{p}.{k}": k[0] for p in ("query", "key", "value") for k in ("weight", "bias")}
              | {"output.dense.weight": "w"}, "output.dense.weight as w_out"),
    "plain": ({"Wq": "w", "Wk": "w", "Wv": "w", "Wo": "w", "bq": "b"}, "bq as b_q"),
    "qkv": ({"attn.qkv.weight": "W", "attn.qkv.bias": "B", "attn.proj.weight": "w"},
            "attn.proj.weight as w_out"),
    "turned": ({"attn.c_attn.weight": "T", "attn.c_attn.bias": "B", "attn.c_proj.weight": "w",
                "mlp.c_proj.weight": "w", "step": "b"}, "left over: mlp.c_proj.weight, step"),
}  # fmt: skip


@pytest.mark.parametrize(("names", "said"), STYLES.values(), ids=STYLES)
def test_each_style_of_names_is_read(tmp_path: Path, names: dict[str, str], said: str) -> None:
    """Every weight and bias of the file stands in the problem, in torch's order of rows."""
    state = drawn(names)
    own = bound(NUMPY, saved(tmp_path, state)).own_weights
    assert said in own.sentence
    packed = next((a for name, a in state.items() if a.shape in {SHAPES["W"], SHAPES["T"]}), None)
    rows = [a for name, a in state.items() if "out" not in name and a.shape == SHAPES["w"]][:3]
    whole = np.concatenate(rows) if packed is None else packed
    expected = whole.T if whole.shape == SHAPES["T"] else whole
    np.testing.assert_array_equal(
        expected, np.concatenate([own.arrays[n] for n in ("w_q", "w_k", "w_v")])
    )
    if "attn.c_proj.weight" in state:
        np.testing.assert_array_equal(state["attn.c_proj.weight"].T, own.arrays["w_out"])
    if "bq" in state:
        assert not own.arrays["b_k"].any()
        np.testing.assert_array_equal(state["bq"], own.arrays["b_q"])


def verdict(target: str, file: str) -> Verdict:
    """Return the verdict on a target with the weights of a file."""
    candidate = MonitoredCandidate(bound(target, file))
    return check(candidate, Options(cases=15, shrink=False, features=(("attn", "none"),)))


def test_a_class_is_judged_with_the_file_and_its_bug_is_named(tmp_path: Path) -> None:
    """Of two classes with Linears of other names the right one holds, in the file's sizes."""
    state = drawn({f"{p}.weight": "w" for p in ("to_q", "to_k", "to_v", "to_out")})
    file = saved(tmp_path, state)
    right = verdict(f"{SUBJECTS}/linear_layers.py:Attention", file)
    assert right.holds, str(right)
    assert "to_q.weight as w_q" in right.notes[0]
    wrong = verdict(f"{SUBJECTS}/linear_layers.py:Unscaled", file)
    assert "scale-none" == wrong.diagnosis[0].bug
    assert {(2, 3)} == {(f.case.heads_count, f.case.head_dim) for f in wrong.failures}


def test_one_layer_of_a_model_is_named_by_its_prefix(tmp_path: Path) -> None:
    """A file of several layers is refused until one of them is named."""
    state = drawn({f"{n}.attn.{p}_proj.weight": "w" for n in "01" for p in "qkvo"})
    file = saved(tmp_path, state)
    with pytest.raises(TargetError, match=r"of 2 layers, with 0.attn.q_proj.weight, .*:PREFIX\.$"):
        bound(NUMPY, file)
    own = bound(NUMPY, f"{file}:1.attn").own_weights
    np.testing.assert_array_equal(state["1.attn.q_proj.weight"], own.arrays["w_q"])


@pytest.mark.parametrize(
    ("names", "heads", "sentence"),
    [
        ({"fc.weight": "w"}, 2, r"with fc\.weight, but should have W_q, W_k, W_v\.$"),
        ({"Wq": "w", "Wk": "w", "Wv": "w"}, 4, r"Wq of 6 rows, but should divide into 4 heads\.$"),
        ({"Wq": "w", "Wk": "W", "Wv": "w"}, 2, r"w_k float64 \(18, 6\), but should have float64"),
    ],
)
def test_weights_of_no_layer_are_refused(
    tmp_path: Path, names: dict[str, str], heads: int, sentence: str
) -> None:
    """What the file lacks, or does not fit, is said in one sentence."""
    with pytest.raises(TargetError, match=sentence):
        bound(NUMPY, saved(tmp_path, drawn(names)), heads)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("loaded.py:linear", r"Attention, which has weights of its own; leave them"),
        ("packed_weights.py:f", r"of bias=yes, but f is judged only with bias=no; give it one"),
        ("wrong_scale.py:f", r"of form=mha, but f is judged only with form=qkv; give it one"),
    ],
)
def test_targets_that_take_no_such_weights_are_refused(
    tmp_path: Path, target: str, sentence: str
) -> None:
    """A layer that has its own, a function without biases, and one without weights."""
    named = STYLES["plain"][0]
    names = named if "packed" in target else {n: k for n, k in named.items() if k == "w"}
    file = saved(tmp_path, drawn({n: k for n, k in names.items() if n != "Wo"}))
    with pytest.raises(TargetError, match=sentence):
        bound(f"{SUBJECTS}/{target}", file)


def test_half_precision_is_judged_in_a_fresh_process_too(tmp_path: Path) -> None:
    """A process that makes no small calls takes the dtype of the weights."""
    state = {name: a.astype(np.float16) for name, a in drawn(STYLES["plain"][0]).items()}
    with isolated(NUMPY, state_dict=saved(tmp_path, state), num_heads=2) as candidate:
        assert ("float16",) == candidate.offer["dtype"]
        with candidate.fresh() as fresh:
            assert ("float16",) == fresh.offer["dtype"]


def test_a_damaged_file_ends_the_command_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file cut short, one that is not there, and one without heads: exit status 2 each."""
    file = saved(tmp_path, drawn(STYLES["plain"][0]))
    whole = (tmp_path / "layer.safetensors").read_bytes()
    (tmp_path / "layer.safetensors").write_bytes(whole[:-9])
    for given, said in (
        ((file, "--num-heads", "2"), "but the file has"),
        ((f"{file}2", "--num-heads", "2"), "cannot be read (No such file or directory)"),
        ((file,), "should get both"),
    ):
        assert 2 == main(["check", NUMPY, "--in-process", "--state-dict", *given])
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_the_usual_names_fill_what_the_class_s_names_lack(tmp_path: Path) -> None:
    """With W_o called o_proj it is read all the same; by a name that says nothing, it is refused.

    Were it left over, the layer would be judged with the identity in its place.
    """
    target = f"{SUBJECTS}/linear_layers.py:Attention"
    state = drawn({f"{name}.weight": "w" for name in ("W_q", "W_k", "W_v", "o_proj")})
    own = bound(target, saved(tmp_path, state)).own_weights
    np.testing.assert_array_equal(state["o_proj.weight"], own.arrays["w_out"])
    state["last.weight"] = state.pop("o_proj.weight")
    with pytest.raises(TargetError, match=r"Attention's output, but last\.weight left over; name"):
        bound(target, saved(tmp_path, state))


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    """The tensor with a NaN is named: with it, no case could show anything."""
    state = drawn(STYLES["torch"][0])
    state["out_proj.bias"][2] = np.nan
    with pytest.raises(TargetError, match=r"but out_proj\.bias has NaN or infinity"):
        bound(NUMPY, saved(tmp_path, state))
