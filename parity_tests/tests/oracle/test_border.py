"""What the oracle accepts, refuses, and leaves as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import mha_torch
from mha_torch import Path, PathNotTakenError, describe, multihead_attention
from mha_torch.example import example

H = 3


def options(**changes: Any) -> dict[str, Any]:
    """Return the options of a plain call with some changed."""
    return {"num_heads": H, **changes}


BAD = {
    "layout=rows_first": (options(layout="rows_first"), {}, "`layout`='rows_first', but should be"),
    "dtype=int8": (options(dtype="int8"), {}, "`dtype`='int8', but should be one of float64"),
    "state={Wq}": (options(), {"Wq": np.eye(21)}, r"`state` has \['Wq'\], but its names"),
    "dtype=float32 of float64": (options(dtype="float32"), {}, "not representable in float32"),
}


@pytest.mark.parametrize("call", BAD)
def test_bad_calls_are_refused(call: str) -> None:
    """Each refusal names the argument, its value, and what it should be."""
    given, more, message = BAD[call]
    case = example(0)
    with pytest.raises(ValueError, match=message):
        multihead_attention(case.query, case.key, case.value, {**case.state, **more}, **given)


def test_separate_weights_are_needed_for_other_widths() -> None:
    """Keys of another width cannot be projected by the packed weight."""
    case, other = example(0), example(0, kdim=13)
    with pytest.raises(ValueError, match="kdim=13 and vdim=21 need q_proj_weight"):
        multihead_attention(other.query, other.key, other.value, case.state, num_heads=H)


OBSTACLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "not one tensor": ({"heads": 4}, {}),
    "heads is odd": ({"self_attention": True}, {}),
    "layout is sequence_first": (
        {"self_attention": True, "heads": 4},
        {"layout": "sequence_first"},
    ),
    "mask is of floating point": (
        {"self_attention": True, "heads": 4},
        {"attn_mask": np.zeros((5, 5))},
    ),
    "bias_k and bias_v are set": ({"self_attention": True, "heads": 4, "bias_kv": True}, {}),
    "add_zero_attn is set": ({"self_attention": True, "heads": 4}, {"add_zero_attn": True}),
    "there is no bias": ({"self_attention": True, "heads": 4, "bias": False}, {}),
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_fast_path_says_why_not(reason: str) -> None:
    """Where torch would quietly take the slow path instead, the oracle says why."""
    features, given = OBSTACLES[reason]
    case = example(0, **features)
    with pytest.raises(PathNotTakenError, match=reason):
        multihead_attention(*case.arrays, num_heads=case.num_heads, path=Path.FAST, **given)


def test_fast_path_is_really_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """On FAST torch's fused operator is called, on WEIGHTS it is not."""
    calls = []
    fused = torch._native_multi_head_attention

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return fused(*arguments)

    monkeypatch.setattr(torch, "_native_multi_head_attention", counted)
    case = example(0, heads=4, self_attention=True)
    multihead_attention(*case.arrays, num_heads=4)
    assert not calls
    multihead_attention(*case.arrays, num_heads=4, path=Path.FAST)
    assert calls


def test_flash_says_why_not() -> None:
    """A kernel that refuses is quoted with its reason."""
    query, key = np.zeros((1, 2, 3, 5)), np.zeros((1, 2, 7, 5))
    with pytest.raises(PathNotTakenError, match="same last dimension"):
        mha_torch.scaled_dot_product_attention(query, key, np.zeros((1, 2, 7, 4)), backend="flash")


def test_global_state_is_left_alone() -> None:
    """A switched-off fast path, the thread count and the grad mode survive every path."""
    case = example(0, heads=4, self_attention=True)

    def state() -> list[Any]:
        return [
            torch.backends.mha.get_fastpath_enabled(),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch._C._get_flash_sdp_enabled(),
            torch._C._get_math_sdp_enabled(),
        ]

    torch.backends.mha.set_fastpath_enabled(False)
    try:
        before = state()
        for path in Path:
            multihead_attention(*case.arrays, num_heads=4, path=path)
            assert before == state()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("path", list(Path), ids=str)
def test_inputs_are_never_modified(path: Path) -> None:
    """Read-only, reversed, Fortran-ordered inputs are taken as they are and left as they were."""
    case = example(0, heads=4, self_attention=True)
    with_gradients = np.asfortranarray(case.query)[::-1, ::-1]
    with_gradients.flags.writeable = False
    copy = with_gradients.copy()
    arrays = (with_gradients, with_gradients, with_gradients)
    output, _ = multihead_attention(*arrays, case.state, num_heads=4, path=path)
    expected, _ = multihead_attention(copy, copy, copy, case.state, num_heads=4, path=path)
    np.testing.assert_array_equal(with_gradients, copy)
    np.testing.assert_array_equal(expected, output)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_dtype_in_dtype_out(name: str) -> None:
    """The answer has the dtype torch computed in, bfloat16 included."""
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    case = example(0)
    query, key, value = (array.astype(dtype) for array in (case.query, case.key, case.value))
    state = {entry: array.astype(dtype) for entry, array in case.state.items()}
    output, weights = multihead_attention(query, key, value, state, num_heads=H, dtype=name)
    assert weights is not None
    assert (dtype, dtype) == (output.dtype, weights.dtype)
    reference, _ = multihead_attention(query, key, value, state, num_heads=H)
    # Outputs are of order 1 and each of about 60 roundings is at most half an eps of that.
    eps = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}[name]
    assert np.abs(output.astype(np.float64) - reference).max() < 30 * eps


def test_threads_do_not_share_a_module() -> None:
    """Two threads with different weights of one configuration each get their own answer."""
    cases = [example(seed) for seed in range(4)]
    expected = [multihead_attention(*case.arrays, num_heads=H)[0] for case in cases]
    wrong = []

    def work(index: int) -> None:
        for _ in range(50):
            output, _ = multihead_attention(*cases[index].arrays, num_heads=H)
            if not np.array_equal(expected[index], output):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_second_oracle_loads_no_torch() -> None:
    """`import mha_torch.plain` and the names of paths bring in NumPy alone."""
    code = "import sys, mha_torch.bound; mha_torch.Path; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name_is_an_attribute_error() -> None:
    """The lazy package fails as an eager one would."""
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = mha_torch.nothing


def test_public_names_are_true() -> None:
    """Everything in `__all__` can be had."""
    assert mha_torch.__all__
    assert all(getattr(mha_torch, name) is not None for name in mha_torch.__all__)


def test_description_names_the_path() -> None:
    """The report can say which torch answered, and along which path."""
    found = describe()
    assert torch.__version__ == found["torch"]
    assert "need_weights=True, explicit masks" in found["oracle_path"]


def test_oracle_loads_no_compiler() -> None:
    """No path, gradient, appended key or NaN makes torch load its compiler, a second of work."""
    code = """
import sys, numpy, torch, mha_torch
before = set(sys.modules)
from mha_torch.example import example
case = example(0, bias_kv=True)
for path in set(mha_torch.Path) - {mha_torch.Path.FAST}:
    mha_torch.multihead_attention(*case.arrays, num_heads=3, is_causal=True, path=path)
mha_torch.multihead_attention(case.query * numpy.nan, case.key, case.value, {}, num_heads=3)
mha_torch.gradients(*case.arrays, case.query, num_heads=3)
compiler = {'torch._dynamo', 'sympy'}
if torch.__version__ < torch.torch_version.TorchVersion('2.13'):
    compiler = {'torch._dynamo'}  # those load sympy for plain operators
loaded = compiler & (set(sys.modules) - before)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
