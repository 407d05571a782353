"""Parts of functions and modules of JAX are taken out where they are traced.

The library is installed by ``make test-frameworks`` alone; elsewhere these tests are skipped.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        find_spec("flax") is None, reason="flax is not installed; make test-frameworks does"
    ),
]

judged = checks_of("jax_without_parts.py", cases=24, dtypes=("float32",))


@pytest.mark.parametrize(
    ("name", "parts"),
    [("attention", ("with_positions",)), ("Layer", ("with_positions", "q_norm", "k_norm"))],
)
def test_the_rest_is_judged(name: str, parts: tuple[str, ...]) -> None:
    """Though what was compiled before had the part in it; and a refusal names the parts."""
    with pytest.raises(TargetError, match=re.escape("--without with_positions")):
        judged(name)
    verdict = judged(name, without=parts)
    assert not verdict.failures
    assert verdict.outcome is not Outcome.FAIL
    assert {*parts} == {each.name for each in verdict.parameters if each.of == "part"}
