"""Layers of one's own in Keras, and functions of TensorFlow's tensors, are judged as they stand.

The libraries are installed by ``make test-frameworks`` alone; elsewhere these tests are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.libraries.library_layers import as_layer
from mha_parity.worker.client import isolated
from subject_checks import SUBJECTS, checks_of

judged_function = checks_of("tensorflow_functions.py", cases=24)
needs_keras = pytest.mark.skipif(
    find_spec("keras") is None, reason="Keras is not installed; make test-frameworks does"
)
needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="TensorFlow is not installed; make test-frameworks does"
)
BACKENDS = [
    "torch",
    pytest.param("jax", marks=pytest.mark.skipif(
        find_spec("jax") is None, reason="JAX is not installed; make test-frameworks does")),
    pytest.param("tensorflow", marks=needs_tensorflow),
]  # fmt: skip
pytestmark = pytest.mark.frameworks


def _judged(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch, *, grad: bool = False
) -> Verdict:
    """Return the verdict of a process whose Keras has a backend, in Keras's own type.

    In float64 some of its operations compute in float32, which is found. JAX compiles each
    operation for each shape: it gets fewer cases.
    """
    cases = 6 if backend == "jax" else 16
    options = Options(cases=cases, dtypes=("float32",), diagnose=False, shrink=False, grad=grad)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    with isolated(f"{SUBJECTS}/keras_layers.py:{name}", timeout=120.0) as candidate:
        return check(candidate, options)


@needs_keras
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["ByDense", "OwnWeights", "ByItsOwnCall"])
def test_right_layers_pass(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that a first call or `build` makes are found by the attributes that hold them."""
    verdict = _judged(name, backend, monkeypatch)
    assert 0 == verdict.failed, verdict
    assert verdict.passed
    (how,) = (note for note in verdict.notes if note.startswith("called with params."))
    assert ("params.w_qkv" if name == "OwnWeights" else "params.wq.kernel") in how


@needs_keras
@pytest.mark.parametrize("name", ["ByDenseUnscaled", "KeepsFirstKeys", "ByItsOwnCallUnscaled"])
def test_wrong_layers_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a wrong scale and of keys that are kept."""
    verdict = _judged(name, "torch", monkeypatch)
    assert verdict.failed, verdict


@needs_keras
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_judged_on_each_backend(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of inputs and of weights, which lead through the layer's variables."""
    verdict = _judged("ByDense", backend, monkeypatch, grad=True)
    assert 0 == verdict.failed, verdict
    assert verdict.passed
    assert {"gradients": "yes"} == {
        row.axis: row.value for row in verdict.features if row.axis == "gradients" and row.cases
    }


@needs_keras
def test_gradients_that_are_cut_off_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the keys' weights are 0, or there are none."""
    verdict = _judged("CutOffKeys", "torch", monkeypatch, grad=True)
    assert verdict.failed
    assert all(each.check_result.check.startswith("gradient of") for each in verdict.failures)


@needs_keras
def test_a_layer_that_is_used_again_is_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Keras layer serves two objects, the second without what a call of the first left."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    stands = as_layer(load.load(f"{SUBJECTS}/keras_layers.py:KeepsFirstKeys"))
    rows = np.ones((2, 3, 8), np.float32)
    first = stands(8, 2)
    first.initialise(x=rows[:, :2])
    call, made = first.first_call, first.params
    first(rows)
    used = first.held.layer
    (left,) = used.kept
    del first
    again = stands(8, 2)
    again.first_call, again.params = call, made
    again(2 * rows)
    assert used is again.held.layer
    assert left is not used.kept[0]


@needs_keras
def test_a_norm_and_a_residual_around_it_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of torch's layers; Keras's own attention within has kernels with an axis of heads."""
    verdict = _judged("WithinAnother", "torch", monkeypatch)
    assert any("`params.norm` taken out" in note for note in verdict.notes), verdict
    assert any("params.attention.query_dense.kernel" in note for note in verdict.notes)


@needs_tensorflow
@pytest.mark.parametrize("name", ["attention", "traced"])
def test_right_functions_pass_with_gradients(name: str) -> None:
    """In all four dtypes, and by the tape."""
    verdict = judged_function(name, grad=True)
    assert 0 == verdict.failed, verdict
    assert verdict.passed


@needs_tensorflow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unscaled", "the scores are not scaled"),
        ("halves_the_gradient", "gradient dK is 0.5 times the right one, in all heads and rows"),
    ],
)
def test_wrong_functions_fail(name: str, said: str) -> None:
    """By their scale, and by the gradient of the keys alone."""
    verdict = judged_function(name, grad=True, diagnose=True)
    assert verdict.failed, verdict
    assert said in [each.title for each in verdict.diagnosis]


@needs_tensorflow
def test_a_boolean_that_stays_one_is_no_mask() -> None:
    """`True * -1e9` is True in TensorFlow, and lifts a score by 1: ones and zeros are the mask."""
    verdict = judged_function("cast_late", dtypes=("float32",))
    assert 0 == verdict.failed, verdict
    (mask,) = (each for each in verdict.parameters if "mask" == each.name)
    assert mask.meaning.startswith("1.0 hides"), mask
