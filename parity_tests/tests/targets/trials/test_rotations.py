"""Tables of positions that a call requires turn nothing, and what is judged is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.case import Case
from mha_parity.core.features import ODD_HEADS, make_offer
from mha_parity.core.options import Options
from mha_parity.core.parameters import Status
from mha_parity.core.target_facts import TargetFacts
from mha_parity.core.verdict import Outcome
from mha_parity.run.asked_cases import cases_for
from mha_parity.targets.bind import bind
from mha_parity.targets.interpretations.identity_rotations import (
    NOTHING_TURNED,
    rotation_by_nothing,
    rotations,
)
from subject_checks import checks_of, load_subject

judged = checks_of("rotations_from_outside.py", cases=40)
RIGHT = {
    "ByComplexNumbers": "`freqs_cis` complex numbers of 1 of shape (L, D / 2)",
    "ByCosinesAndSines": "`cos` cosines of 1 of shape (L, D); `sin` zeros of shape (L, D)",
    "ByPair": "`position_embeddings` a pair of cosines and sines of shape (1, L, D)",
    "ByTable": "`table` a pair of cosines and sines of shape (1, L, D)",
    "ByPositions": "`position_ids` positions of 0 of shape (L,)",
    "ByAngles": "`rotary_angles` zeros of shape (L, D)",
    "Stacked": "`rope_cache` cosines and sines in a last axis of shape (L, D / 2, 2)",
    "Optional": "`rope` complex numbers of 1 of shape (L, D / 2)",
    "StackedByChannel": "`rope_freqs` cosines and sines in a last axis of shape (L, D, 2)",
    "StackedFirst": "`rope` cosines and sines in a first axis of shape (2, L, D)",
    "Grouped": "`freqs_cis` complex numbers of 1 of shape (L, D / 2)",
    "Cached": "`freqs_cis` complex numbers of 1 of shape (L, D / 2)",
    "AddedRows": "`pos_embed` zeros of shape (N, L, E)",
    "Prefixed": "`prefix_lengths` a prefix of no row of shape (N,)",
    "attention": "`freqs` complex numbers of 1 of shape (L, D / 2)",
}


@pytest.mark.parametrize(("name", "said"), RIGHT.items(), ids=RIGHT)
def test_what_is_right_where_nothing_is_turned_holds(name: str, said: str) -> None:
    """Complex numbers, cosines and sines, angles, positions; the report says which, and of what."""
    verdict = judged(name)
    assert verdict.outcome is Outcome.PASS, verdict.sentence
    assert said in " ".join(verdict.notes)
    assert any(note.endswith(f": {NOTHING_TURNED}") for note in verdict.notes)
    table = next(each for each in verdict.parameters if said.startswith(f"`{each.name}`"))
    assert (Status.NOT_TRIED, True) == (table.status, "not tried: " in verdict.sentence)
    assert "not asked" not in " ".join(verdict.notes)


@pytest.mark.parametrize(
    ("name", "bug"), [("Unscaled", "scale-none"), ("InvertedMask", "bool-inverted")]
)
def test_what_is_wrong_beside_the_rotation_fails(name: str, bug: str) -> None:
    """Without a scale, or with its mask inverted, a layer is named by that."""
    verdict = judged(name, diagnose=True)
    assert verdict.outcome is Outcome.FAIL
    assert bug in [each.bug for each in verdict.diagnosis]


def test_rows_behind_kept_ones_are_asked_with_their_own_table() -> None:
    """A mask of the new rows that stands before that of the earlier ones hides the wrong keys."""
    verdict = judged("CachedMaskBehind")
    assert Outcome.FAIL == verdict.outcome
    assert {"rows with a cache"} == {each.check_result.check for each in verdict.failures}


def test_rows_behind_a_cache_are_asked_with_a_table_of_all_rows() -> None:
    """Kills a table of the new rows alone, of which such a layer finds none behind its cache."""
    verdict = judged("SlicesFromTheTop")
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert {"rows with a cache"} == {each.check_result.check for each in verdict.failures}
    right = judged("Slices")
    assert Outcome.PASS is right.outcome, right.sentence
    assert Status.TRIED is {p.name: p.status for p in right.parameters}["cache"]


def test_float64_is_left_out_where_the_rotation_alone_computes_in_float32() -> None:
    """Rotations are not judged; a softmax in float32 beside one stays a finding."""
    verdict = judged("InFloat32")
    assert verdict.outcome is Outcome.PASS
    reasons = {row.value: row.reason for row in verdict.features if row.axis == "dtype"}
    assert "`rotary_in_float32` rotates in float32" in reasons["float64"]
    assert judged("SoftmaxInFloat32").outcome is Outcome.FAIL


def test_learned_rows_of_positions_are_refused() -> None:
    """A row that is added is none of a rotation, whatever the positions are."""
    with pytest.raises(TargetError, match="`positions` ha"):
        bind(load_subject("rotations_from_outside.py:LearnedPositions"))


def test_a_rotation_by_nothing_has_the_sizes_of_a_case() -> None:
    """Pairs of channels are half as many as these, and a pair of arrays has one shape."""
    case = Case(seed=0, batch=2, queries=5, keys=7, heads_count=3, head_dim=8)
    table = rotation_by_nothing("complex 1L1P", case, "float64", lambda array: array)
    assert (1, 5, 1, 4) == table.shape
    assert (table == 1).all()
    cosines, sines = rotation_by_nothing("pair LD", case, "float32", lambda array: array)
    assert (5, 8) == cosines.shape == sines.shape
    assert (cosines == 1).all()
    assert not sines.any()


def test_cases_have_heads_of_an_even_width() -> None:
    """No other size makes a case what it is not: fewer key heads divide the others."""
    facts = TargetFacts(reasons={ODD_HEADS: "it turns pairs"})
    offer = make_offer(form="qkv", projection="none", inputs="cross", v_dim=("equal", "other"),
                       kv_heads=("equal", "fewer"))  # fmt: skip
    candidate: Any = SimpleNamespace(facts=facts, masks=None, offer=offer)
    plain: Any = SimpleNamespace(facts=TargetFacts(), masks=None, offer=offer)
    even, drawn = ([*cases_for(each, offer, Options(cases=300))] for each in (candidate, plain))
    assert {0} == {case.head_dim % 2 for case in even}
    assert {0} == {case.heads_count % (case.kv_heads_count or 1) for case in even}
    assert [(case.kv_heads, case.v_dim) for case in even] == [
        (case.kv_heads, case.v_dim) for case in drawn
    ]
    assert {0, 1} == {case.head_dim % 2 for case in drawn}


def test_names_decide_which_form_is_first() -> None:
    """Every form is tried; cosines and sines by names of their own have one shape."""
    firsts = {
        "freqs_cis": "complex LP", "rotary_emb": "pair LD", "position_ids": "numbers L",
        "theta": "complex LP",
    }  # fmt: skip
    for name, form in firsts.items():
        assert ((name, form),) == next(rotations([name]))
    for cosines, sines in rotations(["sin", "cos"]):
        assert ("cos", "sin") == (cosines[0], sines[0])
        assert cosines[1].split() == ["1", sines[1].split()[1]]


def test_a_prefix_is_no_length_of_keys() -> None:
    """Padding beside it is judged, in odd widths too: no pair of channels is turned."""
    verdict = judged("Prefixed")
    assert any("`is_token`: True keeps" in note for note in verdict.notes), verdict.notes
    assert not any("odd" in note for note in verdict.notes)
    assert Outcome.PASS is not judged("PrefixedAlone").outcome
