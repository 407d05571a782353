"""Exported models are judged through onnxruntime: right graphs pass, wrong ones are named.

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
from mha_parity.targets import load, onnx_model
from mha_parity.targets.bind import bind
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
    ids=[
        "plain",
        "float64",
        "float16",
        "bool",
        "added",
        "one-head",
        "order",
        "weights",
        "one-sample",
        "static-heads",
    ],
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
        assert "judged at the sizes that it declares: heads_count 3, head_dim 8" == found.notes[0]


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


def test_a_mask_of_another_name_is_found_out(tmp_path: Path) -> None:
    """What True means in it is seen by small calls and said, and no case fails."""
    found = judged(exported(tmp_path, mask="bool", name="visible_mask"))
    assert (0, 0) == (found.failed, found.inconclusive), str(found)
    assert any("`visible_mask`: True or 1 keeps" in note for note in found.notes)


def test_a_model_is_loaded_in_its_own_process(tmp_path: Path) -> None:
    """The command's way: the worker loads the file, and the verdict is the same."""
    with isolated(exported(tmp_path)) as candidate:
        found = check(candidate, Options(cases=10, diagnose=False, shrink=False))
    assert (0, 0) == (found.failed, found.inconclusive), str(found)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"shape": ("N", "H", 16, "D")}, r"q \(\?, \?, 16, \?\), but numbers of samples, quer"),
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
    with pytest.raises(TargetError, match=r"is not installed; pip install 'mha-parity\[onnx\]'\.$"):
        load.load("none.onnx")
