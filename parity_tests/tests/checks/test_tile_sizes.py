"""Kernels are asked with other tiles than their default: the answer should be the same."""

from __future__ import annotations

from inspect import Parameter

import pytest

from mha_parity.checks.tile_sizes import NAME
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.tile_names import may_be_of_tiles
from subject_checks import checks_of

judged = checks_of("tile_arguments.py", cases=60, dtypes=("float64",))


@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        ("by_blocks", {"block_q", "block_k"}),
        ("of_vectors", {"block_q", "block_k"}),
        ("in_chunks", {"chunk_size"}),
    ],
)
def test_right_kernels_are_tried_with_other_tiles(name: str, tiles: set[str]) -> None:
    """Kills sizes that are left at their default; those that raise are no finding."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    tried = {each.name for each in verdict.parameters if each.status is Status.TRIED}
    assert tiles <= tried
    assert any(NAME == row.name and row.cases for row in verdict.checks)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("skipped_by_the_first_row", "with the causal rule"),
        ("whole_chunks", "with `chunk_size` = "),
    ],
)
def test_what_other_tiles_answer_otherwise_is_a_finding(name: str, said: str) -> None:
    """Both are right with their defaults, and pass without this check."""
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert any(said in f.check_result.detail for f in verdict.failures)
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert "rest behind the last whole tile" in verdict.diagnosis[0].remedy


@pytest.mark.parametrize("name", ["within_chunks", "within_blocks"])
def test_attention_within_a_window_is_another_one(name: str) -> None:
    """Kills a size taken for that of tiles by its name: by default the window is wider than all."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert NAME not in {each.check_result.check for each in verdict.failures}


def test_roundings_of_float32_are_no_finding() -> None:
    """What computes in float32 whatever its inputs are fails as that, and not by its tiles."""
    verdict = judged("in_float32", max_failures=0)
    assert Outcome.FAIL == verdict.outcome
    assert NAME not in {each.check_result.check for each in verdict.failures}


@pytest.mark.parametrize(
    ("name", "default", "expected"),
    [
        ("BLOCK_M", 64, True),
        ("kvTile", 16, True),
        ("bq", 32, True),
        ("num_splits", 4, True),
        ("q_bucket_size", 512, True),
        ("num_buckets", 32, False),
        ("chunk_size", None, True),
        ("b_q", None, False),
        ("block", True, False),
        ("blocked", 3, False),
        ("num_blocks_of_layers", 3, False),
        ("mask", None, False),
        ("mask_block_size", 1, False),
    ],
)
def test_tiles_are_found_by_name_and_default(name: str, default: object, expected: bool) -> None:
    """A bias of queries is none, nor a switch."""
    parameter = Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default)
    assert expected == may_be_of_tiles(parameter)


@pytest.mark.parametrize(
    "name", ["of_required_blocks", "of_letters", "of_chunks", "some_heads_at_a_time", "in_splits"]
)
def test_a_kernel_whose_tiles_have_no_default_is_passed_some(name: str) -> None:
    """Without a default it was refused: no call of it went through."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert "not tried" not in verdict.sentence
    assert any(NAME == row.name and row.cases for row in verdict.checks)


def test_blocks_in_which_rows_stay_are_passed_whole_and_said() -> None:
    """Attention within blocks is no wrong kernel: with all keys in one it is torch's."""
    verdict = judged("within_required_blocks")
    assert Outcome.PASS == verdict.outcome, verdict
    assert "passed as all keys: block_size" in verdict.sentence


@pytest.mark.parametrize(
    "name", ["not_rescaled", "heads_left_out", "heads_of_module_left_out", "mean_of_splits"]
)
def test_wrong_tiles_are_judged_as_they_are(name: str) -> None:
    """Kills a tile of all keys, and a number of heads of one pass that is set to that of all."""
    assert Outcome.FAIL == judged(name).outcome


def test_names_of_tiles_without_a_default() -> None:
    """`bq` may be a bias unless it is a whole number; `br` is none."""

    def required(name: str, annotation: object = Parameter.empty) -> bool:
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return may_be_of_tiles(Parameter(name, kind, annotation=annotation))

    known = (
        "block_size",
        "tile",
        "k_bucket_size",
        "BLOCK_M",
        "Br",
        "head_chunk",
        "heads_per_pass",
        "n_splits",
    )
    assert all(map(required, known))
    assert required("bq", int)
    assert not any(map(required, ("bq", "b_k", "n_heads", "mask_block", "q", "heads")))
