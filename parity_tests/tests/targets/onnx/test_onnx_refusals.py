"""What a graph may be besides a softmax of plain products: read where it tells, else refused.

onnx and onnxruntime are installed by ``make test-frameworks`` alone; elsewhere these are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.candidate import TargetError
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mha_parity.core.verdict import Verdict

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        find_spec("onnx") is None or find_spec("onnxruntime") is None,
        reason="onnx and onnxruntime are not installed; make test-frameworks does",
    ),
]
H, E = 3, 24
CONTRIB = "com.microsoft"
ROWS = ("N", "L", E)
OPERATORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "onnx": ("Attention", "", {"q_num_heads": H, "kv_num_heads": H}),
    "contrib": ("MultiHeadAttention", CONTRIB, {"num_heads": H}),
}


def saved(
    folder: Path, nodes: Sequence[Any], inputs: dict[str, Any], arrays: dict[str, Any]
) -> str:
    """Return the file of a graph with float32 inputs of these shapes, and these initialisers."""
    import onnx
    from onnx import helper, numpy_helper

    def value(name: str, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "attention",
        [value(*each) for each in inputs.items()],
        [value("out", None)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    path = folder / "model.onnx"
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(CONTRIB, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return str(path)


def core(arrays: dict[str, Any], first: int | None = None, *, scaled: bool = True) -> list[Any]:
    """Return attention from qh, kh and vh to mixed; keys from the ``first``-th behind are hidden.

    Without ``first`` nothing is hidden.
    """
    from onnx.helper import make_node, make_tensor

    arrays["scale"] = np.float32((E // H) ** -0.5 if scaled else 1)
    nodes = [
        make_node("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]),
        make_node("MatMul", ["qh", "kt"], ["product"]),
        make_node("Mul", ["product", "scale"], ["scores"]),
    ]
    if first is not None:
        arrays["first"] = np.array(first)
        low = make_tensor("low", 1, [1], [-np.inf])
        nodes += [
            make_node("Shape", ["scores"], ["size"], start=-2),
            make_node("ConstantOfShape", ["size"], ["all"], value=low),
            make_node("Trilu", ["all", "first"], ["future"], upper=1),
            make_node("Add", ["scores", "future"], ["masked"]),
        ]
    nodes.append(make_node("Softmax", ["scores" if first is None else "masked"], ["p"], axis=-1))
    return [*nodes, make_node("MatMul", ["p", "vh"], ["mixed"])]


def layer(
    folder: Path,
    *,
    names: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    first: int | None = None,
    scaled: bool = True,
    wide_bias: bool = False,
    last: str = "",
) -> str:
    """Return the file of a layer on x; of two names, the first is packed head by head.

    ``last`` is done to the output: "Add" adds x, "Mul" multiplies by an initialiser, "Neg" negates.
    """
    from onnx.helper import make_node

    rng = np.random.default_rng(4)
    arrays: dict[str, Any] = {"split": [0, 0, H, E // H], "join": [0, 0, E]}
    nodes: list[Any] = []

    def linear(rows: str, name: str, made: str, many: int = 1) -> None:
        bias = rng.standard_normal(many * E).astype("float32") / 5
        arrays[name] = (rng.standard_normal((E, many * E)) / 5).astype("float32")
        arrays[f"{name}.bias"] = bias[None, None] if wide_bias else bias
        nodes.append(make_node("MatMul", [rows, name], [f"{made}0"]))
        nodes.append(make_node("Add", [f"{made}0", f"{name}.bias"], [made]))

    if len(names) == 2:
        linear("x", names[0], "rows3", 3)
        arrays["whole"] = [0, 0, H, 3 * E // H]
        nodes.append(make_node("Reshape", ["rows3", "whole"], ["heads3"]))
        nodes.append(make_node("Split", ["heads3"], ["q4", "k4", "v4"], axis=-1, num_outputs=3))
    for name, made in zip(names[:-1], "qkv", strict=False):
        if len(names) > 2:
            linear("x", name, made)
            nodes.append(make_node("Reshape", [made, "split"], [f"{made}4"]))
    nodes += [make_node("Transpose", [f"{m}4"], [f"{m}h"], perm=[0, 2, 1, 3]) for m in "qkv"]
    nodes += [
        *core(arrays, first, scaled=scaled),
        make_node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        make_node("Reshape", ["turned", "join"], ["merged"]),
    ]
    linear("merged", names[-1], "y")
    given = {"Add": ["y", "x"], "Mul": ["y", "gain"]}.get(last, ["y"])
    if last == "Mul":
        arrays["gain"] = rng.uniform(0.5, 2, E).astype("float32")
    return saved(
        folder, [*nodes, make_node(last or "Identity", given, ["out"])], {"x": ROWS}, arrays
    )


def judged(file: str, num_heads: int | None = None) -> Verdict:
    """Return the verdict on a model in this process."""
    bound = bind(load.load(file), label="model.onnx", num_heads=num_heads)
    return check(MonitoredCandidate(bound), Options(cases=12, diagnose=False, shrink=False))


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("scale", [None, 1.0], ids=["right", "unscaled"])
def test_an_operator_of_attention_says_its_heads(
    tmp_path: Path, kind: str, scale: float | None
) -> None:
    """Its attribute is read, no Reshape needed: the right one passes, an unscaled one fails."""
    from onnx.helper import make_node

    name, domain, options = OPERATORS[kind]
    options = options | ({} if scale is None else {"scale": scale})
    node = make_node(name, ["q", "k", "v"], ["out"], domain=domain, **options)
    inputs = {each: ("N", "L" if each == "q" else "S", E) for each in "qkv"}
    found = judged(saved(tmp_path, [node], inputs, {}))
    assert "heads_count 3, head_dim 8" in found.notes[0]
    assert bool(found.failed) == (scale is not None), str(found)


def test_heads_are_asked_for_where_a_split_may_part_them(tmp_path: Path) -> None:
    """Without a Reshape they are one only where nothing else parts rows; said, they are judged."""
    from onnx.helper import make_node

    nodes = [
        make_node("Split", ["q"], ["left", "right"], axis=-1, num_outputs=2),
        make_node("Concat", ["left", "right"], ["q2"], axis=-1),
        make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        make_node("MatMul", ["q2", "kt"], ["product"]),
        make_node("Mul", ["product", "scale"], ["scores"]),
        make_node("Softmax", ["scores"], ["p"], axis=-1),
        make_node("MatMul", ["p", "v"], ["out"]),
    ]
    inputs = {each: ("N", "L" if each == "q" else "S", E) for each in "qkv"}
    file = saved(tmp_path, nodes, inputs, {"scale": np.float32(E**-0.5)})
    with pytest.raises(TargetError, match=r"how many heads it has; pass --num-heads N\.$"):
        bind(load.load(file))
    assert not judged(file, 1).failed


@pytest.mark.parametrize(("first", "right"), [(1, True), (2, False)], ids=["right", "one-too-many"])
@pytest.mark.parametrize("weighted", [False, True], ids=["qkv", "layer"])
def test_a_causal_rule_in_the_graph_is_judged_as_causal(
    tmp_path: Path, first: int, *, right: bool, weighted: bool
) -> None:
    """The right rule passes and is said; one that shows each query the next key fails."""
    if weighted:
        file = layer(tmp_path, first=first)
    else:
        from onnx.helper import make_node

        arrays: dict[str, Any] = {}
        nodes = [make_node("Identity", [each], [f"{each}h"]) for each in "qkv"]
        nodes += [*core(arrays, first), make_node("Identity", ["mixed"], ["out"])]
        inputs = {each: ("N", "H", "L" if each == "q" else "S", E // H) for each in "qkv"}
        file = saved(tmp_path, nodes, inputs, arrays)
    found = judged(file)
    assert bool(found.failed) != right, str(found)
    assert any("hides keys behind a query by itself" in note for note in found.notes)


@pytest.mark.parametrize("scaled", [True, False], ids=["right", "unscaled"])
def test_a_bias_of_three_axes_is_a_bias(tmp_path: Path, *, scaled: bool) -> None:
    """Of shape (1, 1, E) it is read like one of shape (E,), and a bug beside it is still seen."""
    found = judged(layer(tmp_path, wide_bias=True, scaled=scaled))
    assert "q_proj.bias as b_q" in found.notes[0]
    assert bool(found.failed) != scaled, str(found)


def test_torch_s_packed_name_says_how_its_rows_lie(tmp_path: Path) -> None:
    """Split head by head, `in_proj_weight` fails; under another name it passes, and is said."""
    assert judged(layer(tmp_path, names=("in_proj_weight", "out_proj")), H).failed
    found = judged(layer(tmp_path, names=("a.qkv", "a.proj")), H)
    assert not found.failed, str(found)
    assert any("the rows of a.qkv lie head by head" in note for note in found.notes)


UNNAMED = tuple(f"onnx::MatMul_{n}" for n in range(4))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"last": "Add"}, r"which adds its input to the output, but should be one attention alo"),
        ({"last": "Mul"}, r"does not compute attention and has gain besides its projections, but"),
        (
            {"last": "Neg", "names": UNNAMED},
            r"correlates with attention by -\d\.\d\d in its nearest",
        ),
    ],
    ids=["residual", "more-weights", "far"],
)
def test_what_is_not_attention_alone_is_refused(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    """One sentence says what the graph has more, or how far its nearest reading is."""
    with pytest.raises(TargetError, match=sentence):
        bind(load.load(layer(tmp_path, **settings)))


def test_named_weights_leave_nothing_open(tmp_path: Path) -> None:
    """A layer far from attention is judged all the same where names say what its weights are."""
    assert judged(layer(tmp_path, last="Neg")).failed
