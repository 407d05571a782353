"""A wrong attention in a notebook: what the terminal says is enough to mend it.

Each notebook is checked as a new user would, the words that carry the remedy are looked for in what
is printed, and the notebook is changed as they say: then parity holds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mha_parity.__main__ import main
from subject_checks import SUBJECTS

OPTIONS = ("--cases", "60", "--seed", "1", "--in-process")
# Notebook and target; what the terminal says; what a reader changes; into what.
REMEDIES = {
    "wrong_masking.ipynb:SelfAttention": (
        "set the scores to -inf where they are hidden, and take the softmax of that",
        (
            ("weights = softmax(scores)", "weights = scores"),
            ("None, :], 0, weights)", "None, :], -np.inf, weights)"),
            ("heads = weights @ v", "heads = softmax(weights) @ v"),
        ),
    ),
    "wrong_merging.ipynb:attention": (
        "swap the axes of heads and rows before the reshape",
        (("(A @ v).reshape", "(A @ v).swapaxes(0, 1).reshape"),),
    ),
    "wrong_strange.ipynb:attention": (
        "the effective scale is 0.769231/sqrt(D)",
        (("/ TEMPERATURE", "* 0.7692 / 0.7692"),),
    ),
}


def printed(target: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return exit status and terminal output of a check, without its line breaks."""
    status = main(["check", target, *OPTIONS])
    return status, " ".join(capsys.readouterr().out.split())


@pytest.mark.repeats(1)
@pytest.mark.parametrize("target", REMEDIES)
def test_the_terminal_tells_the_remedy(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the diagnosis a user has numbers; with it the words for what to change."""
    remedy, _ = REMEDIES[target]
    status, shown = printed(f"{SUBJECTS}/{target}", capsys)
    assert 1 == status
    assert remedy in shown
    assert f"replay mha-parity replay {shown.split('mha-parity replay ')[1].split()[0]}" in shown


@pytest.mark.repeats(1)
@pytest.mark.parametrize("target", REMEDIES)
def test_the_remedy_mends_it(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Changed as the words say, the notebook's attention equals torch."""
    file, _, name = target.partition(":")
    text = (SUBJECTS / file).read_text(encoding="utf-8")
    for before, after in REMEDIES[target][1]:
        assert before in text
        text = text.replace(before, after)
    (tmp_path / file).write_text(text, encoding="utf-8")
    status, shown = printed(f"{tmp_path}/{file}:{name}", capsys)
    assert status in {0, 3}, shown  # 120 cases may leave a feature untold
    assert "does not hold" not in shown
