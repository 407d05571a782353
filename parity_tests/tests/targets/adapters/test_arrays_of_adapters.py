"""An adapter gets arrays of the library that it computes with, and is reported by what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.load import load

if TYPE_CHECKING:
    from collections.abc import Callable

ADAPTER = """
import mha_parity
import numpy as np
{imports}


@mha_parity.adapter
def f(call):
    scores = call.query @ call.key.swapaxes(1, 2) / call.embed_dim**0.5
    {weights}
    return weights @ call.value
"""
OF_TORCH = ("import torch", "weights = torch.softmax(torch.as_tensor(scores), -1)")
OF_JAX = ("import jax", "weights = jax.nn.softmax(scores)")
OF_NUMPY = (
    "import torch",
    "rows = np.exp(np.asarray(scores)); weights = rows / rows.sum(-1, keepdims=True)",
)
OF_TENSORFLOW = ("import tensorflow as tf", "weights = tf.nn.softmax(scores)")


def source(imports: str, weights: str) -> str:
    """Return the source of an adapter that answers NumPy's arrays and those of its library."""
    return ADAPTER.format(imports=imports, weights=weights)


@pytest.mark.parametrize(
    ("library", "lines"),
    [("torch", OF_TORCH), ("jax", OF_JAX), ("numpy", OF_NUMPY), ("numpy", OF_TENSORFLOW)],
)
def test_arrays_are_of_the_library_that_it_computes_with(
    library: str, lines: tuple[str, str], write: Callable[..., str]
) -> None:
    """Kills NumPy's wherever they are answered too; TensorFlow's functions take these."""
    pytest.importorskip(lines[0].split()[1])
    bound = bind(load(write(source(*lines))))
    assert library == bound.library.name
    assert 0 == check(bound, Options(cases=8, shrink=False, diagnose=False)).failed


def test_what_is_reported_is_the_error_of_its_own_arrays(write: Callable[..., str]) -> None:
    """Kills what NumPy's arrays raise where the file computes with tensors."""
    lines = "scores = scores.to(call.query.dtype); weights = torch.softmax(scores)"
    failing = bind(load(write(source("import torch", lines))))
    with pytest.raises(Exception, match=r"TypeError: softmax\(\) missing"):
        check(failing, Options(cases=4, shrink=False, diagnose=False))
