"""Exported models are judged through onnxruntime: right graphs pass, wrong ones are named.

onnx and onnxruntime are installed by ``make test-frameworks`` alone; elsewhere these are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64
from mha_parity.targets.onnx import model as onnx_model
from mha_parity.worker.client import isolated

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
Shape = tuple[int | str, ...]
HEADS: Shape = ("N", "H", "L", "D")
FORMS = ("plain", "float64", "float16", "bool", "added", "one-head",
         "order", "weights", "one-sample", "static-heads")  # fmt: skip


def saved(
    folder: Path,
    nodes: Sequence[Any],
    inputs: dict[str, tuple[str, Shape]],
    arrays: dict[str, Any],
    outputs: tuple[str, ...],
) -> str:
    """Return the file of a graph with inputs of these dtypes and shapes, and these initialisers."""
    import onnx
    from onnx import helper, numpy_helper

    def value(name: str, dtype: str, shape: Shape | None) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        nodes,
        "attention",
        [value(name, *each) for name, each in inputs.items()],
        [value(each, next(iter(inputs.values()))[0], None) for each in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    path = folder / "model.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return str(path)


def exported(
    folder: Path,
    *,
    dtype: str = "float32",
    shape: Shape = HEADS,
    mask: str = "",
    name: str = "attn_mask",
    change: str = "",
    outputs: tuple[str, ...] = ("out",),
    order: str = "qkv",
) -> str:
    """Return the file of attention on q, k and v; ``change`` plants a bug."""
    from onnx.helper import make_node, np_dtype_to_tensor_dtype

    rank = len(shape)
    divided = change != "scale-none"
    nodes = [
        make_node("Transpose", ["k"], ["kt"], perm=[*range(rank - 2), rank - 1, rank - 2]),
        make_node("MatMul", ["q", "kt"], ["product"]),
        make_node("Shape", ["q"], ["dims"], start=-1),
        make_node("Cast", ["dims"], ["d"], to=np_dtype_to_tensor_dtype(np.dtype(dtype))),
        make_node("Sqrt", ["d"], ["root"]),
        make_node("Div" if divided else "Identity", ["product", "root"][: 1 + divided], ["s"]),
    ]
    inputs = dict.fromkeys(order, (dtype, shape))
    inputs |= dict.fromkeys("kv", (dtype, (*shape[:-2], "S", shape[-1])))
    scores, arrays = "s", {}
    if mask:
        inputs[name] = (mask, ("Nm", "Hm", "L", "S"))
        scores = "masked"
        arrays = {"low": np.array(-np.inf, dtype)} if mask == "bool" else {}
        keeps = "inverse" if change == "inverted" else name
        nodes += [make_node("Not", [name], ["inverse"])] if change == "inverted" else []
        nodes += [
            make_node("Where", [keeps, "s", "low"], [scores])
            if mask == "bool"
            else make_node("Add", ["s", name], [scores])
        ]
    nodes += [
        make_node("Softmax", [scores], ["p"], axis=-1),
        make_node("MatMul", ["p", "v"], ["out"]),
    ]
    return saved(folder, nodes, inputs, arrays, outputs)


def merged(folder: Path, *, heads: int = 3) -> str:
    """Return the file of attention on (N, L, H D), whose heads stand in the constants alone."""
    from onnx.helper import make_node

    nodes = []
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            make_node("Reshape", [name, "split"], [f"{name}4"]),
            make_node("Transpose", [f"{name}4"], [f"{name}h"], perm=perm),
        ]
    nodes += [
        make_node("Mul", ["qh", "scale"], ["qs"]),
        make_node("MatMul", ["qs", "kh"], ["scores"]),
        make_node("Softmax", ["scores"], ["p"], axis=-1),
        make_node("MatMul", ["p", "vh"], ["heads"]),
        make_node("Transpose", ["heads"], ["rows"], perm=[0, 2, 1, 3]),
        make_node("Reshape", ["rows", "join"], ["out"]),
    ]
    inputs: dict[str, tuple[str, Shape]] = {
        each: ("float32", ("N", "L" if each == "q" else "S", 4 * heads)) for each in "qkv"
    }
    arrays = {"split": [0, 0, heads, 4], "join": [0, 0, 4 * heads], "scale": np.float32(0.5)}
    return saved(folder, nodes, inputs, arrays, ("out",))


SEPARATE = ("q_proj", "k_proj", "v_proj", "o_proj")
SMALL = Case(seed=1, batch=2, queries=4, keys=4, heads_count=3, head_dim=8)
UNNAMED = tuple(f"onnx::MatMul_{n}" for n in range(4))


def layer(
    folder: Path,
    *,
    names: tuple[str, ...] = SEPARATE,
    gemm: bool = False,
    mask: bool = False,
    sequence_first: bool = False,
    by_head: bool = False,
    change: str = "",
) -> str:
    """Return the file of a layer of three heads of width 8 on x; ``change`` plants a bug.

    Of two names, the first is that of a packed projection.
    """
    from onnx.helper import make_attribute, make_node

    rng = np.random.default_rng(4)
    heads, width = 3, 24
    arrays: dict[str, Any] = {"split": [0, 0, heads, width // heads], "join": [0, 0, width]}
    arrays |= {"scale": np.float32(1 if change == "scale-none" else 8**-0.5)}
    turn = make_node("Transpose" if sequence_first else "Identity", ["x"], ["r"])
    turn.attribute.extend([make_attribute("perm", [1, 0, 2])] if sequence_first else [])
    nodes = [turn]

    def linear(rows: str, name: str, made: str, many: int = 1) -> None:
        weight = rng.standard_normal((width, many * width)) / 5
        arrays[name] = (weight.T if gemm else weight).astype("float32")
        arrays[f"{name}.bias"] = rng.standard_normal(many * width).astype("float32")
        turned = f"{name}.turned"
        nodes.extend([make_node("Transpose", [name], [turned], perm=[1, 0])] if gemm else [])
        nodes.append(make_node("MatMul", [rows, turned if gemm else name], [f"{made}0"]))
        nodes.append(make_node("Add", [f"{made}0", f"{name}.bias"], [made]))

    if len(names) == 2:
        linear("r", names[0], "qkv", 3)
        split = ["q", "k", "v"]
        if by_head:
            arrays["whole"] = [0, 0, heads, 3 * width // heads]
            nodes += [make_node("Reshape", ["qkv", "whole"], ["rows3"])]
            split = ["q4", "k4", "v4"]
        nodes += [make_node("Split", ["rows3" if by_head else "qkv"], split, axis=-1)]
    else:
        for name, made in zip(names, "kqv" if change == "exchanged" else "qkv", strict=False):
            linear("r", name, made)
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [] if by_head else [make_node("Reshape", [name, "split"], [f"{name}4"])]
        nodes += [make_node("Transpose", [f"{name}4"], [f"{name}h"], perm=perm)]
    nodes += [make_node("MatMul", ["qh", "kh"], ["s"]), make_node("Mul", ["s", "scale"], ["t"])]
    inputs: dict[str, tuple[str, Shape]] = {"x": ("float32", ("N", "L", width))}
    if mask:
        inputs["attn_mask"] = ("float32", ("L", "S"))
        nodes += [make_node("Add", ["t", "attn_mask"], ["masked"])]
    nodes += [
        make_node("Softmax", ["masked" if mask else "t"], ["p"], axis=-1),
        make_node("MatMul", ["p", "vh"], ["mixed"]),
        make_node("Transpose", ["mixed"], ["rows"], perm=[0, 2, 1, 3]),
        make_node("Reshape", ["rows", "join"], ["merged"]),
    ]
    linear("merged", names[-1], "last")
    back = make_node(turn.op_type, ["last"], ["out"])
    back.attribute.extend(turn.attribute)
    return saved(folder, [*nodes, back], inputs, arrays, ("out",))


def judged(file: str, num_heads: int | None = None, **options: Any) -> Verdict:
    """Return the verdict on a model in this process."""
    few = {"cases": 12, "diagnose": False, "shrink": False} | options
    bound = bind(load.load(file), label="model.onnx", num_heads=num_heads)
    return check(MonitoredCandidate(bound), Options(**few))


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({}, {"heads=many", "dtype=float32", "v_dim=other"}),
        ({"dtype": "float64"}, {"dtype=float64"}),
        ({"dtype": "float16"}, {"dtype=float16"}),
        ({"mask": "bool"}, {"attn=bool3d", "padding=lengths", "masked_rows=some"}),
        ({"mask": "float32"}, {"attn=float3d", "padding=float"}),
        ({"shape": ("N", "L", "D")}, {"heads=one", "layout=batch_first"}),
        ({"order": "kvq"}, {"heads=many"}),
        ({"outputs": ("out", "p")}, {"weights=per_head"}),
        ({"shape": ("L", "D")}, {"heads=one", "layout=unbatched"}),
        ({"shape": ("N", 3, "L", 8)}, {"heads=many"}),
    ],
    ids=FORMS,
)
def test_right_graphs_pass_in_what_they_declare(
    tmp_path: Path, settings: dict[str, Any], offered: set[str]
) -> None:
    """Ranks, dtypes and masks follow from the inputs of the graph, and nothing fails."""
    found = judged(exported(tmp_path, **settings))
    assert "onnx" == found.convention
    assert (0, 0) == (found.failed, found.inconclusive), str(found)
    seen = {f"{r.axis}={r.value}" for r in found.features if r.status != "not offered"}
    assert offered <= seen
    if 3 in settings.get("shape", ()):
        assert "judged at its own sizes alone: num_heads 3, head_dim 8" == found.notes[0]


@pytest.mark.parametrize(
    ("mask", "change", "said"),
    [("", "scale-none", "scale-none"), ("bool", "inverted", "the mask is inverted")],
)
def test_wrong_graphs_fail_by_their_bug_s_name(
    tmp_path: Path, mask: str, change: str, said: str
) -> None:
    """Scores that are not divided, and a mask that hides where it is True, are named."""
    found = judged(exported(tmp_path, mask=mask, change=change), diagnose=True, cases=20)
    assert not found.holds
    assert any(said in f"{each.bug} {each.title}" for each in found.diagnosis)


def test_heads_are_read_from_the_graph_or_said(tmp_path: Path) -> None:
    """Rows of three heads pass as three, read from the Reshape, and fail as two."""
    found = judged(merged(tmp_path))
    assert (0, 0) == (found.failed, found.inconclusive), str(found)
    assert "heads_count 3, head_dim 4" in found.notes[0]
    assert judged(merged(tmp_path), num_heads=2).failed


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "q_proj as w_q, q_proj.bias as b_q, k_proj as w_k"),
        ({"gemm": True, "mask": True}, "o_proj as w_out, o_proj.bias as b_out"),
        ({"names": UNNAMED}, "onnx::MatMul_2 as w_v, onnx::MatMul_2.bias as b_v, onnx::MatMul_3"),
        ({"sequence_first": True}, "k_proj.bias as b_k"),
        ({"names": ("in_proj_weight", "out_proj")}, "in_proj_weight as w_q w_k w_v"),
        ({"names": ("a.qkv", "a.proj"), "by_head": True}, "a.qkv as w_q w_k w_v"),
        ({"names": UNNAMED[:2]}, "onnx::MatMul_0.bias as b_q b_k b_v, onnx::MatMul_1 as w_out"),
    ],
    ids=["named", "transposed", "unnamed", "sequence-first", "packed", "by-head", "packed-unnamed"],
)
def test_layers_pass_with_the_weights_of_the_graph(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    """Initialisers are read by name or by use, and the report says which went where."""
    # Three heads of three parts: [0, 0, 3, 24] may be (N, L, 3, E) as well.
    found = judged(layer(tmp_path, **settings), 3 if "by_head" in settings else None)
    assert "onnx-layer" == found.convention
    assert (0, 0) == (found.failed, found.inconclusive), str(found)
    assert said in found.notes[0]
    first = "sequence_first" if "sequence_first" in settings else "batch_first"
    assert {first} == {r.value for r in found.features if r.axis == "layout" and r.cases}


@pytest.mark.parametrize(("change", "bug"), [("scale-none", "scale-none"), ("exchanged", "qk")])
def test_wrong_layers_fail_by_their_bug_s_name(tmp_path: Path, change: str, bug: str) -> None:
    """Scores that are not scaled, and initialisers of q and k that are exchanged, are named."""
    found = judged(layer(tmp_path, change=change), diagnose=True, cases=20)
    assert found.failed
    assert bug in str(found.diagnosis[0].bug)


def test_a_fresh_process_answers_alike(tmp_path: Path) -> None:
    """One that makes no small calls at first finds how packed rows lie all the same."""
    file = layer(tmp_path, names=("a.qkv", "a.proj"), by_head=True)
    with isolated(file, num_heads=3) as candidate, candidate.fresh() as fresh:
        own = candidate.facts.own_weights
        assert own is not None
        problem = own.problem(make_problem(own.case(SMALL)))
        assert own.are_of(problem)
        np.testing.assert_array_equal(candidate(problem).output, fresh(problem).output)
        other = make_problem(own.case(SMALL))
        np.testing.assert_array_equal(candidate(other).output, fresh(other).output)


def test_two_layers_in_a_graph_are_refused(tmp_path: Path) -> None:
    """Where a projection has two weights by their names, none of them is taken for it."""
    with pytest.raises(TargetError, match=r"with the weights q_proj, .* export that alone\.$"):
        bind(load.load(layer(tmp_path, names=("q_proj", "k_proj", "v_proj", "layers.1.q_proj"))))


def test_heads_that_no_constant_says_are_asked_for(tmp_path: Path) -> None:
    """Of a Reshape to a computed shape the number of heads is no guess."""
    import onnx

    file = layer(tmp_path)
    model = onnx.load(file)
    (split,) = [each for each in model.graph.initializer if each.name == "split"]
    split.name = "said"
    model.graph.node.insert(0, onnx.helper.make_node("Abs", ["said"], ["split"]))
    onnx.save(model, file)
    with pytest.raises(TargetError, match=r"how many heads it has; pass --num-heads N\.$"):
        bind(load.load(file))


def test_other_weights_are_put_into_the_graph(tmp_path: Path) -> None:
    """A problem of the layer's sizes with weights of its own is answered by these weights."""
    bound = bind(load.load(layer(tmp_path)))
    problem = make_problem(bound.plain_case())
    expected = attention_in_float64(problem, causal=False)
    np.testing.assert_allclose(bound(problem).output, expected, atol=1e-5)
    with pytest.raises(CandidateError, match=r"the graph has sizes of its own"):
        bound(make_problem(bound.plain_case().replace(heads_count=2)))


@pytest.mark.parametrize("shape", [HEADS, ("N", 2, "L", 4)], ids=["dynamic", "narrow"])
def test_a_mask_of_another_name_is_found_out(tmp_path: Path, shape: Shape) -> None:
    """What True means in it is seen by small calls and said, and no case fails.

    So it is of heads that are narrower than the experiment's seven keys.
    """
    found = judged(exported(tmp_path, mask="bool", name="visible_mask", shape=shape))
    assert (0, 0) == (found.failed, found.inconclusive), str(found)
    assert any("`visible_mask`: True keeps" in note for note in found.notes)


def test_a_model_is_loaded_in_its_own_process(tmp_path: Path) -> None:
    """The command's way: the worker loads the file, and the verdict is the same."""
    with isolated(exported(tmp_path)) as candidate:
        found = check(candidate, Options(cases=10, diagnose=False, shrink=False))
    assert (0, 0) == (found.failed, found.inconclusive), str(found)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"shape": ("N", "H", 16, "D")}, r"q \(\?, \?, 16, \?\), but the numbers of samples, que"),
        ({"name": "extra", "mask": "float32"}, r"extra float32 .* should have q, k and v of one"),
        ({"shape": ("N", "H", "G", "L", "D")}, r"but should have q, k and v of one rank and dtype"),
    ],
    ids=["static", "inputs", "rank"],
)
def test_graphs_of_another_form_are_refused(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    """Static lengths, unknown inputs and other ranks are one sentence each."""
    with pytest.raises(TargetError, match=sentence):
        bind(load.load(exported(tmp_path, **settings)))


def test_what_cannot_be_loaded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, a damaged one, and no onnxruntime are one sentence each."""
    with pytest.raises(TargetError, match=r"there is no file none\.onnx; check the path\.$"):
        load.load("none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07damaged")
    with pytest.raises(TargetError, match=r"bad\.onnx', but onnxruntime says: "):
        load.load(str(tmp_path / "bad.onnx"))
    monkeypatch.setattr(onnx_model, "find_spec", lambda _: None)
    with pytest.raises(
        TargetError, match=r"not both installed; pip install 'mha-parity\[onnx\]'\.$"
    ):
        load.load("none.onnx")
