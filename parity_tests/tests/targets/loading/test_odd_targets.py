"""Targets that are legal Python and seldom seen are called, or refused in a sentence."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.load import load
from mha_parity.targets.trials.fitted_target import Fitted

QKV = Case(seed=1, batch=1, queries=5, keys=7, heads_count=2, head_dim=3, form="qkv",
           projection="none", inputs="cross", layout="unbatched")  # fmt: skip


class Named(np.ndarray):
    """An array that carries more than its numbers."""


@pytest.mark.parametrize("kind", [Named, np.memmap])
def test_a_subclass_of_ndarray_is_an_array(kind: type[np.ndarray[Any, Any]]) -> None:
    """Its numbers are read as a plain array's. Kills the demand of the type itself."""
    problem = make_problem(QKV)
    output = bind(lambda q, *_: q.view(kind), "qkv-heads", probe=False)(problem).output
    assert type(output) is np.ndarray
    np.testing.assert_array_equal(problem.query, output)


class UnprintableError(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError("no text")


def test_an_exception_without_a_text_is_named_by_its_type() -> None:
    """The target raised it, and not the harness that wants to print it."""

    def raises(*_: Any) -> None:
        raise UnprintableError

    with pytest.raises(CandidateError, match=r"^raised UnprintableError \[") as caught:
        bind(raises, "qkv-heads", probe=False)(make_problem(QKV))
    assert "crash" == caught.value.severity


class Agreeable:
    """A callable that has every attribute that is asked for: itself."""

    def __getattr__(self, name: str) -> Any:
        """Return itself."""
        return self

    def __call__(self, q: Any, *_: Any) -> Any:
        """Return the queries."""
        return q


def test_a_callable_may_have_every_attribute() -> None:
    """It is called as any other. Kills what takes an attribute for that of a class or a layer."""
    problem = make_problem(QKV)
    output = bind(Agreeable(), "qkv-heads", probe=False)(problem).output
    np.testing.assert_array_equal(problem.query, output)


def softmax_of(query: Any, key: Any, value: Any, scale: float = 1.0, mask: Any = None, /) -> Any:
    """Return attention on one sample and head, all arguments by position."""
    scores = scale * query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    if mask is not None:
        scores = np.where(mask, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def test_a_mask_that_is_positional_only_is_passed_by_position() -> None:
    """What stands before it gets its default. Kills the mask by keyword."""
    bound = bind(softmax_of)
    assert {"call.mask"} == bound.meanings.keys()
    assert {} == bound.untried


def weights_first(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return the weights, and then the output of one head."""
    scores = (q * np.asarray(q.shape[-1] ** -0.5, q.dtype)) @ np.swapaxes(k, -1, -2)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights, weights @ v


def test_the_output_is_distinguished_from_weights_of_its_shape() -> None:
    """Where S = D both have one shape. Kills the choice of the output by the shape in each call."""
    bound = bind(weights_first, "fitted")
    assert isinstance(bound, Fitted)
    assert 1 == bound.place
    problem = make_problem(bound.plain_case().replace(queries=6, keys=6, heads_count=1, head_dim=6))
    assert (6, 6) == problem.query.shape[-2:]
    expected = weights_first(problem.query, problem.key, problem.value)[1]
    np.testing.assert_allclose(bound(problem).output, expected, rtol=1e-12)


class Unreadable:
    """A class whose ``forward`` cannot be read."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Do nothing."""

    @property
    def forward(self) -> Any:
        """Raise what the harness raises for its own sentences."""
        raise ValueError("a property that raises")


def test_a_value_error_of_the_target_is_no_sentence_of_the_harness() -> None:
    """The sentence names target, place and remedy. Kills every ValueError taken for a sentence."""
    said = (
        r"^got the target Unreadable, but .* raised ValueError: a property that raises \[.*should"
    )
    with pytest.raises(TargetError, match=said):
        bind(Unreadable)


def test_what_rows_without_a_key_are_is_said() -> None:
    """They may be anything, since torch disagrees with itself; the notes name it. Kills silence."""
    subject = load("torch.nn.functional:scaled_dot_product_attention")
    options = Options(cases=20, dtypes=("float64",), diagnose=False, shrink=False)
    verdict = check(bind(subject), options)
    said = [note for note in verdict.notes if "rows that see no key" in note]
    assert 1 == len(said), verdict.notes
    assert re.fullmatch(
        r"output: rows that see no key are zero in \d+ cases, where .* NaN\.", said[0]
    )
