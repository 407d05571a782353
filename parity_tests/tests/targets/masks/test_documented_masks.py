"""A mask of torch's name is judged by what the target's documentation says of it, if it does."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.masks.documented_meaning import documented_hides
from mha_parity.targets.masks.documented_shapes import documented_shapes
from subject_checks import check_subject, checks_of

SAID = {
    "0 = mask, 1 = keep": False,
    "(L, S), where mask[i, j] == 0 hides key j": False,
    "positions with ``True`` are not allowed to attend": True,
    "boolean, True for keys that are ignored": True,
    "True where a key takes part, and False where it is masked": False,
    "2D or 3D mask that prevents attention to certain positions": None,
    "1 hides, 0 hides": None,
    "added to the scores": None,
    "1 for valid positions / 0 for padding": None,
    "1 \u8868\u793a valid\uff0c0 \u8868\u793a padding": False,
    "True for tokens that aren't masked": False,
    "True for non-padding tokens": False,
    "True for valid (non-padded) tokens": False,
    "True = padding token (should not be attended to)": True,
    "boolean (True attends)": False,
    "True means the key is included": False,
    "1 for keys that are permitted": False,
    "True allows attention without restriction": False,
    "True keeps the key (never hides it)": False,
    "True where the token != PAD": False,
    "True for all tokens except padding": False,
    "True values attend": False,
    "True = this query may use this key": False,
    "True = this key is padding, no one may use it": True,
    "True for usable keys": False,
    "True positions are ignored": True,
    "True marks keys that may not be read": True,
    "True: this key must NOT be looked at. A row with everything blocked gives zeros.": True,
    "True means hidden; masked keys get exactly zero weight": True,
    "True where the key won\u2019t be attended": True,
}


judged = checks_of("documented_masks.py", cases=60, dtypes=("float64",))


@pytest.mark.parametrize("text", SAID)
def test_a_value_and_what_it_does_are_read_and_nothing_else(text: str) -> None:
    """A clause with a value and one verb says a meaning; two that disagree say none."""

    def entry() -> None: ...

    entry.__doc__ = f"Attend.\n\n    mask: {text}\n    x: 1 is kept\n"
    assert documented_hides(entry, entry, "mask") is SAID[text]
    assert documented_hides(entry, entry, "other") is None
    certain = "True" in text or text.startswith(("0 = mask, 1 = keep", "1 \u8868\u793a valid"))
    said = documented_hides(entry, entry, "mask", clauses=2)
    assert said is (SAID[text] if certain else None)


def test_an_entry_within_a_sentence_is_read_to_its_end() -> None:
    """Lines are wrapped within it; a line that begins with another name ends it."""

    def entry() -> None: ...

    entry.__doc__ = """Attend.

    x (N, L, E), rows as they come; seen (N, S) bool, True
    for keys that are kept, in any order.
    other: (N, S) bool, True hides.
    """
    assert documented_hides(entry, entry, "seen") is False
    assert (("N", "S"),) == documented_shapes(entry, entry, "seen")
    assert documented_hides(entry, entry, "other") is True


@pytest.mark.parametrize(
    "text",
    ["if True keys are hidden", "when `True` keeps", "If ``True`` is given keys are masked",
     "True from the first key on is padding", "1 for keys that are permitted",
     "True so that no token attends"],
)  # fmt: skip
def test_one_clause_that_could_be_misread_is_not_demanded(text: str) -> None:
    """A True that is said to do nothing by itself, a condition, or a number alone."""

    def entry() -> None: ...

    entry.__doc__ = f"Attend.\n\n    mask: {text}\n"
    assert documented_hides(entry, entry, "mask", clauses=2) is None


@pytest.mark.parametrize("name", ["AttendsByOneClause", "LooksAtByOneClause"])
def test_one_clause_that_says_what_its_true_does_is_demanded(name: str) -> None:
    """The opposite fails: trials alone would have found and taken it."""
    verdict = judged(name, cases=18)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
    (mask,) = (each for each in verdict.parameters if each.name == "mask")
    assert "True keeps" in mask.meaning
    assert "judged so by its documentation" in mask.meaning


def test_a_documented_mask_is_judged_as_documented() -> None:
    """`attn_mask` keeps where its documentation has it so, and the report names the source."""
    verdict = judged("ZeroHides")
    assert Outcome.PASS == verdict.outcome, verdict.sentence
    (mask,) = (each for each in verdict.parameters if each.name == "attn_mask")
    assert "keeps, the opposite of torch.nn.MultiheadAttention's" in mask.meaning
    assert "judged so by its documentation, unless --masks attn_mask=hides" in mask.meaning


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("RequiredKeeps", Outcome.PASS),
        ("RequiredInverted", Outcome.FAIL),
        ("BuiltWithAMask", Outcome.PASS),
        ("BuiltWithALateMask", Outcome.FAIL),
    ],
)
def test_masks_of_other_names_and_of_a_constructor(name: str, outcome: Outcome) -> None:
    """A mask of any name means what is documented; `mask=None` of a constructor may be a switch."""
    verdict = judged(name)
    assert outcome is verdict.outcome, verdict.sentence


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("OneForEachSample", Outcome.FAIL),
        ("OneForEachSampleInOrder", Outcome.PASS),
        ("OneForEachSampleUnsaid", Outcome.FAIL),
        ("OneForEachSampleRequired", Outcome.FAIL),
        ("WithPadding", Outcome.FAIL),
        ("weighted", Outcome.FAIL),
        ("weighted_by_floats", Outcome.PASS),
        ("weighted_by_large_numbers", Outcome.PASS),
        ("Described", Outcome.PASS),
        ("DescribedByPurpose", Outcome.PASS),
        ("Gated", Outcome.PASS),
        ("NoAxisOfHeads", Outcome.FAIL),
        ("SeesTokensOrPast", Outcome.FAIL),
        ("ExpandedWithin", Outcome.PASS),
        ("BroadcastToScores", Outcome.PASS),
        ("CountsKeys", Outcome.PASS),
        ("TwoLayouts", Outcome.PASS),
    ],
)
def test_a_documented_shape_and_type_are_judged(name: str, outcome: Outcome) -> None:
    """Not those alone in which some mask has the effect of one.

    A mask of each sample passed as one of a single sample, and a boolean one as the floats that
    it was added as.
    """
    verdict = judged(name)
    assert outcome is verdict.outcome, verdict.sentence


def test_a_meaning_that_no_trial_shows_is_said_to_be_the_documentation_s() -> None:
    """It is not said to be found by trial."""
    (note,) = [each for each in judged("SeesTokensOrPast").notes if "`tokens_mask`" in each]
    assert "judged so by its documentation, unless --masks tokens_mask=hides" in note


def test_a_documented_shape_that_raises_is_said_beside_those_that_do_not() -> None:
    """An option that demands another shape lets it be."""
    (note,) = [each for each in judged("NoAxisOfHeads").notes if each.startswith("`mask`")]
    assert "documented as (N, L, S), which raises" in note
    assert 1 == note.count("(N, L, S)")
    demanded = judged("NoAxisOfHeads", masks=(("mask", "keeps:(L, S)"),))
    assert demanded.outcome is Outcome.PASS


def test_a_mask_that_is_understood_of_one_sample_alone_is_untried() -> None:
    """The sentence names it, though its name says nothing."""
    sentence = judged("OneForEachSampleUnnamed").sentence
    assert "no case passed `shown` (mask): `shown` is understood of one sample alone" in sentence


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("mask: (B, L, L) bool", [("N", "L", "S")]),
        ("mask (Tensor, (batch, 1, q_len, kv_len)): bool", [("N", "1", "L", "S")]),
        ("mask: (batch_size, seq_len) or (L, S)", [("N", "S"), ("L", "S")]),
        ("mask: (B * H, Lq, Lk)", [("NH", "L", "S")]),
        ("x: (B, L, E); mask: (n, h, l, s), True keeps", [("N", "H", "L", "S")]),
        ("x: (B, L, E), mask (b, heads, t, t).", [("N", "H", "L", "S")]),
        ("mask: (n, n)", [("L", "S")]),
        ("mask: (b, n, n), viewed as (b, 1, n, n)", [("N", "L", "S")]),
        ("mask: (b, s, 1) or [num_queries, num_keys]", [("N", "S", "1"), ("L", "S")]),
        ("mask: (b, n, n), weights: (b, h, n, n)", [("N", "L", "S")]),
        ("mask: added; (L, S) for all, or (N, L, S) one per sample", [("L", "S"), ("N", "L", "S")]),
        ("mask: (B, L, E)", []),
        ("other: (B, L, L)", []),
    ],
)
def test_the_shapes_of_a_mask_are_read(text: str, shapes: list[tuple[str, ...]]) -> None:
    """By the words of its axes, of this parameter alone; one unknown word makes it no shape."""

    def entry() -> None: ...

    entry.__doc__ = f"Attend.\n\n    {text}\n    y: (B, S)\n"
    assert shapes == [*documented_shapes(entry, entry, "mask")]


def test_a_required_mask_of_the_opposite_meaning_is_said() -> None:
    """It hides every key in every case, so that no case shows more."""
    (cause,) = judged("RequiredInverted", diagnose=True).diagnosis
    said = "the mask is inverted: True or 1 of `keep_mask` hides a key that it should keep"
    assert said == cause.title


@pytest.mark.parametrize("name", ["ZeroHidesInverted", "ZeroHidesUnsaid"])
def test_another_meaning_than_documented_or_than_torchs_fails(name: str) -> None:
    """The mask of torch's meaning where its opposite is documented, and the opposite unsaid."""
    assert Outcome.FAIL == judged(name, fail_fast=True).outcome


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("tokens", Outcome.PASS),
        ("tokens_inverted_bit_by_bit", Outcome.FAIL),
        ("tokens_refused", Outcome.PASS),
        ("tokens_of_booleans", Outcome.PASS),
    ],
)
def test_integers_are_passed_where_the_documentation_allows_them(
    name: str, outcome: Outcome
) -> None:
    """A promised mask of 0 and 1 means what booleans mean; the report says where it does not."""
    verdict = judged(name)
    assert outcome is verdict.outcome, verdict.sentence
    (mask,) = (each for each in verdict.parameters if each.name == "attention_mask")
    unlike = "integers of 0 and 1, which its documentation allows, hide other keys" in mask.meaning
    assert unlike is (outcome is Outcome.FAIL)


def test_integers_that_the_documentation_names_beside_booleans_may_not_raise() -> None:
    """Kills promised integers that raise and are never passed; zeros and ones may be booleans."""
    verdict = judged("TokensThatRaise", diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    (mask,) = (each for each in verdict.parameters if each.name == "attention_mask")
    assert "integers of 0 and 1, which its documentation allows, raise" in mask.meaning
    assert Outcome.PASS == judged("TokensToConvert").outcome


def test_integers_that_are_read_otherwise_are_named() -> None:
    """What a mask does is said of integers, which are passed beside booleans."""
    first, *others = judged("tokens_inverted_bit_by_bit", diagnose=True).diagnosis
    assert first.title.startswith("`attention_mask` of integers 0 and 1 is not read as one of")
    assert "booleans" in first.remedy
    assert not others


def test_what_else_masks_do_wrong_is_said_beside_integers() -> None:
    """The causal rule is no mask of integers: its own fault stands behind."""
    first, second = judged("tokens_and_a_late_future", cases=120, diagnose=True).diagnosis
    assert "of integers 0 and 1" in first.title
    assert "row i sees keys 0 … i+1" in second.title


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("begun", Outcome.PASS),
        ("entered", Outcome.PASS),
        ("halved", Outcome.FAIL),
        ("unsaid", Outcome.FAIL),
    ],
)
def test_a_mask_that_is_documented_as_added_gets_floats(name: str, outcome: Outcome) -> None:
    """Of torch's name and torch's order of inputs: booleans would be added as 0 and 1."""
    verdict = check_subject(f"added_masks.py:{name}", cases=40, dtypes=("float64",))
    assert outcome is verdict.outcome, verdict
    noted = any("its documentation says that `attn_mask` is added" in n for n in verdict.notes)
    assert (name != "unsaid") is noted


@pytest.mark.parametrize(
    ("text", "hides"),
    [
        ("In a boolean mask True means *not allowed*, a floating point mask is added.", True),
        ("Both masks are boolean; True keeps the key.", False),
        ("A boolean mask may be passed.", None),
    ],
)
def test_what_is_said_of_all_boolean_masks_is_said_of_each(text: str, hides: bool | None) -> None:
    """A sentence of all masks is read where there is no entry of the one."""

    def entry() -> None: ...

    entry.__doc__ = f"Attend.\n\n    Masks follow torch's module. {text}"
    assert documented_hides(entry, entry, "attn_mask") is hides


def test_a_mask_that_is_documented_as_booleans_is_not_asked_as_integers() -> None:
    """Kills integers among its kinds, by which NumPy answers in float64 and is asked no float32."""
    verdict = judged("multiplied_by_booleans", dtypes=("float64", "float32"))
    assert Outcome.FAIL is verdict.outcome, verdict
    asked = {row.value: row.cases for row in verdict.features if row.axis == "dtype"}
    assert asked["float32"]


def test_each_documented_shape_is_demanded_of_self_attention() -> None:
    """It has one length: the words for queries and keys are the same, and mean both.

    Kills a pass by the one shape that calls take.
    """
    assert Outcome.PASS == check_subject("two_shapes.py:BothShapes", cases=40).outcome
    verdict = check_subject("two_shapes.py:OneOfBoth", cases=40)
    assert "call completes" in {each.check_result.check for each in verdict.failures}
