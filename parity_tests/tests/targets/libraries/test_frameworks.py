"""Other people's attention layers pass, each in its own library's arrays.

JAX and Keras are installed by ``make test-frameworks`` alone; elsewhere these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import TargetError
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.run.check import check
from mha_parity.targets.conventions.keras_layer import to_keras
from mha_parity.worker.client import isolated

LAYER = Case(
    seed=3, batch=2, queries=5, keys=7, heads_count=3, head_dim=2, inputs="distinct", bias="yes"
)


def needs(name: str) -> pytest.MarkDecorator:
    """Skip by name where a framework is not installed."""
    absent = find_spec(name) is None
    return pytest.mark.skipif(absent, reason=f"{name} is not installed; make test-frameworks does")


def judged(target: str, cases: int, **changes: object) -> Verdict:
    """Return the verdict on a target in a process of its own."""
    options = Options(cases=cases, diagnose=False, shrink=False, **changes)  # type: ignore[arg-type]  # fields vary in type
    with isolated(target, timeout=120.0) as candidate:
        return check(candidate, options)


def assert_passes(verdict: Verdict, convention: str) -> None:
    """Assert that nothing failed, and how the target was called."""
    assert convention == verdict.convention
    assert [] == [failure.check_result.detail for failure in verdict.failures]


@pytest.mark.frameworks
def test_torch_s_own_module_passes() -> None:
    """torch.nn.MultiheadAttention is a candidate like any other, with everything it takes."""
    verdict = judged("torch.nn:MultiheadAttention", 200)
    assert_passes(verdict, "torch-module")
    offered = {f"{r.axis}={r.value}" for r in verdict.features if r.status != "not offered"}
    assert {"bias_kv=yes", "zero_attn=yes", "projection=separate", "dtype=bfloat16"} <= offered


@pytest.mark.frameworks
@needs("jax")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_jax_s_attention_passes(dtype: str) -> None:
    """jax.nn.dot_product_attention passes in the types that JAX has by default.

    The reason why float64 is not offered says how it is.
    """
    verdict = judged("jax.nn:dot_product_attention", 10, dtypes=(dtype,))
    assert_passes(verdict, "jax-attention")
    (row,) = (row for row in verdict.features if row.value == "float64")
    assert "jax has no such arrays unless JAX_ENABLE_X64=1 is set" == row.reason


@pytest.mark.frameworks
@needs("jax")
def test_jax_loses_half_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX takes its softmax in float32 whatever the inputs are, and that is found."""
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    verdict = judged("jax.nn:dot_product_attention", 10, dtypes=("float64",))
    if not verdict.failed:
        pytest.skip("this JAX computes float64 in float64")
    assert {"output"} == {row.name for row in verdict.checks if row.failed} - {"systematic error"}


@pytest.mark.frameworks
@needs("jax")
@pytest.mark.parametrize(("name", "fails"), [("right", False), ("unscaled", True)])
def test_a_function_of_jax_arrays_is_judged(tmp_path: Path, name: str, fails: bool) -> None:
    """A function written with jax.numpy is called with the arrays that it takes."""
    (tmp_path / "written_in_jax.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def attend(Q, K, V, n_heads, scale):\n"
        "    q, k, v = (jnp.stack(jnp.split(jnp.asarray(a), n_heads, 1)) for a in (Q, K, V))\n"
        "    weights = jax.nn.softmax(q @ k.swapaxes(1, 2) * scale(q), axis=-1)\n"
        "    return jnp.concatenate(list(weights @ v), axis=1)\n"
        "def right(Q, K, V, n_heads):\n"
        "    return attend(Q, K, V, n_heads, lambda q: q.shape[-1] ** -0.5)\n"
        "def unscaled(Q, K, V, n_heads):\n"
        "    return attend(Q, K, V, n_heads, lambda q: 1.0)\n",
        encoding="utf-8",
    )
    verdict = judged(f"{tmp_path}/written_in_jax.py:{name}", 8, dtypes=("float32",))
    assert fails == (verdict.failed > 0)


@pytest.mark.frameworks
@needs("jax")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("compiled", ""),
        ("of_weights", ""),
        ("stopped", "gradient of key"),
        ("derived", "gradient of query"),
    ],
)
def test_gradients_of_jax_are_judged(tmp_path: Path, name: str, wrong: str) -> None:
    """``jax.vjp`` follows arguments, weights in a dictionary too; one that stops is seen.

    Of a function with its own derivative they are judged unasked.
    """
    (tmp_path / "gradients_of_jax.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def attend(q, k, v):\n"
        "    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, axis=-1)\n"
        "    return weights @ v\n"
        "compiled = jax.jit(attend)\n"
        "def stopped(q, k, v):\n"
        "    return attend(q, jax.lax.stop_gradient(k), v)\n"
        "derived = jax.custom_vjp(attend)\n"
        "def forward(q, k, v):\n"
        "    return jax.vjp(attend, q, k, v)\n"
        "def backward(pull, given):\n"
        "    dq, dk, dv = pull(given)\n"
        "    return 2 * dq, dk, dv\n"
        "derived.defvjp(forward, backward)\n"
        "def of_weights(params, x, n_heads):\n"
        "    rows = x.shape[:2]\n"
        "    def heads(name):\n"
        "        return (x @ params[name]).reshape(*rows, n_heads, -1).swapaxes(1, 2)\n"
        "    mixed = attend(heads('w_q'), heads('w_k'), heads('w_v')).swapaxes(1, 2)\n"
        "    return mixed.reshape(*rows, -1) @ params['w_o']\n",
        encoding="utf-8",
    )
    target = f"{tmp_path}/gradients_of_jax.py:{name}"
    verdict = judged(target, 5, dtypes=("float32",), grad=name != "derived")
    failed = {row.name for row in verdict.checks if row.failed}
    assert (wrong in failed) if wrong else not verdict.failed, verdict


@pytest.mark.frameworks
@needs("keras")
@pytest.mark.parametrize(("backend", "cases"), [("torch", 120), ("jax", 10)])
def test_keras_s_layer_passes(backend: str, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """keras.layers.MultiHeadAttention passes in float32, Keras's own type, on each backend."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    verdict = judged("keras.layers:MultiHeadAttention", cases, dtypes=("float32",), grad=True)
    assert_passes(verdict, "keras-layer")
    asked = {row.name for row in verdict.checks}
    assert {f"gradient of {name}" for name in ("query", "in_proj_weight", "out_proj.bias")} <= asked
    assert {"dropout off", "dropout rescales", "dropout of everything"} <= asked
    # Keras returns the weights before dropout, and says so: that is its own.
    assert "dropped weights returned" not in asked


@pytest.mark.frameworks
@needs("keras")
def test_keras_loses_half_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 Keras 3 goes through float32 unless scores are returned, and that is found."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    verdict = judged("keras.layers:MultiHeadAttention", 60, dtypes=("float64",))
    if not verdict.failed:
        pytest.skip("this Keras computes float64 in float64")
    failed = {f"{row.axis}={row.value}": row.failed for row in verdict.features}
    assert failed["weights=none"] == verdict.failed
    assert 0 == failed["weights=per_head"]


@pytest.mark.frameworks
@needs("keras")
def test_keras_without_a_backend_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras asks for TensorFlow by default; the sentence has the remedy."""
    if find_spec("tensorflow") is not None:
        pytest.skip("TensorFlow is installed")
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    with (
        isolated("keras.layers:MultiHeadAttention") as candidate,
        pytest.raises(TargetError, match="set KERAS_BACKEND to a library that is installed"),
    ):
        candidate.ready()


STATES = {
    "packed": LAYER,
    "packed_without_bias": LAYER.replace(bias="no", out_proj="general"),
    "separate": LAYER.replace(projection="separate", kdim=8, vdim=9, out_proj="general"),
}


def to_torch(weights: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of a Keras layer as torch's state dict; the inverse of ``to_keras``."""
    biased = len(weights) == 8
    kernels = [np.asarray(w) for w in (weights[::2] if biased else weights)]
    flat = [kernel.reshape(kernel.shape[0], -1).T for kernel in kernels[:3]]
    same = len({each.shape for each in flat}) == 1
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    state: dict[str, np.ndarray] = dict(zip(names, flat, strict=True))
    if same:
        state = {"in_proj_weight": np.concatenate(flat)}
    state["out_proj.weight"] = kernels[3].reshape(-1, kernels[3].shape[-1]).T
    if biased:
        biases = [np.asarray(weight).ravel() for weight in weights[1::2]]
        state |= {"in_proj_bias": np.concatenate(biases[:3]), "out_proj.bias": biases[3]}
    return state


@pytest.mark.parametrize("case", STATES.values(), ids=STATES)
def test_weights_go_to_keras_and_back(case: Case) -> None:
    """The weights of a layer survive the way into Keras's shapes and back into torch's."""
    problem = make_problem(case)
    expected = problem.state()
    actual = to_torch(to_keras(expected, problem))
    for name, array in expected.items():
        np.testing.assert_array_equal(array, actual[name])
    assert set(actual) - set(expected) <= {"out_proj.weight", "out_proj.bias"}


def test_kernels_have_an_axis_of_heads() -> None:
    """Head h of Keras's query kernel holds the rows of W_q that torch gives head h."""
    problem = make_problem(LAYER)
    state: Mapping[str, np.ndarray] = problem.state()
    kernel = to_keras(state, problem)[0]
    assert (6, 3, 2) == kernel.shape
    for head in range(3):
        rows = state["in_proj_weight"][2 * head : 2 * head + 2]
        np.testing.assert_array_equal(rows.T, kernel[:, head])
