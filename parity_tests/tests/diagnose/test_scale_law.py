"""The law of a scale is fitted over the sizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.rng import numpy_dtype
from mha_parity.catalogue import Attention
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.diagnose.experiments.scores.scale import law, measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.problem import Problem


@pytest.mark.parametrize(
    ("factor", "formula"),
    [
        (lambda p: p.head_dim**-0.5, "1/sqrt(D)"),
        (lambda p: 1 / p.head_dim, "1/D"),
        (lambda p: (p.head_dim + 1) ** -0.5, "1/sqrt(D + 1)"),
        (lambda p: (p.head_dim + 1e-5) ** -0.5, "1/sqrt(D + 1e-05)"),
        (lambda p: 1 / (p.head_dim**0.5 - 1e-3), "1/(sqrt(D) - 0.001)"),
        (lambda p: (-(-p.head_dim // 8) * 8) ** -0.5, "1/sqrt(D rounded up to a multiple of 8)"),
        (lambda p: p.case.embed_dim**-0.5, "1/sqrt(E)"),
        (lambda p: 2 * p.head_dim**-0.5, "2/sqrt(D)"),
        (lambda _: 0.125, "0.125 = 1/sqrt(64) whatever D"),
        (lambda _: 0.25, "0.25 = 1/sqrt(16) whatever D: written into the code, or kept from"),
        (lambda p: 0.3 * p.head_dim**-0.37, "0.3 D^-0.37"),
        (
            lambda p: math.log(p.case.keys) / math.log(512) * p.head_dim**-0.5,
            "ln(S)/ln(512)/sqrt(D)",
        ),
        (
            lambda p: (0.5 + 0.1 * math.log(p.case.queries)) * p.head_dim**-0.5,
            "(0.1 ln(L) + 0.5)/sqrt(D)",
        ),
        (lambda p: p.case.keys**0.25 * p.head_dim**-0.5, "1 S^0.25/sqrt(D)"),
        (
            lambda p: (1 + p.case.heads_count % 3) * p.head_dim**-0.5,
            "1/sqrt(D) times a factor that depends on H: 3 at H = 2, 1 at H = 3, 2 at H = 4",
        ),
        (
            lambda p: (1 + p.case.keys % 3 + p.case.heads_count % 2) * p.head_dim**-0.5,
            "no formula in D, H, L, S or E: ",
        ),
        (
            lambda p: 1.4427 * math.log(2) * p.head_dim**-0.5,
            "1.00000344/sqrt(D), as with log2(e) written as 1.4427",
        ),
        (
            lambda p: 1.44269 * math.log(2) * p.head_dim**-0.5,
            "0.999996506/sqrt(D), as with log2(e) written as 1.44269",
        ),
        (
            lambda p: 2.0 ** -(p.head_dim.bit_length() // 2),
            "1/sqrt(D) rounded to a power of two: 0.5 at D = 5, 0.5 at D = 7, 0.25 at D = 8",
        ),
        (lambda p: round(p.head_dim**-0.5, 3), "1/sqrt(D), rounded to 3 decimals"),
        (lambda p: 1 / round(p.head_dim**0.5, 2), "1/sqrt(D), the root rounded to 2 decimals"),
        (lambda p: 1.0000123 * p.head_dim**-0.5, "1.0000123/sqrt(D)"),
        (lambda p: float(np.float16(p.head_dim**-0.5)), "1/sqrt(D) rounded to float16"),
        (
            lambda p: float(np.float16(1) / np.sqrt(np.float16(p.head_dim))),
            "1/sqrt(D) rounded to float16",
        ),
    ],
)
def test_the_law_of_a_scale_is_fitted_over_the_sizes(
    factor: Callable[[Problem], float], formula: str, caller: Callable[..., Caller]
) -> None:
    """Ten cases of unlike sizes leave one formula."""
    kind = type("Scaled", (Attention,), {"scale": lambda self: factor(self.problem)})
    assert law(measured(caller(kind))).startswith(formula)


@pytest.mark.parametrize(
    ("rounded", "is_said"),
    [
        (lambda root: 1 / float(np.float32(root)), True),
        (lambda root: float(np.float32(1 / root)), True),
        (lambda root: 1 / float(np.nextafter(np.float32(root), np.float32(np.inf))), True),
        (lambda root: (1 + 3.3e-8) / root, False),
    ],
    ids=["root", "inverse", "next", "other"],
)
def test_a_scale_in_float32_is_said_by_its_slope(
    rounded: Callable[[float], float], is_said: bool, causes: Callable[[type[Attention]], str]
) -> None:
    """A slope off by 5e-8 is no approximated exp; one that no rounding gives is not said so."""
    kind = type(
        "Scaled", (Attention,), {"scale": lambda self: rounded(math.sqrt(self.problem.head_dim))}
    )
    assert is_said == ("the effective scale is 1/sqrt(D) rounded to float32" in causes(kind))


@pytest.mark.parametrize(
    ("factor", "formula"),
    [
        (lambda d: (d + 1e-6) ** -0.5, "1/sqrt(D + 1e-06)"),
        (lambda d: 1 / (d**0.5 + 1e-8), "1/(sqrt(D) + 1e-08)"),
        (lambda d: (d + 1e-6 * (d % 3)) ** -0.5, ""),
        (lambda d: d**-0.5, ""),
    ],
    ids=["under-the-root", "to-the-root", "by-width", "none"],
)
def test_a_small_number_added_to_the_width_is_said(
    factor: Callable[[int], float], formula: str, causes: Callable[[type[Attention]], str]
) -> None:
    """Also where it moves no weight by as much as one is read to; not where it follows D."""
    kind = type("Scaled", (Attention,), {"scale": lambda self: factor(self.problem.head_dim)})
    said = causes(kind)
    assert formula in said
    assert bool(formula) == ("D +" in said or "D) +" in said)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_root_in_bfloat16_is_read_in_float32_too(
    dtype: str, caller: Callable[..., Caller]
) -> None:
    """A scale off by 1e-3 moves weights by less than half would: float32 is read to 1e-5.

    At few lengths the error is what no rounding gives: these are no rule of the size.
    """
    kind = type(
        "Scaled",
        (Attention,),
        {"scale": lambda self: 1 / _to_bfloat16(math.sqrt(self.problem.head_dim))},
    )
    offered = make_offer(form="qkv", projection="none", inputs=("cross",), dtype=(dtype,))
    (found,) = cause_findings(run_experiments(caller(kind, offered)))
    said = "the effective scale is 1/sqrt(D), the root rounded to bfloat16 (0.2771 at D = 13)"
    assert found.text.startswith(said)
    assert "S = " not in found.evidence


def _to_bfloat16(number: float) -> float:
    return float(np.asarray(number).astype(numpy_dtype("bfloat16")))
