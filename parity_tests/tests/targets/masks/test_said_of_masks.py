"""What is said of masks that no case passes: what was passed, what raised, and what helps."""

from __future__ import annotations

from typing import Any

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, check_subject, checks_of

ADAPTER = "judge an adapter that passes {}, which `mha-parity adapt` begins, name another"


def subject(name: str) -> Any:
    """Return a subject that wants masks of one kind."""
    return load.load(f"{SUBJECTS}/wants_masks.py:{name}")


judged = checks_of("wants_masks.py", cases=24, dtypes=("float64",))


@pytest.mark.parametrize(
    ("name", "passed", "remedy"),
    [
        (
            "of_a_list",
            "`mask` as float64 or bool or int64, in 14 shapes, (N, H, L, S) to (N, L); the last",
            ADAPTER.format("it"),
        ),
        (
            "without_a_future",
            "`causal` as True; the last raised NotImplementedError: causal is not written yet",
            ADAPTER.format("it"),
        ),
        ("of_two", "`causal` as True; the last raised", ADAPTER.format("them")),
    ],
)
def test_what_raises_is_said_with_what_was_passed(name: str, passed: str, remedy: str) -> None:
    """Kinds and shapes are named, and no meaning is asked for where no call is answered."""
    verdict = judged(name)
    assert (Outcome.INCONCLUSIVE, 0) == (verdict.outcome, verdict.failed), verdict
    assert f"no call was answered with {passed}" in verdict.sentence
    assert remedy in verdict.sentence
    assert "--masks" not in verdict.sentence


def test_a_mask_that_may_not_be_left_out_hides_nothing() -> None:
    """Its default raises: where no mask is asked for it gets one, and all others are judged."""
    verdict = judged("RepeatsItsMask")
    assert Outcome.PASS == verdict.outcome, verdict
    assert not [each for each in verdict.parameters if each.is_untried]
    assert any("`mask`: True hides" in note for note in verdict.notes), verdict.notes
    said = "`mask` passed in every call, as one without it raises"
    assert any(said in note for note in verdict.notes), verdict.notes
    assert "passed in every call, as one without it raises: mask" in verdict.sentence
    assert Outcome.FAIL == judged("RepeatsEachMask", fail_fast=True).outcome


def test_a_mask_that_may_not_be_left_out_may_keep() -> None:
    """Kills a search that ends at the first mask that is answered: all that it hides is NaN."""
    verdict = judged("KeepsByItsMask", cases=60)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("`mask`: True keeps" in note for note in verdict.notes), verdict.notes
    assert Outcome.FAIL == judged("KeepsByEachMask", cases=60, fail_fast=True).outcome


def test_each_parameter_has_its_role() -> None:
    """A mask and a switch are named as such in one sentence."""
    assert "no case passed `mask` (mask), `causal` (causal switch): " in judged("of_two").sentence


def test_a_meaning_helps_where_calls_are_answered() -> None:
    """A mask that changes nothing is judged, and fails, once the option says what it means."""
    verdict = judged("of_nothing")
    assert "; say what it means by --masks mask=hides, keeps or additive, name" in verdict.sentence
    assert Outcome.FAIL == judged("of_nothing", masks=(("mask", "hides"),), fail_fast=True).outcome


def test_a_dtype_that_a_mask_raises_in_is_said_so() -> None:
    """The function takes float32 without a mask: the mask is named."""
    bound = bind(subject("of_float64"))
    assert ("float64",) == bound.offer["dtype"]
    said = "with `mask` it raised TypeError: got a mask of float32"
    assert bound.reasons["dtype", "float32"].startswith(said)


def test_each_mask_is_tried_in_each_dtype() -> None:
    """A second one too, of booleans and of floats: it raises for floats of 32 bits alone."""
    bound = bind(subject("of_two_dtypes"))
    assert ("float64", "float16") == bound.offer["dtype"]
    said = "with `extra_mask` it raised TypeError: got an extra mask of float32"
    assert bound.reasons["dtype", "float32"].startswith(said)
    assert Outcome.PASS == judged("of_two_dtypes", cases=60, dtypes=("float64", "float16")).outcome


def test_no_mask_is_the_reason_where_none_is() -> None:
    """A required mask and a causal layer: a single sample and weights have reasons of their own."""
    bound = bind(subject("PaddingWanted"))
    reasons = {" ".join(key): each for key, each in bound.reasons.items()}
    assert reasons["layout unbatched"].startswith("raised ValueError: got a mask (1, 5)")
    assert "no weights are returned" == reasons["weights averaged"]
    assert not [each for each in reasons.values() if "cannot say" in each]


@pytest.mark.parametrize(
    ("name", "outcome"), [("PaddingWanted", Outcome.PASS), ("PaddingWantedLoose", Outcome.FAIL)]
)
def test_a_required_mask_of_padding_is_filled(name: str, outcome: Outcome) -> None:
    """(N, S) is tried where a mask has to be given."""
    verdict = judged(name)
    assert outcome == verdict.outcome, verdict
    assert {"padding=bool", "attn=causal"} <= {f"{r.axis}={r.value}" for r in verdict.features}


def test_a_refusal_says_what_required_masks_received() -> None:
    """Where the last call raises by a mask of another shape, the sentence names that."""

    class Wants(subject("PaddingWanted")):  # type: ignore[misc]
        def forward(self, x: Any, padding_mask: Any) -> Any:
            raise ValueError(f"got {padding_mask} for {x.shape}")

    with pytest.raises(ValueError, match=r"with None for `padding_mask`: raised ValueError"):
        bind(Wants)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"without": ("masq",)}, "got --without masq, but of_nothing has no .* did you mean mask?"),
        ({"masks": (("masq", "hides"),)}, "got --masks masq, but of_nothing .* did you mean mask?"),
        ({"without": ("zzz",)}, "; it has query, key, value, num_heads, mask; name one, or leave"),
    ],
    ids=["without", "masks", "nothing close"],
)
def test_a_misspelt_parameter_is_refused(options: dict[str, Any], sentence: str) -> None:
    """An option for a parameter that there is not would do nothing, and the run might pass."""
    with pytest.raises(ValueError, match=sentence):
        bind(subject("of_nothing"), **options)


def test_a_mask_by_name_alone_is_passed() -> None:
    """Kills a layer of one input whose keyword-only mask no call got; one unread is no green."""
    right, ignored = (check_subject(f"keep_mask.py:{n}", cases=60) for n in ("ByName", "Ignored"))
    assert Outcome.PASS == right.outcome, right
    assert {"bool2d", "causal"} <= {r.value for r in right.features if r.axis == "attn" and r.cases}
    assert "no case passed `mask`" in ignored.sentence


def test_a_meaning_that_nothing_shows_is_said_to_rest_on_nothing() -> None:
    """Kills "judged so by its documentation" of a layer that documents nothing of its mask."""
    notes = judged("ValuesByWeightsOfKeys").notes
    (said,) = (note for note in notes if note.startswith("`mask`:"))
    assert "taken so, as no trial shows what it means: --masks mask=" in said
