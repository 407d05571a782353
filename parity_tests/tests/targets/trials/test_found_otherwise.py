"""What names say less of than most is found in the code of the target, or by a call."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from subject_checks import checks_of, load_subject

FILE = "found_otherwise.py"
judged = checks_of(FILE, cases=40, dtypes=("float64",))

RIGHT = {
    "InnerConfiguration": "as Linears",
    "ConfigurationBeside": "as Linears",
    "RingOfConfigurations": "as Linears",
    "ComparedString": "kind_of_mask",
    "RequiredString": "as Linears",
    "MatchedString": "as Linears",
    "OwnLinears": "(N, E, height, width)",
    "ValueFirst": "`value` the value, `key` the key, `query` the query",
    "MaskOfColumns": "taken as (N, S, 1)",
    "BiasOfTheLayer": "Wqkv, Wout applied as X @ W",
    "BuiltForABatch": "as Linears",
    "BuiltForABatchByDefault": "as Linears",
    "RoomForFour": "as Linears",
    "Unread": "no call reads `head`",
    "NoRequiredRows": "`query` the query, `key` the key, `value` the value",
    "BiasesAlone": "without biases its constructor raised AttributeError",
    "ChannelsOfHeads": "as Linears",
    "heads_of_module": "applied as X @ W",
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_hold_and_the_report_says_how_they_are_called(name: str) -> None:
    """A right attention holds with several heads, whatever says how many there are."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence
    assert any(RIGHT[name] in note for note in verdict.notes), verdict.notes
    assert "many" in {row.value for row in verdict.features if row.axis == "heads" and row.cases}


def test_a_function_with_heads_of_its_module_is_judged() -> None:
    """A wrong scale is found with each number of heads, and the module has its own again."""
    assert Outcome.FAIL == judged("heads_of_module_unscaled", fail_fast=True).outcome
    assert 4 == load_subject(f"{FILE}:heads_of_module").__globals__["N_HEADS"]


@pytest.mark.parametrize("name", ["MaskOfRows", "LengthsOfRows"])
def test_a_mask_along_the_queries_is_named(name: str) -> None:
    """A mask of a layer of one input that hides no key is judged as a mask of keys, and fails."""
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    assert "kpm-query-axis" == verdict.diagnosis[0].bug


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MaskOfRowsOfQueries", "`query_mask` changes rows of queries and hides no key"),
        ("MaskOfRowsBesideContext", "`mask` changes rows of queries and hides no key"),
        ("MaskOfOutputRows", "`row_mask` sets rows of queries to zero"),
    ],
)
def test_a_mask_of_queries_leaves_the_verdict_open(name: str, said: str) -> None:
    """One that is of rows by its name, or stands beside a context, is not tried."""
    verdict = judged(name)
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert said in verdict.sentence


def test_a_layer_with_a_batch_size_is_asked_one_sample_after_several() -> None:
    """Where its first call of one sample is right, a later one has to be."""
    verdict = judged("KeepsForOneSample")
    assert "statelessness" in {each.check_result.check for each in verdict.failures}


def test_rows_behind_another_input_do_not_change_their_roles() -> None:
    """`query`, `key` and `value` are no key and value of an `x` that stands before them."""
    assert Outcome.FAIL == judged("FirstOfThree").outcome


def test_a_projection_that_is_forgotten_is_no_spare_one() -> None:
    """Beside a Linear that nothing reads, an output projection that is not applied is named."""
    verdict = judged("UnreadOutput", diagnose=True)
    assert "out-proj-skipped" == verdict.diagnosis[0].bug


def test_a_layer_keeps_no_unread_parameters_in_its_call() -> None:
    """The parameters that no call reads are named by their module, once."""
    assert ["no call reads `head`"] == [
        said for said in bind(load_subject(f"{FILE}:Unread")).remarks[0].rstrip(".").split("; ")
        if said.startswith("no call")
    ]  # fmt: skip


def test_a_size_of_blocks_is_no_number_of_heads() -> None:
    """Where nothing fits, names decide: heads as large as a block were misdiagnosed as mixed."""
    verdict = checks_of("functions_of_weights.py", cases=40, diagnose=True)("by_blocks")
    assert Outcome.FAIL is verdict.outcome, verdict
    assert ("qkv", "softmax-plus-one") == (verdict.convention, verdict.diagnosis[0].bug)


def test_a_width_of_heads_is_not_their_number_though_it_is_a_whole_number() -> None:
    """The first of two annotated numbers was taken for that of the heads."""
    verdict = checks_of("functions_of_weights.py", cases=40)("of_annotated_sizes")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
