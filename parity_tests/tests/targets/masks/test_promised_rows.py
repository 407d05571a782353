"""What the documentation promises of rows that see no key is demanded, and said."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.documented_masked_rows import documents_a_key, documents_zero_rows
from subject_checks import checks_of

judged = checks_of("promised_rows.py", cases=200, dtypes=("float64", "float32"))
PROMISED = "its documentation promises 0 in rows that see no key"


@pytest.mark.parametrize(
    ("name", "outcome", "promised"),
    [
        ("zero", Outcome.PASS, True),
        ("uniform", Outcome.FAIL, True),
        ("uniform_as_said", Outcome.PASS, False),
        ("nan_where_unsaid", Outcome.PASS, False),
        ("Layer", Outcome.PASS, True),
        ("LayerOfMeans", Outcome.FAIL, True),
        ("LayerOfZeros", Outcome.PASS, True),
        ("uniform_weights", Outcome.PASS, True),
    ],
)
def test_promised_zeros_are_demanded(name: str, outcome: Outcome, *, promised: bool) -> None:
    """Zeros that are promised fail where they are a mean; what is promised otherwise does not."""
    verdict = judged(name)
    assert outcome is verdict.outcome, verdict
    assert promised == any(note.startswith(PROMISED) for note in verdict.notes)


def test_rows_of_promised_zeros_have_no_nan_for_a_gradient() -> None:
    """Where the softmax was 0 / 0 its backward is NaN, whatever was made of its answer."""
    assert Outcome.PASS is judged("without_gradient", grad=True).outcome
    verdict = judged("with_nan_gradient", grad=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    checks = {each.check_result.check for each in verdict.failures}
    assert {"gradient of query", "gradient of key"} == checks


def test_what_is_promised_is_the_diagnosis() -> None:
    """The sentence says what the rows are, and what was promised."""
    (found,) = judged("uniform", diagnose=True).diagnosis
    assert "rows that see no key are the mean of the values" in found.title
    assert "the target's documentation promises zero" in found.title


def test_an_option_is_stronger_than_the_documentation() -> None:
    """Asked for means, the rows of zeros fail, and those of means pass."""
    assert Outcome.FAIL is judged("zero", fully_masked="uniform").outcome
    assert Outcome.PASS is judged("uniform", fully_masked="uniform").outcome


@pytest.mark.parametrize(
    ("text", "promised"),
    [
        ("A query left with no key returns zeros.", True),
        ("Rows without any visible key are zero in the output.", True),
        ("head outputs are zero for queries whose whole context is padding", True),
        ("Fully masked rows come to 0.", True),
        ("Rows that see nothing come out as zeros, not NaN.", True),
        ("Queries with nothing to attend to return zero.", True),
        ("Queries for which no key takes part get a zero vector and pass no gradient.", True),
        ("Queries without any key yield zeros, both in the output and in the weights.", True),
        ("A query without any permitted key gets a row of zeros, as torch does it.", True),
        ("Queries that may use no key have zero weights and a zero output.", True),
        ("For an empty set the attention result is the zero vector.", True),
        ("An empty set is not zero.", False),
        ("Fully masked rows are not zero.", False),
        ("Queries that see no key have zero weights.", False),
        ("All masked positions receive zero probability.", False),
        ("There is no key bias, zero init.", False),
        ("In fully masked rows the scores are all 0, that is, every value is averaged.", False),
        ("All masked entries contribute zero to the output.", False),
        ("mask: tensor of 0 and 1, fully masked rows are averaged", False),
        ("Fully masked rows are avoided: position 0 is always visible.", False),
        ("A row with no True attends uniformly to all keys (scores are 0).", False),
        ("Fully masked rows are filled with 0.0 by the caller.", False),
        ("Without a key mask, attention starts at position 0.", False),
        ("Adds a batch of zero key so that fully masked rows see a 0.", False),
        ("Fully masked rows are NaN, where 0 is expected.", False),
        ("A row may have no key. Biases are zero.", False),
        ("No key is dropped; 0 = masked.", False),
        ("The weights of fully masked rows are zero.", False),
    ],
)
def test_a_promise_is_one_sentence_that_denies_nothing(text: str, *, promised: bool) -> None:
    """Both in one sentence, of the output, without a word of denial."""

    def target() -> None: ...

    target.__doc__ = text
    assert promised is documents_zero_rows(target)


@pytest.mark.parametrize(
    ("text", "demanded"),
    [
        ("bias may contain -inf as long as every row keeps one key.", True),
        ("Each query must see at least one key.", True),
        ("Every row of ``bias`` must leave at least one key.", True),
        ("mask: every row should have at least one True.", True),
        ("Every query sees the keys before it.", False),
        ("Each row has one key less than the row behind it.", False),
        ("Rows keep one key.", False),
        ("Every token has one embedding.", False),
    ],
)
def test_a_key_is_demanded_of_each_row_in_these_words(text: str, *, demanded: bool) -> None:
    """Rows without a key are not asked then: kills every sentence of rows and keys."""

    def target() -> None: ...

    target.__doc__ = text
    assert demanded is documents_a_key(target)


def test_rows_without_a_key_are_not_asked_where_one_is_demanded() -> None:
    """One row that is the least finite number at all keys is NaN there, by the documentation."""
    verdict = judged("demands_a_key", cases=120, dtypes=("float64",))
    assert Outcome.PASS is verdict.outcome, verdict
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("masked_rows", "some"))
    assert ("not offered", "its documentation demands a key for each row") == (
        row.status, row.reason
    )  # fmt: skip
