"""A switch without a default is off where its parts ask it, and on where off is no attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.core.parameters import Parameter

judged = checks_of("required_switches.py", cases=40, dtypes=("float64",))


def test_a_layer_is_judged_without_its_cache() -> None:
    """The verdict says that it was off. Kills a number in the place of the switch, which is on."""
    verdict = judged("InHeads")
    assert Outcome.PASS is verdict.outcome, verdict
    assert Status.DEFAULT_ONLY is status_of(verdict.parameters, "use_cache")


def test_what_is_wrong_without_a_cache_fails() -> None:
    """Right answers with the cache do not hide it."""
    verdict = judged("InHeadsAcrossSamples", diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert ["softmax-batch-axis"] == [each.bug for each in verdict.diagnosis]


def test_a_switch_that_has_to_be_on_is_said() -> None:
    """What it is without the switch is no attention: the verdict names it as not tried."""
    verdict = judged("Blended")
    assert Outcome.PASS is verdict.outcome, verdict
    assert Status.NOT_TRIED is status_of(verdict.parameters, "looking")
    assert any("built with `looking` = True" in note for note in verdict.notes)


def test_a_mask_of_the_constructor_is_a_causal_switch() -> None:
    """By its annotation: it is built with both, and a rule that begins late fails."""
    verdict = judged("Masked")
    assert Outcome.PASS is verdict.outcome, verdict
    assert Status.TRIED is status_of(verdict.parameters, "mask")
    wrong = judged("MaskedFromTheNext", max_failures=1)
    assert {"causal"} == {each.case.attn for each in wrong.failures}


def status_of(parameters: Iterable[Parameter], name: str) -> Status:
    """Return what became of a parameter over a run."""
    return next(each.status for each in parameters if each.name == name)
