"""Heads in plain lists, layers of one length, and layers drawn from a generator are judged."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("built_otherwise.py", cases=32, dtypes=("float64",))


@pytest.mark.repeats(3)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PlainList", "`heads` is a plain list: torch neither trains, moves nor saves"),
        ("CountedByN", "heads.0.query_network, heads.0.key_network, heads.0.value_network"),
        ("OfPatches", "it takes one length alone: for each call it was built for that less 1."),
        ("FromGenerator", "W_q, W_k, W_v, W_o applied as X @ W"),
        ("OfMangledConfig", "`mask`: True hides, as in torch"),
        ("BuiltForTraining", ""),
        ("GroupsByDefault", "W_Q, W_O, W_K, W_V as Linears"),
        ("WidthMayBeNone", "`q` the query, `h` the key."),
    ],
)
def test_right_ones_pass(name: str, said: str) -> None:
    """Their weights are found, and what is peculiar to them is said."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, (verdict.sentence, verdict.reasons, verdict.notes)
    assert not said or any(said in note for note in verdict.notes), verdict.notes


@pytest.mark.repeats(3)
@pytest.mark.parametrize(
    "name",
    [
        "PlainListByWidth",
        "CountedByNByWidth",
        "OfPatchesUnscaled",
        "FromGeneratorInterleaved",
        "EvenHeads",
        "OfMangledConfigUnscaled",
        "WidthMayBeNoneUnscaled",
        "GroupsByDefaultTwice",
        "BuiltForEither",
    ],
)
def test_wrong_ones_fail(name: str) -> None:
    """The same styles, with a scale or heads that are not torch's."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


def test_more_heads_than_asked_for_are_refused() -> None:
    """Arrays of heads that torch's layer does not have are named, and nothing is filled."""
    with pytest.raises(TargetError, match=r"keeps heads\.4\.query_network\.weight .* do not fit"):
        judged("TwiceTheHeads")


def test_a_configuration_of_several_heads_is_not_judged_with_one() -> None:
    """One whose arrays grow with the heads passed, as it is right with one; a single head holds."""
    with pytest.raises(TargetError, match=r"which do not fit a width of 24 in 4 heads"):
        judged("WideOfConfig")
    assert Outcome.PASS == judged("OneOfConfig").outcome
