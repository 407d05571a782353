"""Classes whose sizes are numbers of their code: judged at these, and wrong ones fail there."""

from __future__ import annotations

import pytest

from mha_parity.cases.fixed_sizes import fixed_sizes
from mha_parity.cases.generate import make_problem
from mha_parity.cases.sizes import FULL_LIMIT, judging_microseconds
from mha_parity.core.candidate import CandidateError, FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.core.own_weights import OwnWeights
from mha_parity.core.target_facts import TargetFacts
from mha_parity.core.verdict import Outcome
from mha_parity.run.asked_cases import SIZES_JUDGED, cases_for
from mha_parity.targets.bind import bind
from mha_parity.targets.layers.sizes_in_code import sizes_in_code
from subject_checks import checks_of, load_subject

judged = checks_of("sizes_in_code.py", dtypes=("float64", "float32"))
ALONE = "judged at its own sizes alone: num_heads "


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("Attention", "4, head_dim 16"), ("FixedHeads", "8"), ("OfNumpy", "1, head_dim 32")],
)
def test_right_ones_pass_at_their_own_sizes(name: str, sizes: str) -> None:
    """Kills a refusal of what is built for no other width, and calls in four heads of eight."""
    right = judged(name, cases=40)
    assert Outcome.PASS is right.outcome, right
    said = [note.removeprefix(ALONE) for note in right.notes if note.startswith(ALONE)]
    assert [sizes] == said


def test_a_layer_that_is_built_needs_no_number_of_heads() -> None:
    """It has no attribute for them: kills a refusal that asks for one."""
    right = checks_of("sizes_in_code.py", cases=40)("layer")
    assert Outcome.PASS is right.outcome, right


def test_heads_that_a_keyword_alone_sets_are_its_own() -> None:
    """Kills a refusal of four heads that no parameter of the constructor names."""
    right = checks_of("without_counterpart.py", cases=40)("OwnHeads")
    assert Outcome.PASS is right.outcome, right
    assert f"{ALONE}4" in right.notes


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("ScaledByAll", "scale-dmodel"),
        ("Unmoved", "merge-no-transpose"),
        ("FixedHeadsUnscaled", "scale-none"),
        ("OfNumpyTwice", "scale-linear"),
    ],
)
def test_wrong_ones_are_named_at_their_own_sizes(name: str, bug: str) -> None:
    """Kills a refusal of what is right at no sizes, and experiments at sizes it is not built in."""
    wrong = judged(name, diagnose=True)
    assert Outcome.FAIL is wrong.outcome, wrong
    assert bug == wrong.diagnosis[0].bug, wrong.diagnosis


@pytest.mark.parametrize("name", ["OfClass", "OfFrozen", "OfSpace", "OfTable", "HeadsOfModule"])
def test_numbers_of_classes_and_tables_are_set(name: str) -> None:
    """Kills a width that an attribute or a key holds and that is left as it is: it was refused.

    And eight heads of a module at any width, which was red wherever eight divide it not.
    """
    right = judged(name, cases=40)
    assert Outcome.PASS is right.outcome, right
    assert any("of its module" in note and "set to the sizes" in note for note in right.notes)
    assert not any(note.startswith(ALONE) for note in right.notes), right.notes


def test_numbers_that_were_set_are_set_back() -> None:
    """Kills sizes of a case that stay in the user's objects, of which one is frozen."""
    assert Outcome.FAIL is judged("OfTableUnscaled", fail_fast=True).outcome
    scope = load_subject("sizes_in_code.py:OfTable").__init__.__globals__
    held = (scope["table"]["d_model"], scope["Sizes"].n_heads, scope["frozen"].d_model)
    assert (512, 8, 512) == held


def test_likelier_sizes_are_tried_first() -> None:
    """Several heads of a width in the code come before one head; a layer with heads has none."""
    found = list(sizes_in_code(load_subject("sizes_in_code.py:Attention")))
    assert {"heads_count": 4, "head_dim": 16} == found[0]
    assert {"heads_count": 1, "head_dim": 64} in found
    assert [] == list(sizes_in_code(load_subject("built_layers.py:Attention")))


def test_all_problems_have_the_fixed_sizes() -> None:
    """Inside the context alone: kills sizes that stay behind it."""
    case = Case(seed=1, batch=2, queries=5, keys=5, heads_count=2, head_dim=3)
    with fixed_sizes({"heads_count": 4, "head_dim": 16}):
        assert (2, 5, 64) == make_problem(case).query.shape
    assert (2, 5, 6) == make_problem(case).query.shape


def test_problems_of_other_sizes_are_not_asked() -> None:
    """Kills a crash of the layer that is said of it: no case asks for other sizes."""
    bound = bind(load_subject("sizes_in_code.py:Attention"))
    case = Case(seed=1, batch=2, queries=5, keys=5, heads_count=2, head_dim=3)
    with pytest.raises(CandidateError, match="not asked: it is built with heads_count 4"):
        bound(make_problem(case))


def test_long_cases_of_wide_layers_are_shortened() -> None:
    """Kills 2,049 rows of 512 channels, as lengths are drawn for narrow heads: a minute a case."""
    offer = make_offer(inputs=("self", "cross"), size=("small", "medium"))
    sizes = {"heads_count": 8, "head_dim": 64}
    own = OwnWeights(arrays={}, features={}, sizes=sizes, places={})
    candidate = FunctionCandidate("wide", None, offer, facts=TargetFacts(own_weights=own))
    cases = list(cases_for(candidate, offer, Options(cases=200)))
    assert {(8, 64)} == {(each.heads_count, each.head_dim) for each in cases}
    costs = [
        judging_microseconds({name: getattr(each, name) for name in SIZES_JUDGED}, each.features())
        for each in cases
    ]
    assert FULL_LIMIT >= max(costs)
    assert any(each.queries > 64 for each in cases)
