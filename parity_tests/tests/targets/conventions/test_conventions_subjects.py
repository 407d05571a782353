"""Right attentions of every style pass by each convention; wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet
from torch.nn.attention import SDPBackend, sdpa_kernel

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.backends.numpy_arrays import NumpyArrays
from mha_parity.targets.bind import KNOWN, bind
from mha_parity.targets.convention_base.convention import Convention
from mha_parity.targets.convention_by_signature import recognise
from subject_checks import SUBJECTS

# The five documents the project grew from, each style as functions and as classes or objects.
RIGHT = {
    "projected.py:f": "qkv-heads",
    "projected.py:single_head": "qkv",
    "projected.py:project": "projections",
    "as_classes.py:Parallel.multi_head_attention": "qkv-heads",
    "as_classes.py:Parallel.self_attention": "qkv",
    "as_classes.py:Parallel.compute_qkv": "projections",
    "packed_weights.py:f": "x-weights-heads",
    "packed_weights.py:single_head": "x-weights",
    "valid_lengths.py:Attention": "module-valid-lens",
    "valid_lengths.py:attend": "fitted",
    "keep_mask.py:Looped": "module-mask",
    "keep_mask.py:Stacked": "module-mask",
    "keep_mask.py:attend": "fitted",
    "like_torch.py:Attention": "torch-module",
    "like_torch.py:attend": "sdpa",
    "packed_samples.py:varlen": "varlen",
    "torch_function.py:f": "qkv-heads",
    "linear_layers.py:Attention": "fitted",
    "linear_layers.py:SelfAttention": "fitted",
    "textbook_layers.py:whole": "x-weights-out-heads",
    "functions_of_weights.py:lists": "fitted",
    "adapters.py:everything": "adapter",
}
# A notebook is not run, so that the objects it would make are not there.
OBJECTS = {
    "as_classes.py:packed": "x-weights-heads",
    "as_classes.py:packed.one_head": "x-weights",
}
# Functions that build a layer: nothing about them says how the layer is called.
BUILDERS = {
    "valid_lengths.py:build": "module-valid-lens",
    "keep_mask.py:build": "module-mask",
    "like_torch.py:build": "torch-module",
}
LIBRARY = {
    "attention.ipynb:f": "qkv-heads",
    "torch.nn:MultiheadAttention": "torch-module",
    "torch.nn.functional:scaled_dot_product_attention": "sdpa",
    "mha_numpy:MultiheadAttention": "torch-module",
    "mha_numpy:scaled_dot_product_attention": "sdpa",
}
WRONG = {
    "wrong_scale.py:f": "qkv-heads",
    "wrong_split.py:f": "qkv-heads",
    "wrong_softmax_axis.py:f": "qkv-heads",
    "wrong_ones.py:one_head": "qkv",
    "wrong_ones.py:project": "projections",
    "wrong/einsums.py:split_badly": "x-weights-heads",
    "wrong_ones.py:one_head_from_x": "x-weights",
    "wrong/lengths.py:OneTooMany": "module-valid-lens",
    "wrong_ones.py:Masked": "module-mask",
    "wrong/layers.py:LateQueryBias": "torch-module",
    "wrong/streams.py:inverted_mask": "sdpa",
    "packed_samples.py:first_lengths": "varlen",
    "functions_of_weights.py:lists_crossed": "fitted",
    "adapters.py:inverted": "adapter",
    "linear_layers.py:Unscaled": "fitted",
    "textbook_layers.py:without_output": "x-weights-out-heads",
}
# One of each kind of object that is found in a notebook: functions, a method, layers, an adapter.
IN_A_NOTEBOOK = (
    "projected.py:f",
    "as_classes.py:Parallel.self_attention",
    "keep_mask.py:Looped",
    "linear_layers.py:Attention",
    "adapters.py:everything",
)
WRONG_IN_A_NOTEBOOK = ("wrong_scale.py:f", "wrong/lengths.py:OneTooMany", "adapters.py:inverted")
CASES = 14
ENOUGH = Options(cases=CASES, diagnose=False, shrink=False)


def few_of(whole: Iterable[str], few: Iterable[str]) -> list[ParameterSet]:
    """Mark those that are not among the few as slow: `make test-all` runs them."""
    return [
        pytest.param(each, marks=() if each in few else pytest.mark.slow, id=each) for each in whole
    ]


def bound(text: str, name: str | None = None) -> Convention:
    """Return a subject of this folder, or of a library, as a candidate."""
    place = text.partition(":")[0]
    whole = f"{SUBJECTS}/{text}" if place.endswith((".py", ".ipynb")) else text
    return bind(load.load(whole), name)


@pytest.fixture
def in_a_notebook(tmp_path: Path) -> Callable[[str], Any]:
    """Put a subject's file into a notebook, between cells that cannot run, and load it there."""

    def loaded(text: str) -> Any:
        file, _, name = text.partition(":")
        nbformat = pytest.importorskip("nbformat")
        code, prose = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
        cells = [
            prose("# A notebook"),
            code("%matplotlib inline\ndata = open('no such file').read()"),
            code((SUBJECTS / file).read_text(encoding="utf-8")),
            code("print(data)"),
        ]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "cells.ipynb")
        return load.load(f"{tmp_path}/cells.ipynb:{name}")

    return loaded


@pytest.mark.repeats(12)
@pytest.mark.parametrize(("text", "convention"), (RIGHT | OBJECTS | LIBRARY).items())
def test_right_ones_are_recognised_and_pass(text: str, convention: str) -> None:
    """Each is called by the convention its parameters say, and equals torch in every case."""
    candidate = bound(text)
    assert convention == candidate.convention
    verdict = check(candidate, ENOUGH)
    assert (CASES, 0, ()) == (verdict.run, verdict.failed, verdict.failures)


@pytest.mark.parametrize(("text", "convention"), BUILDERS.items())
def test_builders_pass_by_a_named_convention(text: str, convention: str) -> None:
    """What a function builds is judged as its class is, where the convention is named."""
    assert 0 == check(bound(text, convention), ENOUGH).failed


@pytest.mark.parametrize("text", few_of(RIGHT, IN_A_NOTEBOOK))
def test_right_ones_pass_in_a_notebook(text: str, in_a_notebook: Callable[[str], Any]) -> None:
    """The same code between a notebook's other cells is found, recognised and right."""
    candidate = bind(in_a_notebook(text))
    assert RIGHT[text] == candidate.convention
    assert 0 == check(candidate, ENOUGH).failed


@pytest.mark.repeats(6)
@pytest.mark.parametrize(("text", "convention"), WRONG.items())
def test_wrong_ones_are_recognised_and_fail(text: str, convention: str) -> None:
    """A wrong attention is called like a right one, and found wrong at a place."""
    candidate = bound(text)
    assert convention == candidate.convention
    verdict = check(candidate, ENOUGH)
    assert verdict.failed > CASES / 8
    assert verdict.failures[0].check_result.where is not None


@pytest.mark.parametrize("text", few_of(WRONG, WRONG_IN_A_NOTEBOOK))
def test_wrong_ones_fail_in_a_notebook(text: str, in_a_notebook: Callable[[str], Any]) -> None:
    """A notebook hides no mistake."""
    candidate = bind(in_a_notebook(text))
    assert WRONG[text] == candidate.convention
    assert Outcome.FAIL is check(candidate, replace(ENOUGH, fail_fast=True)).outcome


def test_every_convention_has_a_right_one_and_a_wrong_one() -> None:
    """No convention goes untested; those of frameworks and programs have tests of their own."""
    others = {"jax-attention", "keras-layer", "exec", "onnx", "onnx-layer"}
    assert set(KNOWN) - others == set(RIGHT.values()) == set(WRONG.values())


class TestOffer:
    """What is offered follows from what a subject takes."""

    def test_functions_of_one_sample_offer_no_batches(self) -> None:
        """A function written for (T, D) is judged on single samples."""
        assert ("unbatched",) == bound("projected.py:f").offer["layout"]

    def test_batches_are_offered_where_they_come_out_in_shape(self) -> None:
        """A function that takes any leading axes is judged with several heads, and one sample."""
        offer = bound("keep_mask.py:attend").offer
        assert ("batch_first", "unbatched") == offer["layout"]
        assert ("one", "many") == offer["heads"]

    def test_a_constructor_without_bias_kv_offers_none(self) -> None:
        """What a torch look-alike's constructor does not name is not offered."""

        class Small(bound("mha_numpy:MultiheadAttention").subject):  # type: ignore[misc]  # a class
            def __init__(self, embed_dim: int, num_heads: int, bias: bool = True) -> None:
                super().__init__(embed_dim, num_heads, bias=bias, dtype="float64")

        offer = bind(Small).offer
        assert ("no", "yes") == offer["bias"]
        assert (("no",), ("no",)) == (offer["bias_kv"], offer["zero_attn"])
        assert ("sequence_first", "unbatched") == offer["layout"]

    def test_a_wider_answer_takes_the_narrower_type_out(self) -> None:
        """float32 answered in float64 is not offered, and the reason is kept."""
        candidate = bound("projected.py:f")
        assert ("float64",) == candidate.offer["dtype"]
        assert "answered in float64" == candidate.reasons["dtype", "float32"]

    def test_a_narrower_answer_takes_the_wider_type_out(self) -> None:
        """float64 answered in float32 is not offered where float32 is answered in float32."""
        right = bound("projected.py:f").subject

        def f(Q: object, K: object, V: object, n_heads: int) -> object:
            return right(Q, K, V, n_heads).astype(np.float32)

        candidate = bind(f)
        assert (("float32",), "computes in float32") == (
            candidate.offer["dtype"],
            candidate.reasons["dtype", "float64"],
        )
        assert {"float64": "float32"} == candidate.answer_dtypes

    def test_an_answer_narrower_than_every_input_is_left_in_to_fail(self) -> None:
        """float64 in float32 and float32 in float16 computes in no dtype: a finding."""
        right = bound("projected.py:f").subject

        def f(Q: np.ndarray, K: object, V: object, n_heads: int) -> object:
            narrower = {8: np.float32, 4: np.float16, 2: np.float32}[Q.dtype.itemsize]
            return right(Q, K, V, n_heads).astype(narrower)

        verdict = check(bind(f), Options(cases=10, diagnose=False))
        assert (10, "computes in float32") == (verdict.failed, verdict.dtype_finding[:19])

    def test_weights_come_as_a_list_of_heads(self) -> None:
        """A list with one matrix a head is brought to (N, H, L, S)."""
        candidate = bound("packed_weights.py:f")
        problem = make_problem(candidate.plain_case().replace(weights="per_head"))
        weights = candidate(problem).weights
        assert weights is not None
        np.testing.assert_allclose(
            weights, reference_answer(problem).weights.astype(np.float64), rtol=0, atol=1e-14
        )


class Takes:
    """Functions whose parameters alone, or one call, say the convention."""

    @staticmethod
    def annotated(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
        """Four, the last a whole number."""

    @staticmethod
    def defaulted(a: object, b: object, c: object, n: int = 2) -> None:
        """Three and a whole number that may be left out."""

    @staticmethod
    def five(x: object, a: object, b: object, c: object, n: object) -> None:
        """Five."""

    @staticmethod
    def keywords(a: object, b: object, c: object, *, scale: object = None) -> None:
        """Three and one of torch's keywords."""

    @staticmethod
    def masked(a: object, b: object, c: object, mask: object = None) -> None:
        """Three, and a mask of unknown polarity that is left alone."""

    @staticmethod
    def spelt(a: object, b: object, c: object, num_heads: object) -> None:
        """Raise on every call: the name has the last word."""
        raise RuntimeError(a, b, c, num_heads)


@pytest.mark.parametrize(
    ("name", "convention"),
    [
        ("annotated", "qkv-heads"),
        ("defaulted", "qkv-heads"),
        ("five", "x-weights-heads"),
        ("keywords", "sdpa"),
        ("masked", "qkv"),
        ("spelt", "qkv-heads"),
    ],
)
def test_recognised_by_order_and_kind(name: str, convention: str) -> None:
    """Spelling does not matter where order, annotations and defaults say enough."""
    assert convention == recognise(getattr(Takes, name), [NumpyArrays()])


class NoLayer:
    """A class whose call is not known."""

    def __init__(self, a: int, b: int) -> None:
        """Take two sizes."""

    def forward(self, a: object, b: object, c: object, d: object, e: object, f: object) -> None:
        """Take six arrays."""


UNSURE = {
    "four_unknown": (
        lambda a, b, c, d: (a / 0, b, c, d)[0],
        "no way to call it .*; nearest tried: .*the output is not finite.*--convention NAME",
    ),
    "two": (
        lambda a, b: (a, b),
        "no way to call it computes attention; nearest tried: .*correlates with attention by",
    ),
    "six": (
        lambda a, b, c, d, e, f: (a, b, c, d, e, f),
        "no way to call it computes attention; nearest tried: .*or name a convention",
    ),
    "class": (NoLayer, "got NoLayer, but no way to call it .*the output is a NoneType"),
    "number": (3, "got 3 of type int, but should be a function or a class"),
    "in_c": (max, "max without a readable signature"),
}


@pytest.mark.parametrize(("subject", "message"), UNSURE.values(), ids=UNSURE)
def test_unsure_says_what_it_saw(
    subject: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no convention or several fit, the sentence has the signature and the remedy.

    The search ends after 100 interpretations: what it says does not depend on their number.
    """
    monkeypatch.setattr("mha_parity.targets.interpretations.try_interpretations.TRIALS", 100)
    with pytest.raises(ValueError, match=message):
        bind(subject)


def test_an_unknown_convention_is_refused() -> None:
    """The nearest name is suggested."""
    with pytest.raises(
        ValueError, match=r"got the convention 'qkv-head'.*did you mean 'qkv-heads'"
    ):
        bind(np.add, "qkv-head")


def flash_takes_any_memory() -> bool:
    """Whether torch's flash kernel for the CPU takes heads whose last axis has gaps; 2.8 does."""
    q = torch.ones((1, 2, 5, 6))[..., ::2]
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize(
    "path", ["weights", "no-weights", "fast", "eval", "sdpa-math", "sdpa-flash"]
)
def test_torch_is_a_candidate_along_each_path(path: str) -> None:
    """Torch's own module, sent along a path, answers every case that the path can compute."""
    module = bound("torch.nn:MultiheadAttention").subject
    candidate = bind(module, path=path)
    for case in draw_cases(candidate.offer, 12, seed=1):
        if path == "sdpa-flash" and case.memory == "fortran" and not flash_takes_any_memory():
            continue
        problem = make_problem(case)
        answer = candidate(problem)
        assert problem.output_shape == answer.output.shape
        assert (case.weights == "none") == (answer.weights is None)


def test_an_unknown_path_is_refused() -> None:
    """The sentence lists the paths."""
    module = bound("torch.nn:MultiheadAttention").subject
    with pytest.raises(ValueError, match="`path`='quick' is unknown, but should be one of weights"):
        bind(module, path="quick")
