"""Run every command that the README and the documentation print, in a folder of what they name.

Runs are made small (few cases, one dtype); what they are run on has the names that the pages use. A
line that cannot be run so stands in ``ELSEWHERE`` with the test that holds it.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from mha_parity import command_line
from mha_parity.__main__ import main
from mha_parity.bench import command, peak
from mha_parity.bench.contenders import CONTENDERS
from mha_parity.core import safetensors

if TYPE_CHECKING:
    from collections.abc import Callable

    RunPytest = Callable[..., pytest.RunResult]

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    ROOT / "README.md",
    *(p for p in sorted(ROOT.glob("parity_tests/docs/**/*.md")) if "generated" not in p.parts),
]
FEW = {
    "check": ["--cases", "12", "--dtypes", "float64"],
    "pytest": ["--mha-parity-cases", "40", "--mha-parity-dtypes", "float64"],
    "record": ["--cases", "4", "--dtypes", "float64"],
    "bench": ["--sizes", "1,8,16,2", "--rounds", "6", "--threads", "1"],
}
ELSEWHERE = {
    "mha-parity check attention.onnx": "needs onnxruntime: tests/targets/onnx/test_onnx.py",
    "mha-parity check package.module:Layer --cases 1000000 --scheduler tcp://10.0.0.1:8786": (
        "needs a cluster: tests/run/test_executors.py"
    ),
    "mha-parity check --exec COMMAND": "tests/targets/programs/test_command.py",
    "mha-parity check --exec node attention.mjs": "tests/targets/programs/test_command.py",
    "pytest --mha-parity-target exec:./attention": "tests/targets/programs/test_command.py",
    "mha-parity replay CASE exec:COMMAND": "tests/targets/programs/test_command.py",
}
# Run with a process for the target, as they stand; what the others say does not depend on it.
ISOLATED = (
    "mha-parity check attention.py:attention",
    "pytest --mha-parity-target attention.py:attention",
)
EXAMPLE_CASE = "qkv-N1-L2-S2-H2-D1-float64-s0"
PROGRAM = re.compile(r"mha-parity |pytest --")
# Words that stand for the reader's own; a subcommand without arguments is a mention in prose.
MENTIONS = re.compile(r"mha-parity (check|merge|adapt|identify|bench|mutants)( TARGET)?")

ATTENTION = """
import torch


def attention(query, key, value, attn_mask=None, is_causal=False, scale=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-2, -1) * scale
    if is_causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1) @ value
"""
LAYER = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value, is_causal=False):
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if is_causal:
            visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~visible, -torch.inf)
        heads = scores.softmax(-1) @ v
        return self.o_proj(heads.transpose(1, 2).flatten(2))
"""


def commands(text: str) -> list[str]:
    """Return the commands of ``mha-parity`` and pytest in the blocks and lines of a page.

    What follows a pipe or a redirection is the shell's.
    """
    blocks = re.findall(r"(?ms)^```[^\n]*\n(.*?)^```", text)
    lines = [line for block in blocks for line in block.splitlines()]
    found = [re.sub(r"^(- run:| replay) +", "", line.strip(" ")) for line in lines]
    found += re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```", "", text))
    found = [re.sub(r"^replay +", "", each) for each in found]
    found = [re.split(r" [|>] ", each)[0] for each in found if PROGRAM.match(each)]
    return [re.sub(r"\$\{\{ [\w.]+ \}\}", "1", each) for each in found]


def examples(text: str) -> list[str]:
    """Return the commands of the examples in a help text, without what stands behind them."""
    lines = re.findall(r"^ +(mha-parity .*)$", text, flags=re.MULTILINE)
    return [re.split(r" {2,}", line)[0].replace("CASE", EXAMPLE_CASE) for line in lines]


FOUND = {each: None for page in PAGES for each in commands(page.read_text(encoding="utf-8"))}
FOUND |= dict.fromkeys(examples(command_line.TOP) + examples(command_line.EXAMPLES))
RUN = [
    each
    for each in FOUND
    if " ".join(shlex.split(each)) not in ELSEWHERE and not MENTIONS.fullmatch(each)
]


def test_no_exception_is_left_over() -> None:
    """Each line that is held elsewhere stands in a page; the pages have what a user types first."""
    assert set() == set(ELSEWHERE) - {" ".join(shlex.split(each)) for each in FOUND}
    assert "mha-parity check attention.py:attention" in RUN
    assert len(RUN) > 15
    assert {"mha-parity explain scale-dmodel", "mha-parity merge shard*.json"} <= set(RUN)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```\nmha-parity list bugs\n```\n", ["mha-parity list bugs"]),
        ("```yaml\n   - run: mha-parity list bugs | head\n```\n", ["mha-parity list bugs"]),
        ("say `mha-parity list bugs` here", ["mha-parity list bugs"]),
        ("```\n replay   mha-parity replay ID a.py:f\n```\n", ["mha-parity replay ID a.py:f"]),
        ("```\npytest --mha-parity-target a.py:f\n```\n", ["pytest --mha-parity-target a.py:f"]),
        ("```\nmake test\n```\n", []),
    ],
    ids=["block", "step", "prose", "report", "pytest", "other"],
)
def test_commands_are_found(text: str, found: list[str]) -> None:
    """In a block, a step of CI, code in a line, and a printed report."""
    assert found == commands(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that the commands name."""
    here = tmp_path_factory.mktemp("commands")
    (here / "attention.py").write_text(ATTENTION, encoding="utf-8")
    (here / "path/to").mkdir(parents=True)
    (here / "path/to/attention.py").write_text(ATTENTION, encoding="utf-8")
    (here / "known.txt").write_text("attn=causal  # not implemented yet\n", encoding="utf-8")
    (here / "package").mkdir()
    (here / "package/__init__.py").touch()
    (here / "package/module.py").write_text(LAYER, encoding="utf-8")
    cell: dict[str, object] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    notebook = {"cells": [{**cell, "source": ATTENTION}], "metadata": {}, "nbformat": 4}
    for name in ("homework.ipynb", "notebook.ipynb"):
        text = json.dumps({**notebook, "nbformat_minor": 4})
        (here / name).write_text(text, encoding="utf-8")
    wrong = "parity_tests/subjects/wrong_scale.py"
    (here / wrong).parent.mkdir(parents=True)
    (here / wrong).write_text((ROOT / wrong).read_text(encoding="utf-8"), encoding="utf-8")
    names: dict[str, object] = {}
    exec(compile(LAYER, "module.py", "exec"), names)  # noqa: S102  (the lines above)
    torch.manual_seed(0)
    layer = names["Layer"](16, 8)  # type: ignore[operator]  # the class above
    state = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    within = {f"model.layers.3.self_attn.{name}": array for name, array in state.items()}
    (here / "layer.safetensors").write_bytes(safetensors.dump(state, {}))
    (here / "model.safetensors").write_bytes(safetensors.dump(within, {}))
    return here


def needed(line: str, folder: Path) -> list[str]:
    """Return the commands that write what this one reads, which its page has run before."""
    if "--answers" in line:
        record = "mha-parity record attention.py:attention -o answers.safetensors"
        return [] if (folder / "answers.safetensors").exists() else [record]
    if line.startswith("mha-parity merge"):
        run = "mha-parity check attention.py:attention --shard {}/2 --json shard-{}.json"
        return [run.format(number, number) for number in (1, 2)]
    return []


def ran(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], run_pytest_in: RunPytest
) -> int:
    """Run one command of a page, made small; return its exit status."""
    program, *words = shlex.split(line)
    if program == "pytest":
        here = () if line in ISOLATED else ("--mha-parity-in-process",)
        return int(run_pytest_in(folder, "-q", *words, *FEW["pytest"], *here).ret)
    arguments = (
        [
            path.name
            for word in words
            for path in (sorted(folder.glob(word)) if "*" in word else [Path(word)])
        ]
        if words[0] == "merge"
        else words
    )
    if "--cases" in words:
        place = arguments.index("--cases")
        del arguments[place : place + 2]
    few = FEW.get(words[0], [])
    # A file's weights are judged in their own dtype.
    few = few[: few.index("--dtypes")] if "--state-dict" in words else few
    if words[0] == "check" and line not in ISOLATED:
        few = [*few, "--in-process"]
    status = main([*arguments, *few])
    if words[0] == "adapt":
        (folder / "adapter.py").write_text(capsys.readouterr().out, encoding="utf-8")
    return status


@pytest.mark.repeats(8)
@pytest.mark.parametrize("line", RUN)
def test_a_command_of_the_pages_runs(
    line: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    run_pytest_in: RunPytest,
) -> None:
    """It starts and comes to an end: parity of a right target is not denied, of a wrong one is."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setattr(peak, "SIZE", 64)
    few = [each for each in CONTENDERS if each.name in {"numpy", "torch"}]
    monkeypatch.setattr(command, "CONTENDERS", few)
    if "adapter.py" in line:
        ran("mha-parity adapt package.module:Layer", folder, capsys, run_pytest_in)
    for before in needed(line, folder):
        assert ran(before, folder, capsys, run_pytest_in) in {0, 3}
    status = ran(line, folder, capsys, run_pytest_in)
    # A feature that is expected to fail and passes is red, and torch disagrees with itself.
    is_red = any(each in line for each in ("wrong_scale.py", "--mha-parity-xfail", "audit"))
    expected = {1} if is_red else {0} if line.startswith("pytest") else {0, 3}
    assert status in expected, capsys.readouterr()
