"""The command without a target judges the own layer, as it is and held to each engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mha_numpy import attention
from mha_numpy.call import CheckedCall
from mha_numpy.engines import flash
from mha_parity.commands.check import default_runs, judge_target
from mha_parity.core.options import DEFAULT_TARGET, FORCED_ENGINES, Options
from mha_parity.core.verdict import Outcome

QUICK = Options(cases=150, in_process=True, diagnose=False, shrink=False)


def outcomes(options: Options = QUICK) -> dict[str, Outcome]:
    """Return the outcome of each forced engine as the default run judges it."""
    runs = dict(default_runs(options))
    return {name: judge_target(name, runs[name]).outcome for name in FORCED_ENGINES}


@pytest.mark.parametrize(
    ("cases", "shares"), [(500, [300, 100, 100]), (60, [40, 40, 40]), (1, [1, 1, 1])]
)
def test_the_cases_are_shared_out(cases: int, shares: list[int]) -> None:
    """The layer as it is comes first, with three fifths of the cases."""
    runs = default_runs(replace(QUICK, cases=cases))
    assert [DEFAULT_TARGET, *FORCED_ENGINES] == [target for target, _ in runs]
    assert shares == [options.cases for _, options in runs]


@pytest.mark.whole
def test_a_wrong_second_tile_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash without the keys beyond its first tile fails; the plain engine passes."""
    right: Any = flash._pass

    def first_tile(block: Any, *others: Any) -> Any:
        block.key_tiles = block.key_tiles[:1]
        return right(block, *others)

    monkeypatch.setattr(flash, "_pass", first_tile)
    assert [Outcome.PASS, Outcome.FAIL] == list(outcomes().values())


def test_a_wrong_second_block_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash that reverses the rows of every block but the first fails."""
    right: Any = flash._attend_block

    def reversed_rows(block: Any, v: Any, out: Any, held: Any) -> Any:
        found = right(block, v, out, held)
        if block.rows.start:
            out[...] = out[::-1].copy()
        return found

    monkeypatch.setattr(flash, "_attend_block", reversed_rows)
    assert Outcome.FAIL == outcomes()[FORCED_ENGINES[1]]


def test_shares_under_the_masks_of_others_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every share of a batch under the first one's masks fails, which a whole batch never shows."""

    def with_first_masks(call: CheckedCall, samples: slice) -> CheckedCall:
        first = slice(0, samples.stop - samples.start)
        return of_samples(call, samples)._replace(masking=of_samples(call, first).masking)

    of_samples = CheckedCall.of_samples
    monkeypatch.setattr(CheckedCall, "of_samples", with_first_masks)
    assert [Outcome.FAIL, Outcome.PASS] == list(outcomes().values())


def test_a_wrong_plain_engine_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain engine that is off by a thousandth fails; flash passes."""
    right = attention.apply_weights
    monkeypatch.setattr(attention, "apply_weights", lambda *heads: right(*heads) * 1.001)
    assert [Outcome.FAIL, Outcome.PASS] == list(outcomes().values())
