"""What the tests of experiments share: how a planted attention is asked, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity import diagnose
from mha_parity.catalogue import answer_of
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.deadline import Deadline
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.catalogue import Attention
    from mha_parity.core.candidate import Answer
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

PROJECTED = make_offer(form="qkv", projection="none", inputs=("cross",))


@pytest.fixture(autouse=True)
def ample_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a diagnosis three times its time: a slow processor must not decide what it says."""
    monkeypatch.setattr(diagnose, "Deadline", lambda seconds: Deadline(3 * seconds))


@pytest.fixture(scope="session")
def full_offer() -> Offer:
    """Return projected inputs with masks, returned weights, empty sizes and two dtypes."""
    return make_offer(
        form="qkv", projection="none", inputs=("cross",), attn=("none", "bool2d", "causal"),
        padding=("none", "bool"), weights=("none", "averaged", "per_head"), size=("small", "empty"),
        dtype=("float64", "float32"),
    )  # fmt: skip


@pytest.fixture(scope="session")
def caller() -> Callable[..., Caller]:
    """Return a function that gives the caller of an attention or of a function of a problem.

    It offers projected inputs unless said otherwise, and has no limit of time.
    """

    def called(
        planted: type[Attention] | Callable[[Problem], Answer], offered: Offer = PROJECTED
    ) -> Caller:
        def answer(problem: Problem) -> Answer:
            return answer_of(planted, problem) if isinstance(planted, type) else planted(problem)

        return Caller(FunctionCandidate("planted", answer, offered), lambda: True)

    return called


@pytest.fixture(scope="session")
def causes(caller: Callable[..., Caller]) -> Callable[[type[Attention]], str]:
    """Return a function that gives what the experiments understood of an attention, a line each."""

    def understood(kind: type[Attention]) -> str:
        found = cause_findings(run_experiments(caller(kind)))
        return "\n".join(f"{f.text} | {f.evidence}" for f in found if f.understood)

    return understood
