"""``mha-parity identify``: prints, writes and leaves with the status that the card says."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from mha_parity.__main__ import main
from mha_parity.command_line import IDENTIFY_OPTIONS, parser
from subject_checks import SUBJECTS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_wrong_scale_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1; terminal, JSON and page say the same formula."""
    written, page = tmp_path / "card.json", tmp_path / "card.html"
    files = ["--json", str(written), "--html", str(page)]
    status = main(["identify", f"{SUBJECTS}/wrong_scale.py:f", "--in-process", *files])
    assert 1 == status
    formula = "softmax(q k^T / sqrt(E)) v"
    assert formula in capsys.readouterr().out
    assert json.loads(written.read_text("utf-8"))["sentence"].startswith(formula)
    assert formula in page.read_text("utf-8")


def test_a_right_attention_leaves_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """No experiment departs, and the options narrow what is asked: float32 alone."""
    narrowing = ["--dtypes", "float32", "--features", "attn=causal"]
    status = main(["identify", f"{SUBJECTS}/like_torch.py:Attention", "--in-process", *narrowing])
    printed = capsys.readouterr().out
    assert 0 == status, printed
    assert "softmax(q k^T / sqrt(D)) v" in printed
    assert "✗" not in printed
    assert re.search(r"✓ mask +causal: row i keeps keys j <= i; ", printed)
    assert "attn=causal" not in printed


def test_what_torch_has_no_counterpart_for_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``check`` refuses it; the card says what the nearest call does."""
    target = f"{SUBJECTS}/without_counterpart.py:Activated"
    assert 2 == main(["check", target, "--in-process", "--cases", "2"])
    assert "no counterpart in torch's layer" in capsys.readouterr().err
    assert 1 == main(["identify", target, "--in-process", "--dtypes", "float64"])
    assert "no softmax(q k^T / sqrt(D)) v: " in capsys.readouterr().out


def test_options_are_those_of_check() -> None:
    """Each shared option is parsed to what ``check`` parses it to; others keep their defaults."""
    shared = {name.replace("-", "_") for name in IDENTIFY_OPTIONS}
    given = ["--convention", "qkv", "--without", "a,b", "--timeout", "3", "--masks", "m=keeps"]
    check, identify = (vars(parser().parse_args([c, *given])) for c in ("check", "identify"))
    assert {name: check[name] for name in shared} == {name: identify[name] for name in shared}
    assert check["cases"] == identify["cases"]


def test_an_option_of_other_commands_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The experiments choose their cases: --cases is no option here."""
    with pytest.raises(SystemExit):
        main(["identify", "--cases", "3"])
    assert "--cases" in capsys.readouterr().err
