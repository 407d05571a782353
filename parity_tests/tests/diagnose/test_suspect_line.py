"""The line of the source in which a known cause lies is shown where just one is possible."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from mha_parity import judge
from mha_parity.catalogue import catalogue
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.suspect_line import FINDERS, OPERATION_OF, operation_lines, operation_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SOFTMAX = """
def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)
"""
# operation: (a source with a mark at the line that is wrong, the same where two lines may be)
SOURCES = {
    "scale": (
        "def f(Q, K, V, n):\n    z = Q @ K.T / np.sqrt(n)  # here\n    return softmax(z) @ V\n",
        ("def f(Q, K, V, n):\n    Q = Q / np.sqrt(n)\n    z = Q @ K.T / np.sqrt(n)\n"
        "    return softmax(z) @ V\n"),
    ),
    "axis of the softmax": (
        ("def f(Q, K, V, n):\n    z = Q @ K.T\n    p = torch.softmax(z, dim=1)  # here\n"
        "    return p @ V\n"),
        "def f(Q, K, V, n):\n    z = Q @ K.T\n    p = softmax(z)\n    return p @ V\n",
    ),
    "exponential": (
        ("def f(Q, K, V, n):\n    z = Q @ K.T\n    e = 2.0 ** (z - z.max())  # here\n"
        "    return e / e.sum(-1) @ V\n"),
        ("def f(Q, K, V, n):\n    z = Q @ K.T\n    old = np.exp(z[0] - z[1])\n"
        "    e = np.exp(z) * old\n    return e / e.sum(-1) @ V\n"),
    ),
    "denominator": (
        ("def f(Q, K, V, n):\n    e = np.exp(Q @ K.T)\n    total = e.sum(-1) + 1e-6  # here\n"
        "    return e / total @ V\n"),
        ("def f(Q, K, V, n):\n    e = np.exp(Q @ K.T)\n    a = e[:4].sum(-1)\n"
        "    b = e[4:].sum(-1)\n    return e / (a + b) @ V\n"),
    ),
    "clipped scores": (
        "def f(Q, K, V, n):\n    z = np.clip(Q @ K.T, -5, 5)  # here\n    return softmax(z) @ V\n",
        ("def f(Q, K, V, n):\n    Q = np.clip(Q, -9, 9)\n    z = np.clip(Q @ K.T, -5, 5)\n"
        "    return softmax(z) @ V\n"),
    ),
    "inverted mask": (
        ("def f(Q, K, V, mask):\n    z = Q @ K.T\n    z = z.masked_fill(mask, -inf)  # here\n"
        "    return z.softmax(-1) @ V\n"),
        ("def f(Q, K, V, mask):\n    z = Q @ K.T\n    keep = ~mask\n"
        "    z = z.masked_fill(keep, -inf)\n    return z.softmax(-1) @ V\n"),
    ),
    "number for hidden keys": (
        ("def f(Q, K, V, mask):\n    z = np.where(mask, Q @ K.T, -1e4)  # here\n"
        "    return softmax(z) @ V\n"),
        ("def f(Q, K, V, mask):\n    z = np.where(mask, Q @ K.T, -1e4)\n    z = z * mask\n"
        "    return softmax(z) @ V\n"),
    ),
    "key heads": (
        ("def f(q, k, v):\n    k, v = (x.repeat(1, 4, 1, 1) for x in (k, v))  # here\n"
        "    return softmax(q @ k.mT) @ v\n"),
        ("def f(q, k, v):\n    k = k.repeat(1, 4, 1, 1)\n    v = torch.tile(v, (1, 4, 1, 1))\n"
        "    return softmax(q @ k.mT) @ v\n"),
    ),
    "causal rule": (
        ("def f(Q, K, V):\n    z = Q @ K.T\n    future = np.triu(np.ones(z.shape), 2)  # here\n"
        "    return softmax(z - 1e9 * future) @ V\n"),
        ("def f(Q, K, V):\n    z = np.tril(Q @ K.T)\n    future = np.triu(np.ones(z.shape), 2)\n"
        "    return softmax(z - 1e9 * future) @ V\n"),
    ),
    "split of heads": (
        ("def f(x, n):\n    q = q.view(n, -1, 8)  # here\n    k = k.view(n, -1, 8)\n"
        "    v = v.view(n, -1, 8)\n    return softmax(q @ k.mT) @ v\n"),
        ("def f(x, n):\n    q = q.view(n, -1, 8)\n    k = k.reshape(-1, n, 8)\n"
        "    return softmax(q @ k.mT) @ v\n"),
    ),
    "merge of heads": (
        ("def f(q, k, v, n):\n    q = q.view(n, -1, 8)\n    y = softmax(q @ k.mT) @ v\n"
        "    return y.reshape(9, -1)  # here\n"),
        ("def f(q, k, v, n):\n    y = softmax(q @ k.mT) @ v\n    y = y.reshape(n, 8, -1)\n"
        "    return y.reshape(9, -1)\n"),
    ),
    "narrower dtype": (
        "def f(q, k, v, n):\n    z = (q @ k.mT).half()  # here\n    return softmax(z) @ v\n",
        ("def f(q, k, v, n):\n    z = (q @ k.mT).half()\n    z = z.astype(np.float32)\n"
        "    return softmax(z) @ v\n"),
    ),
}  # fmt: skip


def lines(text: str, operation: str, name: str = "f") -> tuple[int, ...]:
    """Return the suspect lines of a function of a source."""
    return operation_lines(ast.parse(text), name.split("."), operation)


@pytest.mark.parametrize("operation", SOURCES)
def test_one_possible_line_is_the_suspect(operation: str) -> None:
    """Where the operation stands in one place of the source, its line is the suspect."""
    text = SOFTMAX + SOURCES[operation][0]
    marked = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# here")]
    assert lines(text, operation)[:1] == tuple(marked)


@pytest.mark.parametrize("operation", SOURCES)
def test_two_possible_lines_are_none(operation: str) -> None:
    """Where the operation stands in two places that are not alike, no line is said."""
    assert () == lines(SOFTMAX + SOURCES[operation][1], operation)


def test_a_mask_that_is_joined_to_another_is_a_second_place() -> None:
    """Kills a fill that is right of both, where the mask was joined to the causal rule wrongly."""
    text = (
        "def f(Q, K, V, mask):\n    z = Q @ K.T\n    seen = np.tri(9) > 0.5\n"
        "    seen = seen & mask\n    z = z.masked_fill(~seen, -inf)\n"
        "    return z.softmax(-1) @ V\n"
    )
    assert () == lines(SOFTMAX + text, "inverted mask")


@pytest.mark.parametrize("is_scaled", [True, False])
def test_a_fused_kernel_is_a_place_of_the_scale(is_scaled: bool) -> None:
    """Where q is scaled before a kernel that scales too, either line may be the one too many."""
    root = "    q = q * 8 ** -0.5\n" if is_scaled else ""
    text = f"def f(q, k, v):\n{root}    return F.scaled_dot_product_attention(q, k, v, scale=1)\n"
    assert lines(text, "scale") == (() if is_scaled else (2,))


def test_lines_that_differ_in_names_are_one_place() -> None:
    """The splits of q, k and v, below each other and alike, are suspected together."""
    text = SOURCES["split of heads"][0]
    assert (2, 3, 4) == lines(text, "split of heads")


LAYER = """
class Base:
    def __init__(self, e, h):
        self.scale = (e // h) ** -0.5

    def scores(self, q, k):
        return q @ k.mT * self.scale

    def forward(self, q, k, v):
        return self.scores(q, k).softmax(-1) @ v


class Layer(Base):
    def scores(self, q, k):
        return super().scores(q, k) / math.sqrt(8)


class Plain(Base):
    pass
"""


@pytest.mark.parametrize(
    ("power", "line"), [("(e // h) ** -0.5", 4), ("h ** -1 / 2", 4), ("h ** -1", 7)]
)
def test_a_power_of_a_width_that_is_meant_as_a_root_is_the_scale(power: str, line: int) -> None:
    """``D ** -1 / 2`` is 1 / (2 D), and its line is the suspect; a plain reciprocal is none."""
    assert lines(LAYER.replace("(e // h) ** -0.5", power), "scale", "Plain") == (line,)


@pytest.mark.parametrize(("name", "line"), [("Layer", 15), ("Plain", 4), ("Base", 4)])
def test_methods_and_bases_are_followed(name: str, line: int) -> None:
    """A root in the method that a call reaches is found, and one in the constructor without it."""
    assert lines(LAYER, "scale", name) == (line,)


@pytest.mark.parametrize("name", ["missing", "Layer.missing"])
def test_what_is_not_defined_has_no_line(name: str) -> None:
    """A name that the file does not define has no line."""
    assert () == lines(LAYER, "scale", name)


def test_entries_of_the_catalogue_exist() -> None:
    """Every entry with an operation is in the catalogue, every operation has a finder."""
    assert set(OPERATION_OF) <= set(catalogue())
    assert set(OPERATION_OF.values()) <= set(FINDERS)


def test_only_what_is_certain_has_an_operation() -> None:
    """A name that is given as a possibility, or a fact that is not understood, points nowhere."""
    for certain in (True, False):
        named = Diagnosis(bug="scale-dmodel", title="", confident=certain)
        measured = Diagnosis(bug=None, title="", operation="scale", explains=float(certain))
        assert [operation_of(each) for each in (named, measured)] == 2 * ["scale" * certain]


TARGETS = {
    "    z = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1] * n_heads)  # here\n": True,
    "    q = q / np.sqrt(q.shape[-1])\n    z = q @ k.swapaxes(1, 2) / np.sqrt(n_heads)\n": False,
}  # fmt: skip
ATTENTION = """import numpy as np


def attention(Q, K, V, n_heads):
    q, k, v = (np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V))
{scores}    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.concatenate(list(e / e.sum(axis=-1, keepdims=True) @ v), axis=-1)
"""


@pytest.mark.parametrize(("scores", "is_shown"), TARGETS.items(), ids=("one root", "two roots"))
def test_a_verdict_has_the_line(tmp_path: Path, scores: str, is_shown: bool) -> None:
    """A scale that is wrong in one root is shown at its line; one in two roots at none."""
    path = tmp_path / "scaled.py"
    path.write_text(ATTENTION.format(scores=scores), encoding="utf-8")
    verdict = judge(f"{path}:attention", cases=30)
    assert verdict.diagnosis
    assert "scale-dmodel" == verdict.diagnosis[0].bug
    assert verdict.source is not None
    shown: Sequence[str] = [text for _, text in verdict.source.suspects]
    assert shown == [scores.rstrip("\n")] * is_shown
