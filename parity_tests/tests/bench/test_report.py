"""What the benchmark prints, writes and compares, on times that are made up."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mha_parity.__main__ import main
from mha_parity.bench import (
    command,
    compare,
    json_document,
    markdown,
    plots,
    table,
)
from mha_parity.bench.contenders import CONTENDERS
from mha_parity.bench.results import BenchReport, TaskResult, result
from mha_parity.bench.stats import Interval
from mha_parity.bench.tasks import LARGE, SETS, Size, Task, tasks
from mha_parity.bench.timing import ContenderTimes, TaskTimes
from mha_parity.command_line import parser
from mha_parity.report import units
from mha_parity.report.progress import progress

# Milliseconds of each contender on a task that torch's fastest path needs one for.
MILLISECONDS = {
    "numpy-weights": 1.2, "numpy": 0.9, "numpy-prepared": 0.8, "torch-weights": 2.0,
    "torch-eval-weights": 1.5, "torch": 1.0, "torch-fast": 1.1,
}  # fmt: skip
ENVIRONMENT = {
    "cpu": "A processor with a name that is rather long", "cores": "2", "threads": "2",
    "numpy": "2.4.0", "numpy_blas": "openblas 0.3 SkylakeX", "torch": "2.13.0",
    "torch_blas": "MKL, AVX512", "python": "3.12", "platform": "Linux", "mha_parity": "0.1.0",
    "OPENBLAS_CORETYPE": "Haswell",
}  # fmt: skip
PEAKS = {"numpy": 1e11, "torch": 2e11}


def contest_of(task: Task, factors: dict[str, float], rounds: int, seed: int) -> TaskTimes:
    """Return a contest with 2 % noise of each and 30 % of the machine, the same for all a round."""
    rng = np.random.default_rng(seed)
    machine = np.exp(0.3 * rng.standard_normal(rounds))
    entries = []
    for each in CONTENDERS:
        own = np.exp(0.02 * rng.standard_normal(rounds)) * factors.get(each.name, 1.0)
        times = (MILLISECONDS[each.name] * (task.flops / 1.7e11 + 5e-6) * own * machine).tolist()
        entry = ContenderTimes(contender=each, times=times, memory=3 << 20, units=0.25)
        if each.name == "torch-fast" and task.size.num_heads % 2:
            entry.leave_out("left out", "torch does not take it for an odd number of heads")
        entries.append(entry)
    return TaskTimes(task=task, judged="all judged", entries=tuple(entries), disturbed=0.1)


def report_of(
    work: Iterable[Task], seed: int = 0, rounds: int = 15, /, **factors: float
) -> BenchReport:
    """Return a report on made-up times; ``factors`` slow contenders down, `_` for `-`."""
    named = {name.replace("_", "-"): factor for name, factor in factors.items()}
    results = [
        result(contest_of(task, named, rounds, seed + 101 * n), max(PEAKS.values()))
        for n, task in enumerate(work)
    ]
    return BenchReport(environment=ENVIRONMENT, peaks=PEAKS, results=tuple(results), seconds=12)


def printed(report: BenchReport, width: int) -> str:
    """Return what a console of that width shows of a whole report."""
    console = Console(file=io.StringIO(), width=width)
    table.heading(dict(report.environment), dict(report.peaks), console)
    for each in report.results:
        table.print_task_table(each, console)
    table.print_totals(report, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    return text


def compared(then: BenchReport, now: BenchReport) -> tuple[bool, str]:
    """Return the verdict of the comparison and what it printed."""
    console = Console(file=io.StringIO(), width=120)
    grew = compare.print_changes(
        json_document.bench_document(then), json_document.bench_document(now), console
    )
    return grew, console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


DEFAULT = report_of(tasks(SETS["default"]))


def row(found: TaskResult, name: str) -> Any:
    """Return a contender's row."""
    return next(each for each in found.rows if each.name == name)


def test_everyone_is_beside_torchs_fastest() -> None:
    """The rival is torch's fastest by the median, once of all and once of those with weights."""
    found = report_of([Task(size=LARGE[0])]).results[0]

    assert ("torch", "torch-eval-weights") == (found.rival, found.weights_rival)
    assert row(found, "numpy").ratio.median == pytest.approx(0.9, rel=0.03)
    assert row(found, "numpy-weights").weights_ratio.median == pytest.approx(0.8, rel=0.03)
    assert row(found, "numpy").weights_ratio is None


def test_paired_ratios_see_through_the_machine() -> None:
    """Times that vary by 30 % from round to round leave intervals of a few per cent."""
    found = row(report_of([Task(size=LARGE[0])]).results[0], "numpy")
    spread = max(found.times) / min(found.times)

    assert spread > 1.5
    assert found.ratio.high / found.ratio.low < 1.05


def test_rates_are_operations_over_time_and_peak() -> None:
    """GFLOP/s come from the task's count and the median; the share is of the larger peak."""
    task = Task(size=LARGE[0])
    found = row(report_of([task]).results[0], "numpy")

    assert task.flops / found.seconds == found.flops
    assert found.flops / 2e11 == found.share


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal(width: int) -> None:
    """No line is longer than the terminal, no figure is cut, and every contender has a line."""
    text = printed(DEFAULT, width)

    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for each in CONTENDERS:
        assert len(DEFAULT.results) == len(re.findall(rf"^ {each.label}  ", text, re.MULTILINE))


def test_the_summary_is_the_geometric_mean_of_large_tasks() -> None:
    """Six tasks from 8,128,512,8 up count; the worst is named with its size."""
    text = " ".join(printed(DEFAULT, 400).split())
    ratios = [row(each, "numpy").ratio.median for each in DEFAULT.results[4:]]
    mean = float(np.exp(np.log(ratios).mean()))

    assert f"NumPy, forward: {mean:.2f} × torch's fastest path over 6 tasks" in text
    assert f"at most {max(ratios):.2f}" in text
    assert "NumPy, weights, forward: 0.80 × torch with weights over 6 tasks" in text


def test_a_disturbed_machine_is_said() -> None:
    """Others on more than a tenth of the cores are worth a sentence, on less they are not."""
    quiet = report_of([Task(size=LARGE[0])])
    loud = BenchReport(
        environment=quiet.environment,
        peaks=PEAKS,
        results=tuple(
            TaskResult(
                task=each.task, judged="", rival=each.rival, weights_rival=None, rows=each.rows,
                disturbed=1.4,
            )
            for each in quiet.results
        ),
    )  # fmt: skip

    assert "Other processes" not in printed(quiet, 80)
    assert "Other processes used up to 1.4 of 2 cores" in " ".join(printed(loud, 80).split())


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("12.3 µs", units.format_seconds(12.34e-6)),
        ("1.00 ms", units.format_seconds(0.9996e-3)),
        ("123 ms", units.format_seconds(0.1234)),
        ("2.50 s", units.format_seconds(2.5)),
        ("0.97 0.95–1.02", str(Interval(0.949, 0.97, 1.02))),
        ("1", str(Interval(1, 1, 1))),
        ("12.5 11.0–100", str(Interval(11, 12.5, 100))),
        ("1.50 GiB", units.format_memory(3 << 29)),
        ("10.0 MiB", units.format_memory(10 << 20)),
        ("85 %", units.format_share(0.849)),
    ],
)
def test_figures_have_three_digits(said: str, found: str) -> None:
    """Units are chosen so that three digits say enough."""
    assert said == found


def test_a_document_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """JSON holds machine, tasks, all times and intervals, under its schema."""
    file = tmp_path / "bench.json"
    json_document.write_json(DEFAULT, str(file))
    found = json_document.read_report(str(file))

    assert json.loads(json.dumps(json_document.bench_document(DEFAULT))) == found
    assert "mha-parity-bench/1" == found["schema"]
    assert ENVIRONMENT == found["environment"]
    assert 15 == len(found["tasks"][0]["contenders"][0]["times"])
    assert {"median", "low", "high"} == set(found["tasks"][0]["contenders"][0]["ratio"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("no json", "is no document of the schema mha-parity-bench/1"),
        ('{"schema": "mha-parity/1"}', "is no document of the schema mha-parity-bench/1"),
        ("[1]", "is no document of the schema"),
    ],
)
def test_a_foreign_baseline_is_one_sentence_and_status_2(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A baseline that is missing or of another kind ends the command before anything is timed."""
    file = tmp_path / "baseline.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")

    assert 2 == main(["bench", "--compare", str(file)])
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "mha-parity bench --json FILE" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "3"], "--rounds is 3, but should be at least 6"),
        (["--json", "no/such/folder/x.json"], "there is no folder"),
        (["--plot", "no/such/folder"], "there is no folder"),
    ],
)
def test_impossible_options_are_one_sentence_and_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be done is said before a run that takes minutes."""
    assert 2 == main(["bench", *arguments])
    assert said in capsys.readouterr().err


def test_unknown_sizes_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The parser says what a size looks like."""
    with pytest.raises(SystemExit) as left:
        main(["bench", "--sizes", "1,2"])

    assert 2 == left.value.code
    assert "got the size '1,2', but should be N,L,E,H" in capsys.readouterr().err


def test_options_choose_the_tasks() -> None:
    """`--causal both --backward` doubles the quick sizes, all with backward."""
    asked = parser().parse_args(["bench", "--quick", "--causal", "both", "--backward"])
    work = command.asked_tasks(asked)

    assert 2 * len(SETS["quick"]) == len(work)
    assert all(task.backward for task in work)
    assert {False, True} == {task.causal for task in work}


def test_noise_is_rarely_a_regression() -> None:
    """Of the ratios of 100 runs of the same code fewer than 1 % look grown."""
    found = [
        change.grew
        for seed in range(1, 101)
        for change in compare.changes(
            json_document.bench_document(DEFAULT),
            json_document.bench_document(report_of(tasks(SETS["default"]), 1000 * seed)),
        )
    ]

    assert sum(found) < 0.01 * len(found)


def test_a_slow_down_of_a_tenth_fails() -> None:
    """A tenth more of the prepared layer's time fails all ten tasks, and no other contender."""
    now = report_of(tasks(SETS["default"]), 77, numpy_prepared=1.1)
    grew, text = compared(DEFAULT, now)

    assert grew
    assert 10 == text.count("NumPy prepared: × torch grew from")
    assert 0 == text.count(", NumPy: × torch grew from")


def test_a_speed_up_is_reported_and_passes() -> None:
    """A tenth less time is said, and no regression."""
    grew, text = compared(DEFAULT, report_of(tasks(SETS["default"]), 77, numpy=0.9))

    assert not grew
    assert "NumPy: × torch shrank from" in text


def test_a_machine_that_is_ten_times_as_slow_passes() -> None:
    """Times are never compared: all ten times as long is the same ratios."""
    factors = dict.fromkeys((each.name.replace("-", "_") for each in CONTENDERS), 10.0)

    now = report_of(tasks(SETS["default"]), 5, **factors)

    assert not compared(DEFAULT, now)[0]


def test_other_machines_and_sizes_are_said() -> None:
    """Another kernel or other sizes of the baseline are reported; common rows are compared."""
    other = report_of(tasks(SETS["small"] + SETS["middle"]))
    then = BenchReport(
        environment=ENVIRONMENT | {"numpy_blas": "openblas 0.3 Zen"}, peaks=PEAKS,
        results=report_of(tasks(SETS["small"] + SETS["large"])).results,
    )  # fmt: skip
    _, text = compared(then, other)

    assert "the baseline has numpy_blas 'openblas 0.3 Zen', this run 'openblas 0.3" in text
    assert "not in the baseline: 1,100,512,8; 8,32,256,4" in text
    assert "not in the run: 1,1024,1024,16" in text
    assert "of 8 ratios grew" in text


def test_nothing_in_common_is_refused() -> None:
    """Without one common task a comparison would pass for nothing."""
    with pytest.raises(ValueError, match="no ratio in common"):
        compared(DEFAULT, report_of([Task(size=Size(1, 2, 4, 2))]))


def test_a_wrong_contender_has_a_red_line_and_no_ratio() -> None:
    """A wrong contender is listed with the reason, fails the run and is compared with none."""
    contest = contest_of(Task(size=LARGE[0]), {}, 15, 0)
    contest.entries[1].leave_out("wrong", "output is 3 at row 5, but should be 2")
    found = result(contest, 1e11)
    report = BenchReport(environment=ENVIRONMENT, peaks=PEAKS, results=(found,))

    assert found.fails
    assert "wrong: output is 3 at row 5, but should be 2" in printed(report, 80)
    assert row(found, "numpy").ratio is None
    assert not DEFAULT.results[0].fails


def test_pictures_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    """Lengths make a picture of time and memory, every run one of the ratios; both name the CPU."""
    pytest.importorskip("matplotlib")
    report = report_of(tasks(SETS["lengths"]))
    drawn = [Path(each) for each in plots.write_plots(report, str(tmp_path / "pictures"))]

    assert ["bench-lengths.svg", "bench-ratios.svg"] == [each.name for each in drawn]
    for each in drawn:
        text = each.read_text("utf-8")
        assert "A processor with a name" in text
        assert "NumPy prepared" in text


def test_pictures_do_not_change_without_a_reason(tmp_path: Path) -> None:
    """The same report gives the same bytes: a picture in the repository moves with its figures."""
    pytest.importorskip("matplotlib")
    first, second = (
        [Path(each).read_bytes() for each in plots.write_plots(DEFAULT, str(tmp_path / name))]
        for name in ("first", "second")
    )

    assert first == second


def test_plain_progress_names_the_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Away from a terminal a line every ten seconds names the step and counts the tasks."""
    clock = iter(range(0, 100, 4))
    monkeypatch.setattr("mha_parity.report.progress.time.monotonic", lambda: next(clock))
    with progress(Console(file=io.StringIO()), "the benchmark", "timing", "tasks") as steps:
        for done, what in [(0, "drawing"), (0, "judging"), (1, "drawing"), (1, "round 1 of 6")]:
            steps.at(what, done, 2)
    lines = capsys.readouterr().err.splitlines()

    assert ["timing drawing: 1 of 2 tasks"] == lines


def test_markdown_has_a_line_a_task(tmp_path: Path) -> None:
    """Machine, header, one row for each task with as many cells, and the means below."""
    file = tmp_path / "bench.md"
    markdown.write_markdown(DEFAULT, str(file))
    text = file.read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]

    assert len(SETS["default"]) + 2 == len(rows)
    assert {rows[0].count("|")} == {line.count("|") for line in rows}
    assert re.search(r"\| [\d.]+ ms, need_weights=False \| 0\.8\d \(0\.\d\d–0\.\d\d\) \|", text)
    assert "- NumPy, forward: 0.9" in text
    assert "A processor with a name" in text
