"""The kill matrix: bugs are seen, the right attention is not, and neither failure goes untold."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from mha_parity.__main__ import main
from mha_parity.cases.case_order import asked_cases
from mha_parity.catalogue import Attention, Bug, catalogue
from mha_parity.catalogue.registry import whole_offer
from mha_parity.command_line import parser
from mha_parity.core.case import parse
from mha_parity.selftest import mutation_run, planted_run
from mha_parity.selftest.mutant import run_mutants, suite_cases
from mha_parity.selftest.mutation_matrix import (
    CHECKS,
    REASONS,
    EntryKind,
    KillMatrix,
    MutantResult,
    bugs_by_check,
    matrix_markdown,
    matrix_sentences,
    print_matrix,
)
from mha_parity.selftest.mutation_run import controls, mutation_tasks

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

SEED = 3
CASES = 20
DTYPES = ("float64", "float32")


class Loud(Attention):
    """The right weights, times a little more than 1: what an over-strict judge would see."""

    def softmax(self, scores: Array) -> Array:
        """Enlarge the weights by a thousandth."""
        return np.asarray(super().softmax(scores) * self.work_dtype.type(1.001))


def planted(name: str, kind: type[Attention], equivalent: str | None = None) -> Bug:
    """Return an entry of the catalogue that is not in it."""
    return Bug(
        id=name, family=1, title="planted", wrong="-", right="-", visible_when="-", remedy="-",
        equivalent=equivalent, kinds=(kind,),
    )  # fmt: skip


def matrix(*bugs: Bug, dtype: str = "float64", cases: int = CASES) -> KillMatrix:
    """Return the matrix of a few entries."""
    return KillMatrix(tuple(run_mutants(bugs, suite_cases(dtype, SEED, cases))))


def sentences(matrix: KillMatrix) -> str:
    """Return the sentences on a matrix."""
    return "\n".join(matrix_sentences(matrix))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_control_survives(dtype: str) -> None:
    """The right attention passes every check, with and without a policy on rows that see no key."""
    forward = [bug for bug in controls().values() if not bug.needs]
    found = matrix(*forward, dtype=dtype)
    assert [{}, {}, {}] == [dict(kill.by) for kill in found.kills]
    assert not found.void
    assert found.holds


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_have_a_control_and_bugs_of_their_own(dtype: str) -> None:
    """The right backward pass survives, and wrong ones behind a right output are seen."""
    asked = ("grad-no-scale", "grad-padded-scale", "grad-softmax-diag")
    bugs = [controls()["right attention with its gradients"], *(catalogue()[n] for n in asked)]
    # A key that is appended alone.
    empty = "mha-N2-L3-S0-H2-D3-cross-bias-biaskv-outproj-grad-{}-s4"
    cases = (*suite_cases(dtype, SEED, 6, ("yes",)), parse(empty.format(dtype)))
    right, *wrong = run_mutants(bugs, cases)
    assert {} == dict(right.by)
    assert [{"gradients"}] * 3 == [set(kill.by) for kill in wrong]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("bug", "check"),
    [
        ("scale-dmodel", "output"),
        ("weights-transposed", "weights"),
        ("mutates-inputs", "inputs unchanged"),
        ("mask-1e9-full-row", "fully masked rows"),
        ("samples-mixed", "batch independence"),
    ],
)
def test_a_bug_is_seen_by_its_check(bug: str, check: str, dtype: str) -> None:
    """Values, weights, conduct, policy and relations are each asked, and each says what it saw."""
    kill = matrix(catalogue()[bug], dtype=dtype).kills[0]
    assert kill.by[check] > 0
    assert kill.first is not None
    assert f"{check} {kill.by[check]}" in kill.sentence


def test_an_equivalent_survives_and_is_listed_with_its_proof() -> None:
    """What cannot differ passes, and the summary says why it cannot."""
    bug = catalogue()["softmax-divided-late"]
    found = matrix(bug)
    assert not found.kills[0].killed
    assert found.holds
    assert f"Equivalent: softmax-divided-late (float64): {bug.equivalent}." in sentences(found)


def test_what_lies_beyond_the_cases_is_neither_survivor_nor_alarm() -> None:
    """A bug that the cases cannot be counted on to show is listed with the reason, seen or not."""
    bug = catalogue()["f16-qk-overflow"]
    found = matrix(bug, dtype="float16")
    assert found.holds
    assert EntryKind.BEYOND is found.kills[0].role
    assert "Beyond the cases drawn: f16-qk-overflow (float16), " in sentences(found)
    assert str(bug.beyond) in sentences(found)


def test_a_survivor_is_reported() -> None:
    """A bug whose change does nothing is no failure of the candidate but a hole of the suite."""
    found = matrix(planted("harmless", Attention), catalogue()["scale-dmodel"])
    assert ["harmless"] == [kill.bug for kill in found.survivors]
    assert not found.holds
    assert "1 of 2 wrong attentions are seen" in sentences(found)
    assert "Survivors: harmless in float64." in sentences(found)


def test_a_false_alarm_is_reported() -> None:
    """An equivalent that is seen is a false alarm, and is said with the check that gave it."""
    found = matrix(planted("no equivalent", Loud, equivalent="it is said to be"))
    assert ["no equivalent"] == [kill.bug for kill in found.false_alarms]
    assert not found.holds
    assert "False alarms: no equivalent in float64 (output " in sentences(found)


def test_a_killed_control_voids_the_matrix() -> None:
    """When the right attention is taken for wrong no kill means anything, and that is said."""
    killed = MutantResult("right attention", "float32", {"output": 2}, CASES, 7, EntryKind.CONTROL)
    found = KillMatrix((killed, *matrix(catalogue()["scale-dmodel"]).kills))
    assert found.void
    assert not found.holds
    assert "Control: the right attention fails by output 2 in float32" in sentences(found)
    assert "The matrix is void" in sentences(found)


def test_every_check_has_a_row() -> None:
    """A row says which bugs a check alone sees, or why it stays; checks that see none have one."""
    found = KillMatrix(
        (
            MutantResult("a", "float64", {"output": 3, "causality": 1}, CASES, 1),
            MutantResult("b", "float64", {"output": 3}, CASES, 1),
            MutantResult("c", "float64", {"causality": 1, "padding invariance": 1}, CASES, 1),
        )
    )
    rows = {row[0]: row[1:] for row in bugs_by_check(found)}
    assert [*CHECKS] == [*rows]
    assert ("2", "b") == rows["output"]
    assert ("2", REASONS["causality"]) == rows["causality"]
    assert ("0", "no reason") == rows["weights"]
    assert {*CHECKS} - {"output"} == {*found.idle}
    assert "Bugs that relations alone see: c." in sentences(found)


def test_a_check_without_a_bug_or_a_reason_is_named() -> None:
    """A check that sees no bug alone needs a reason; the sentence names those without one."""
    seen = [check for check in CHECKS if check not in REASONS]
    alone = [MutantResult(check, "float64", {check: 1}, CASES, 1) for check in seen]
    assert "no reason to stay: none." in sentences(KillMatrix(tuple(alone)))
    assert f"no reason to stay: {seen[0]}." in sentences(KillMatrix(tuple(alone[1:])))


def test_what_cannot_be_in_the_dtypes_asked_for_runs_in_its_own() -> None:
    """Every entry of the catalogue is in the matrix, the controls in every dtype."""
    tasks = list(mutation_tasks(DTYPES))
    met = {(name, dtype) for names, dtype in tasks for name in names}
    assert {*catalogue(), *controls()} == {name for name, _ in met}
    assert {("right attention", d) for d in (*DTYPES, "float16")} <= met
    assert ("silent-upcast", "float64") not in met


def test_markdown_has_families_and_folds_the_bugs_away() -> None:
    """The README gets a row per family, and below a fold every bug with every check."""
    found = matrix(catalogue()["scale-dmodel"], catalogue()["softmax-divided-late"])
    text = matrix_markdown([found, found], ("float64",))
    above, below = text.split("<details>")
    assert "| scale | 1 | 1 of 1 | output" in above
    assert "- Under 2 seeds: as it should be under 2." in above
    assert "| `scale-dmodel` | output " in below
    assert f"| `softmax-divided-late` | survives {CASES} cases |" in below


def test_the_table_has_a_column_a_dtype() -> None:
    """A bug that cannot be in a dtype has a dash there."""
    found = matrix(catalogue()["silent-upcast"], dtype="float32")
    console = Console(file=io.StringIO(), width=100)
    print_matrix(found, DTYPES, SEED, console, whole=True)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    shown = stream.getvalue()
    assert "float64: seen by (cases)" in shown
    assert any(line.split()[:2] == ["silent-upcast", "–"] for line in shown.splitlines())


@pytest.mark.parametrize(
    ("bug", "status"),
    [("scale-dmodel", 0), ("harmless", 1)],
    ids=["all as it should be", "one survivor"],
)
def test_exit_status(
    bug: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command returns 1 when a seed is not as it should be, and writes what it is asked to."""
    known = {**catalogue(), "harmless": planted("harmless", Attention)}

    def short(seed: int, cases: int, wanted: tuple[str, ...], _: object) -> KillMatrix:
        assert ("float64",) == wanted
        return KillMatrix(tuple(run_mutants([known[bug]], suite_cases("float64", seed, cases))))

    monkeypatch.setattr(mutation_run, "run_matrix", short)
    # Nine cases see few of the planted sizes: those have tests of their own.
    monkeypatch.setattr(planted_run, "planted", tuple)
    page = tmp_path / "matrix.md"
    options = ["--cases", "9", "--dtype", "float64", "--seeds", "2", "--markdown", str(page)]
    assert status == main(["mutants", *options])
    assert "seed 1: " in capsys.readouterr().out
    assert bug in page.read_text(encoding="utf-8")


def test_defaults_of_the_command() -> None:
    """Without options it is the default suite: its number of cases, both wide dtypes, one seed."""
    asked = parser().parse_args(["mutants"])
    assert (mutation_run.CASES, mutation_run.DEFAULT, 0, 1) == (
        asked.cases, asked.dtype, asked.seed, asked.seeds,
    )  # fmt: skip


def test_telling_cases_come_first() -> None:
    """In the order of asking each bug fails as early as the page on limits says."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "limits.md").read_text("utf-8")
    said = re.search(
        r"the catalogue's (\d+) bugs of\s.* one of the first (\d+) cases", page, re.DOTALL
    )
    bugs = [
        bug
        for bug in catalogue().values()
        if bug.equivalent is None and bug.beyond is None and "gradients" not in bug.needs
    ]
    found = run_mutants(bugs, list(asked_cases(whole_offer(), 120, seed=1)), full=0)

    assert said is not None
    assert [int(number) for number in said.groups()] == [
        len(bugs), max(each.first or 121 for each in found)
    ]  # fmt: skip
