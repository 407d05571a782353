"""Hold the README to what runs: its example, its reports, its figures, its links."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mha_parity.__main__ import main
from mha_parity.catalogue import catalogue
from mha_parity.checks.metamorphic import RELATIONS
from mha_parity.command_line import parser
from mha_parity.targets.load import load

ROOT = Path(__file__).parents[3]
DATA = ROOT / "parity_tests" / "mha_parity" / "selftest" / "data"
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = "parity_tests/examples"
EXAMPLE = ROOT / EXAMPLES / "test_attention.py"


def test_the_readme_is_short() -> None:
    """The README has at most 250 lines."""
    assert len(README.splitlines()) <= 250


def test_relations_are_called_as_in_a_report() -> None:
    """The README has the name of each relation as the report has it."""
    assert [] == [name for name in RELATIONS if name not in " ".join(README.split())]


def test_the_false_alarms_are_those_measured() -> None:
    """The counts of right answers and gradients are those of the stored calibration."""
    counts = json.loads((DATA / "calibration.json").read_text(encoding="utf-8"))
    published = (DATA / "calibration.md").read_text(encoding="utf-8")
    shown = re.search(
        r"([\d,]+) right answers and ([\d,]+) right gradients raised no false alarm",
        " ".join(README.split()),
    )

    assert shown is not None
    assert counts
    for kind, count in zip(("right", "right gradients"), shown.groups(), strict=True):
        row = re.search(rf"^\| {kind} \| all \| ([\d,]+) \|(.*)$", published, flags=re.MULTILINE)
        assert row is not None
        assert (count, "0") == (row[1], row[2].split("|")[3].strip())


def test_the_misses_are_those_measured() -> None:
    """The shares of wrong single answers that pass are those of the stored calibration."""
    published = (DATA / "calibration.md").read_text(encoding="utf-8")
    shown = re.search(
        r"([\d.]+%) of those of structural bugs and ([\d.]+%) of those with too few digits",
        " ".join(README.split()),
    )

    assert shown is not None
    for kind, share in zip(("structural", "precision"), shown.groups(), strict=True):
        row = re.search(rf"^\| {kind} \| all \|.*\| ([\d.]+%) \|$", published, flags=re.MULTILINE)
        assert row is not None
        assert share == row[1]


def test_assert_close_misjudges_as_documented() -> None:
    """assert_close accepts the wrong example and rejects 2 to 5 % of the right one's elements."""
    from torch.nn.functional import scaled_dot_product_attention
    from torch.testing import assert_close

    example = load(f"{ROOT}/parity_tests/examples/assert_close_misjudges.py:attention").__globals__

    def of_torch(*rows: np.ndarray[Any, Any]) -> torch.Tensor:
        q, k, v = (torch.from_numpy(example["split_heads"](each, 4)) for each in rows)
        return torch.cat(list(scaled_dot_product_attention(q, k, v)), dim=-1)

    rows = example["inputs"](1)
    assert_close(torch.from_numpy(example["attention_with_epsilon"](*rows, 4)), of_torch(*rows))
    rows = example["inputs"](6)
    with pytest.raises(AssertionError, match="Mismatched elements") as raised:
        assert_close(torch.from_numpy(example["attention"](*rows, 4)), of_torch(*rows))
    (share,) = re.findall(r"\(([\d.]+)%\)", str(raised.value))
    # BLAS orders its sums by the processor: 3.0 % were seen on Intel, 3.8 % on AMD.
    assert 2 <= float(share) < 5


@pytest.mark.parametrize("page", ["README.md", "parity_tests/docs/index.md"])
def test_the_catalogue_is_counted(page: str) -> None:
    """How many wrong attentions it has, as `list` counts them, and how many name a thread."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    shown = re.search(r"(\d+) (?:wrong attentions|bugs), (\d+) of them with the thread", text)
    wrong = [bug for bug in catalogue().values() if not bug.equivalent]

    assert shown is not None
    assert [len(wrong), sum(bool(bug.sources) for bug in wrong)] == [int(n) for n in shown.groups()]


def test_the_kill_matrix_shows_the_whole_catalogue() -> None:
    """Every bug of the catalogue has a row in the published matrix, and no other has."""
    matrix = (DATA / "mutants.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `([a-z0-9-]+)` \|", matrix, flags=re.MULTILINE))

    assert set(catalogue()) == shown
    assert "No observable bug survives." in matrix
    assert "Checks that see no bug alone, with no reason to stay: none." in matrix


def test_the_page_on_torch_is_what_the_command_writes(tmp_path: Path) -> None:
    """Torch on trial gives the table that the README quotes, word by word but for the build."""
    if not version("torch").startswith("2.13."):
        pytest.skip(f"the page is of torch 2.13, and torch {version('torch')} is installed")
    written = tmp_path / "torch.md"
    with contextlib.redirect_stdout(io.StringIO()):
        status = main(["audit", "--markdown", str(written)])

    assert 1 == status
    published, found = (
        re.sub(r"\+\w+", "", path.read_text(encoding="utf-8"), count=1)
        for path in (DATA / "torch.md", written)
    )
    assert published == found


def lost_links(text: str, folder: Path) -> list[str]:
    """Return the relative links and pictures of a page that lead to no file."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|src=\"([^\":]+)\"", text)
    return [one or other for one, other in links if not (folder / (one or other)).exists()]


@pytest.mark.parametrize("page", ["README.md", ".github/CONTRIBUTING.md"])
def test_pictures_and_links_exist(page: str) -> None:
    """Every relative link and picture leads to a file of the repository."""
    path = ROOT / page
    assert page != "README.md" or len(re.findall(r"\]\(", README)) >= 5
    assert [] == lost_links(path.read_text(encoding="utf-8"), path.parent)


@pytest.mark.parametrize("link", ["](lost.md)", "](lost.md#part)", '<img src="lost.png">'])
def test_a_lost_link_is_found(link: str) -> None:
    """Kills a link with the place in its page taken for none."""
    assert ["lost." + link.partition("lost.")[2].rstrip(')">').partition("#")[0]] == lost_links(
        link, ROOT
    )


def unreachable(project: dict[str, Any], text: str) -> list[str]:
    """Return the links of a README that a package index cannot follow, once there is an address."""
    addresses = tuple(project.get("urls", {}).values())
    links = re.findall(r"\]\(([^)#]+)\)", text)
    return [link for link in links if addresses and not link.startswith(("https://", *addresses))]


def test_links_are_absolute_where_the_project_has_an_address() -> None:
    """What is published shows its pictures: none is named by its place in the checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [] == unreachable(project, README)


@pytest.mark.parametrize(
    ("urls", "text", "found"),
    [
        ({}, "![page](.github/page.png)", []),
        ({"Source": "https://example.org/p"}, "![page](.github/page.png)", [".github/page.png"]),
        ({"Source": "https://example.org/p"}, "![page](https://example.org/p/page.png)", []),
    ],
    ids=["no address", "relative", "absolute"],
)
def test_a_relative_link_is_found(urls: dict[str, str], text: str, found: list[str]) -> None:
    """A picture by its place in the checkout is found as soon as there is an address."""
    assert found == unreachable({"urls": urls}, text)


def test_the_example_is_the_one_that_runs() -> None:
    """The test in the README is the file of the examples, which runs as part of the suite."""
    (shown,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    _, _, written = EXAMPLE.read_text(encoding="utf-8").partition("import numpy")

    assert f"import numpy{written}" == shown


def test_a_broken_example_fails() -> None:
    """The same lines without the scale do not hold."""
    written = EXAMPLE.read_text(encoding="utf-8")
    broken = written.replace(" / np.sqrt(q.shape[-1]).astype(Q.dtype)", "")
    names: dict[str, Any] = {}
    exec(compile(broken, "README.md", "exec"), names)  # noqa: S102  (the README's own lines)

    assert broken != written
    with pytest.raises(AssertionError, match="Parity does not hold"):
        names["test_attention_equals_torch"]()


def missing(shown: str, printed: str) -> list[str]:
    """Return the lines of ``shown`` that are not lines of a report, in the same order.

    The report may have further lines between them, and a box may be wider.
    """
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    return [line for line in shown.splitlines() if line and " ".join(line.split()) not in lines]


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("bug the scale\n\nerror 1", []),
        ("bug  the scale", []),
        ("error 1\nbug the scale", ["bug the scale"]),
        ("bug scale", ["bug scale"]),
        ("error 10", ["error 10"]),
    ],
    ids=["lines left out", "other spaces", "another order", "a word less", "another number"],
)
def test_a_line_that_is_not_printed_is_found(shown: str, found: list[str]) -> None:
    """The words of a line may not stand somewhere else in the report."""
    assert found == missing(shown, "bug   the scale\n evidence scale 10\n error  1\n")


@pytest.mark.parametrize(
    ("bug", "command"),
    [
        ("softmax-add-eps", f"{EXAMPLES}/assert_close_misjudges.py:attention_with_epsilon"),
        ("scale-dmodel", "parity_tests/subjects/wrong_scale.py:f --cases 100"),
    ],
    ids=["epsilon", "scale"],
)
def test_the_failure_shown_is_the_real_one(
    monkeypatch: pytest.MonkeyPatch, bug: str, command: str
) -> None:
    """The wrong attention fails as the README prints it: same numbers, same case, same replay."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "96")
    blocks = re.findall(r"```\n( the bug .*?)```", README, flags=re.DOTALL)
    (shown,) = (block for block in blocks if f"[{bug}]" in block)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["check", *command.split()])

    assert 1 == status
    assert [] == missing(shown, printed.getvalue())


def test_the_notes_shown_are_the_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report begins its notes with how a layer was called, as the README prints it."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "96")
    (shown,) = re.findall(r"```\n( note .*?)```", README, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["check", "parity_tests/subjects/two_shapes.py:BothShapes", "--cases", "60"])

    assert 0 == status
    assert [] == missing(shown, printed.getvalue())


NO_MAXIMUM = """
import numpy as np

def attention(Q, K, V, n_heads):
    heads = [np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V)]
    weights = np.exp(heads[0] @ heads[1].swapaxes(1, 2) / np.sqrt(heads[0].shape[-1]))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ heads[2]), axis=-1)
"""


def test_the_red_run_shown_is_the_real_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A softmax that does not subtract its maximum fails in CI as the README prints it."""
    (tmp_path / "attention.py").write_text(NO_MAXIMUM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "96")
    (shown,) = re.findall(r"```\n(│ Parity does not hold.*?)```", README, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["check", "attention.py:attention"])

    assert 1 == status
    assert [] == missing(shown, printed.getvalue())


def test_the_failing_test_shown_is_the_real_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_pytest_in: Callable[..., pytest.RunResult]
) -> None:
    """The page on pytest shows what pytest prints of the example with a wrong scale.

    The line of its summary, too.
    """
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    written = EXAMPLE.read_text(encoding="utf-8")
    wrong = written.replace("np.sqrt(q.shape[-1])", "np.sqrt(Q.shape[-1])")
    assert wrong != written
    (tmp_path / "test_attention.py").write_text(wrong, encoding="utf-8")
    page = (ROOT / "parity_tests/docs/howto/pytest.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n( +def test_.*?)```", page, flags=re.DOTALL)
    printed = run_pytest_in(tmp_path, "test_attention.py")
    assert 1 == printed.ret
    assert [] == missing(shown, printed.stdout.str())
    (summary,) = re.findall(r"```text\n(FAILED .*?)```", page, flags=re.DOTALL)
    assert [] == missing(summary, printed.stdout.str())


def test_the_commands_named_exist() -> None:
    """Every make target and subcommand in the README is one."""
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = set(re.findall(r"`?make ([a-z-]+)`?", README))
    subcommands = set(
        re.findall(r"mha-parity (check|identify|replay|list|bench|mutants|explain|adapt)\b", README)
    )

    assert named <= targets
    assert {"check", "identify", "list", "explain"} <= subcommands
    for each in sorted(subcommands):
        with pytest.raises(SystemExit, match="0"):
            parser().parse_args([each, "--help"])


def test_the_own_attention_holds() -> None:
    """The verdicts that the README quotes are those that the command prints, on each engine."""
    (quoted,) = re.findall(r"```\n(Parity holds: .*?)\n```", README, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["check"])

    assert 0 == status
    found = " ".join(re.sub(r"[│╭╮╰╯─]", " ", printed.getvalue()).split())
    lines = quoted.splitlines()
    assert 3 == len(lines)
    assert [] == [line for line in lines if line not in found]
