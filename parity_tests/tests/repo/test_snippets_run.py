"""Run the Python of the documentation's pages that Sphinx does not execute, on what they assume."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import mha_parity

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXECUTED = {"own-code.md": 2, "without-torch.md": 1, "notebook.md": 1, "cluster.md": 1}
FEW: Any = {"cases": 24, "dtypes": "float64"}


def snippets(page: str) -> list[str]:
    """Return the blocks of Python of a page, in order."""
    text = (DOCS / "howto" / page).read_text(encoding="utf-8")
    return re.findall(r"(?ms)^```python\n(.*?)^```", text)


def run(snippet: str, **names: object) -> dict[str, Any]:
    """Execute a snippet among the names that it assumes; return all names."""
    space: dict[str, Any] = dict(names)
    exec(compile(snippet, "page.md", "exec"), space)  # noqa: S102  (the documentation's own lines)
    return space


def test_no_snippet_is_left_out() -> None:
    """Every page with such blocks is held here, and each of its blocks."""
    found = {page.name: len(snippets(page.name)) for page in (DOCS / "howto").glob("*.md")}
    assert EXECUTED == {name: count for name, count in found.items() if count}


class Windowed(nn.Module):
    """A layer that is built from a text and packs its projections, as the page assumes."""

    def __init__(self, size: str) -> None:
        super().__init__()
        width, self.heads = map(int, size.split("x"))
        self.first = nn.Linear(width * self.heads, 3 * width * self.heads)
        self.second = nn.Linear(width * self.heads, width * self.heads)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Attend to the rows themselves."""
        parts = self.first(rows).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = scaled_dot_product_attention(q, k, v)
        return self.second(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
def test_the_adapter_is_judged(monkeypatch: pytest.MonkeyPatch, *, is_right: bool) -> None:
    """The page's adapter of a right layer has no failing case; with q and k exchanged it has."""
    library = ModuleType("mylibrary")
    library.Windowed = Windowed  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "mylibrary", library)
    written = snippets("own-code.md")[0]
    text = (
        written
        if is_right
        else written.replace("call.q_proj_weight, call.k_", "call.k_proj_weight, call.q_")
    )
    assert is_right == (text == written)
    verdict = mha_parity.judge(run(text)["windowed"], **FEW)
    assert is_right == (verdict.failed == 0)
    assert 24 == verdict.run


def test_the_masks_of_a_call_are_those_that_the_page_names() -> None:
    """Attention with the added mask has no failing case, with masks among the cases."""
    written = snippets("own-code.md")[1]

    @mha_parity.adapter
    def attention(call: mha_parity.AttentionCall) -> object:
        found = run(written.partition("valid_lens")[0], call=call)
        weights = (call.q_proj_weight, call.k_proj_weight, call.v_proj_weight)
        biases = (call.q_proj_bias, call.k_proj_bias, call.v_proj_bias)
        inputs = (call.query, call.key, call.value)
        q, k, v = (
            torch.as_tensor(rows @ weight.T + bias)
            .reshape(*rows.shape[:2], call.num_heads, -1)
            .transpose(1, 2)
            for rows, weight, bias in zip(inputs, weights, biases, strict=True)
        )
        mask = torch.as_tensor(found["mask"])
        rows = scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return rows @ torch.as_tensor(call.out_proj_weight).T + torch.as_tensor(call.out_proj_bias)

    verdict = mha_parity.judge(attention, features="attn=causal", **FEW)
    assert 0 == verdict.failed
    assert any(row.name == "output" and row.cases for row in verdict.checks)


def test_the_judgement_in_two_lines() -> None:
    """An error within what is allowed matches; one beyond it in a single head does not."""
    (written,) = snippets("without-torch.md")
    N, L, H, D = 2, 3, 2, 4
    reference = np.zeros((N, L, H * D))
    answer = np.full_like(reference, 1e-9)
    names = {"np": np, "N": N, "L": L, "H": H, "reference": reference, "answer": answer}
    allowed = np.full((N, H), 1e-8)
    assert run(written, **names, allowed=allowed)["matches"]
    allowed[1, 1] = 1e-10
    assert not run(written, **names, allowed=allowed)["matches"]


def test_a_notebook_s_line_gives_a_verdict() -> None:
    """`judge` of a function that stands in a cell."""
    (written,) = snippets("notebook.md")
    last = written.rstrip().splitlines()[-1]
    assert "mha_parity.judge(attention)" == last

    def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        odds = np.exp(Q @ K.T / np.sqrt(Q.shape[-1]))
        output: np.ndarray = odds / odds.sum(axis=-1, keepdims=True) @ V
        return output

    small = written.replace(last, "verdict = mha_parity.judge(attention, cases=12)")
    assert 12 == run(small, attention=attention)["verdict"].run


def test_the_executor_of_the_page_judges(capsys: pytest.CaptureFixture[str]) -> None:
    """The page's two processes judge the NumPy attention, and it prints that parity holds."""
    run(snippets("cluster.md")[0], __name__="__main__")
    assert "pass\n" == capsys.readouterr().out
