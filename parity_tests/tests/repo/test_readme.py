"""The README is true: its example runs, its report is the real one, what it names exists."""

from __future__ import annotations

import contextlib
import io
import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from mha_parity.__main__ import main, parser
from mha_parity.wrong import catalogue

ROOT = Path(__file__).parent.parent
DATA = ROOT / "parity_tests" / "mha_parity" / "data"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_generated_tables_are_those_of_the_data() -> None:
    """What stands between the marks in the README is the data file that they name, word by word."""
    blocks = re.findall(r"<!-- from (\S+) -->\n(.*?)\n<!-- end -->", README, flags=re.DOTALL)

    assert blocks
    for name, shown in blocks:
        expected = (ROOT / name).read_text(encoding="utf-8").strip()
        assert expected == shown.strip(), name


def test_the_errors_told_are_those_measured() -> None:
    """The largest median and the worst error beside torch's are the README's, and within limits."""
    measured = json.loads((DATA / "accuracy.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in measured if row["contender"] == "target" and not row["feature"]]
    median, worst = (max(row[name] for row in rows) for name in ("median", "worst"))
    told = re.search(
        r"at most ([\d.]+) times torch's in the median and at worst ([\d.]+) times",
        " ".join(README.split()),
    )

    assert told is not None
    assert (f"{median:.2f}", f"{worst:.2f}") == told.groups()
    assert {"float64", "float32", "float16", "bfloat16"} == {row["dtype"] for row in rows}
    assert median <= 1
    assert worst <= 2


def test_the_kill_matrix_shows_the_whole_catalogue() -> None:
    """Every bug of the catalogue has a row in the published matrix, and no other has."""
    matrix = (DATA / "mutants.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `([a-z0-9-]+)` \|", matrix, flags=re.MULTILINE))

    assert set(catalogue()) == shown
    assert "No observable bug survives." in matrix


def test_the_page_on_torch_is_what_the_command_writes(tmp_path: Path) -> None:
    """Torch on trial gives the table that the README quotes, word by word but for the build."""
    if not version("torch").startswith("2.13."):
        pytest.skip(f"the page is of torch 2.13, and torch {version('torch')} is installed")
    written = tmp_path / "torch.md"
    with contextlib.redirect_stdout(io.StringIO()):
        status = main(
            ["check", "torch.nn:MultiheadAttention", "--path", "all", "--markdown", str(written)]
        )

    assert 0 == status
    published, found = (
        re.sub(r"\+\w+", "", path.read_text(encoding="utf-8"), count=1)
        for path in (DATA / "torch.md", written)
    )
    assert published == found


def test_pictures_and_links_exist() -> None:
    """Every relative link and picture of the README leads to a file of the repository."""
    links = re.findall(r"\]\(([^)#:]+)\)|src=\"([^\":]+)\"", README)

    for link in (one or other for one, other in links):
        assert (ROOT / link).is_file(), link


def test_the_example_runs() -> None:
    """The ten lines of Python in the README assert parity, and hold."""
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

    exec(compile(example, "README.md", "exec"), {})  # noqa: S102  (the README's own lines)


def test_a_broken_example_fails() -> None:
    """The same lines without the scale do not hold."""
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    broken = example.replace(" / heads[0].shape[-1] ** 0.5", "")

    assert broken != example
    with pytest.raises(AssertionError, match="Parity does not hold"):
        exec(compile(broken, "README.md", "exec"), {})  # noqa: S102  (as above)


def test_the_failure_shown_is_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong attention fails as the README prints it: same numbers, same case, same replay."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "96")
    (shown,) = re.findall(r"```\n( the bug .*?)```", README, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["check", "parity_tests/subjects/wrong_scale.py:f", "--cases", "100"])

    assert 1 == status
    assert shown.split() == [word for word in shown.split() if word in printed.getvalue().split()]


NO_MAXIMUM = """
import numpy as np

def forward(Q, K, V, n_heads):
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
        status = main(["check", "attention.py:forward"])

    assert 1 == status
    assert shown.split() == [word for word in shown.split() if word in printed.getvalue().split()]


def test_the_commands_named_exist() -> None:
    """Every make target and subcommand in the README is one."""
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = set(re.findall(r"`?make ([a-z-]+)`?", README))
    subcommands = set(re.findall(r"mha-parity (check|replay|list|bench|mutants|explain)\b", README))

    assert named <= targets
    assert {"check", "replay", "list"} <= subcommands
    for each in sorted(subcommands):
        with pytest.raises(SystemExit, match="0"):
            parser().parse_args([each, "--help"])


def test_the_own_attention_holds() -> None:
    """The verdict that the README quotes is the one that the command prints."""
    (quoted,) = re.findall(r"```\n(Parity holds: .*?)\n```", README, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["check"])

    assert 0 == status
    assert quoted in " ".join(re.sub(r"[│╭╮╰╯─]", " ", printed.getvalue()).split())
