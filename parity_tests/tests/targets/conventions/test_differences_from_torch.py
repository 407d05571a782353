"""A layer like torch's whose defaults or order differ passes, and the report says what differs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets.bind import bind


class OtherDefaults(torch.nn.MultiheadAttention):
    """Batches first and no weights, unless asked."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, batch_first: bool = True
    ) -> None:
        """Set torch's."""
        super().__init__(embed_dim, num_heads, dropout, batch_first=batch_first)

    def forward(  # type: ignore[override]  # another order is the point
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: Any = None,
        key_padding_mask: Any = None,
        need_weights: bool = False,
    ) -> Any:
        """Pass all on by name."""
        return super().forward(
            query, key, value, key_padding_mask=key_padding_mask, attn_mask=attn_mask,
            need_weights=need_weights,
        )  # fmt: skip


DEFAULTS = (
    "defaults are not torch's: batch_first=True (torch: False), need_weights=False "
    "(torch: True); pass these by name."
)
ORDER = "`attn_mask` has another position than in torch; pass it by name."


def test_other_defaults_and_another_order_are_said() -> None:
    """The verdict is no failure, and its notes name every default and the first that moved."""
    options = Options(cases=12, dtypes=("float64",), diagnose=False, shrink=False)
    verdict = check(bind(OtherDefaults), options)
    assert 0 == verdict.failed
    for said in (DEFAULTS, ORDER):
        assert any(said in note for note in verdict.notes), verdict.notes


@pytest.mark.parametrize("name", ["torch.nn:MultiheadAttention", "mha_numpy:MultiheadAttention"])
def test_torch_s_own_defaults_are_not_said(name: str) -> None:
    """Neither torch's layer nor the NumPy one departs. Kills a remark on every layer."""
    from mha_parity.targets.load import load

    assert () == bind(load(name)).remarks


class Unasked(torch.nn.MultiheadAttention):
    """Weights that were not asked for, or none of the pair."""

    pair = True

    def forward(self, *args: Any, **options: Any) -> Any:
        """Return another second value than torch's."""
        output, weights = super().forward(*args, **options)
        if options["need_weights"]:
            return output, weights
        return (output, torch.ones(1)) if self.pair else output


class Alone(Unasked):
    """The output alone where no weights are asked for."""

    pair = False


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (Unasked, "need_weights=False returns more than an output"),
        (Alone, "need_weights=False returns the output alone"),
        (torch.nn.MultiheadAttention, ""),
    ],
    ids=["more", "alone", "torch"],
)
def test_what_comes_instead_of_none_is_said(layer: type, said: str) -> None:
    """A caller that unpacks or indexes the result sees it. Kills weights dropped unread."""
    problem = make_problem(Case(seed=1, batch=2, queries=3, keys=3, heads_count=2, head_dim=3))
    remarks = bind(layer, "torch-module")(problem).remarks
    assert [said] * bool(said) == [each.partition(";")[0] for each in remarks]
