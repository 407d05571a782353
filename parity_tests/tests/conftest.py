"""Fixtures that the tests of several rooms share: the subjects, and a check of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.verdict import Verdict


@pytest.fixture(scope="session")
def subjects() -> Path:
    """Return the folder of the attentions that are judged, written as other people write."""
    return Path(__file__).parents[1] / "subjects"


@pytest.fixture(scope="session")
def check_subject(subjects: Path) -> Callable[..., Verdict]:
    """Return a function that checks a target of that folder, or of a library, in this process.

    Its calls are monitored, with the modules of ``forbid`` forbidden; the rest are options of the
    run: 30 cases, no diagnosis and no shrinking by default.
    """
    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.core.options import Options
    from mha_parity.run.check import check
    from mha_parity.targets import load
    from mha_parity.targets.bind import bind

    def check_target(target: str, *, forbid: tuple[str, ...] = (), **options: Any) -> Verdict:
        path = f"{subjects}/{target}" if ".py:" in target else target
        few = {"cases": 30, "diagnose": False, "shrink": False} | options
        return check(MonitoredCandidate(bind(load.load(path)), forbid=forbid), Options(**few))

    return check_target
