"""A file without a name in it: the only one it defines, or the likeliest of several as a hint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mha_parity.__main__ import main
from mha_parity.core.candidate import TargetError
from mha_parity.targets.load import load
from mha_parity.targets.loading import default_target
from subject_checks import SUBJECTS


@pytest.mark.parametrize(
    ("names", "likely"),
    [
        (["build_causal_attention_mask", "CLIPAttention"], "CLIPAttention"),
        (["Head", "MultiHeadAttention", "FeedForward"], "MultiHeadAttention"),
        (["Attention", "AttentionConfig", "AttentionOutput"], "Attention"),
        (["MultiHeadAttention", "FeedForward", "AttentionBlock", "GPT"], "MultiHeadAttention"),
        (["CausalSelfAttention", "Block", "GPT2LMHeadModel"], "CausalSelfAttention"),
        (["MultiHead", "OneHead", "TransformerDecoder"], "MultiHead"),
        (["SelfAttention", "CrossAttention", "BertForMultiHeadAttention"], "CrossAttention"),
        (["AttentionLayer", "Embedding"], "AttentionLayer"),
        (["Mine", "Encoder"], "Mine"),
        (["ceil_div", "forward"], "forward"),
        (["attention_mask"], "attention_mask"),
    ],
)
def test_the_likeliest_is_no_helper(names: list[str], likely: str) -> None:
    """Helpers come before what uses them; masks, outputs, blocks and models are none."""
    assert likely == default_target.likeliest(names)


def test_the_only_public_name_is_taken(tmp_path: Path) -> None:
    """Private helpers and imports do not count; two names, or none, leave the text as it is."""
    path = tmp_path / "one.py"
    path.write_text("from math import sqrt\ndef _help(): ...\nclass Mine: ...\n", encoding="utf-8")
    assert f"{path}:Mine" == default_target.with_only_name(str(path))
    path.write_text("class Mine: ...\ndef other(x, y): ...\n", encoding="utf-8")
    assert str(path) == default_target.with_only_name(str(path))
    path.write_text("x = 1\n", encoding="utf-8")
    for target in (str(path), f"{path}:x", "mha_numpy:attention", str(tmp_path), "exec:one.py"):
        assert target == default_target.with_only_name(target)


def test_functions_of_one_array_and_tests_are_not_meant(tmp_path: Path) -> None:
    """Beside helpers and its own tests an attention is meant; of two attentions one is named."""
    path = tmp_path / "attention.py"
    own = "def softmax(x): ...\ndef attention(q, k, v): ...\ndef test_attention(): ...\n"
    path.write_text(own, encoding="utf-8")
    assert f"{path}:attention" == default_target.with_only_name(str(path))
    assert ["softmax", "attention"] == default_target.public_names(path)
    path.write_text(own + "class TestAttention: ...\nclass CrossAttention: ...\n", encoding="utf-8")
    assert str(path) == default_target.with_only_name(str(path))
    with pytest.raises(TargetError, match=r"one of softmax, .*attention\.py:CrossAttention\.$"):
        load(str(path))


@pytest.mark.parametrize(
    ("beside", "is_helper"),
    [
        ("def main(): ...", True),
        ("def show(x, *, seed=0): ...", True),
        ("def draw(x, *, seed): ...", False),
        ("def self_attention(x): ...", False),
        ("class Norm: ...", False),
        ("class AttentionConfig: ...", True),
        ("def window_mask(length, width): ...", True),
        ("def masked_attention(q, k): ...", False),
    ],
)
def test_a_helper_is_not_judged_for_what_it_stands_beside(
    tmp_path: Path, beside: str, is_helper: bool
) -> None:
    """A function of nothing, or of one array unless its name says attention, is a helper.

    So are masks and configurations by their names.
    """
    path = tmp_path / "own.py"
    path.write_text(f"def mha(q, k, v): ...\n{beside}\n", encoding="utf-8")
    expected = f"{path}:mha" if is_helper else str(path)
    assert expected == default_target.with_only_name(str(path))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "open.py",
            "f = (",
            r"which is no valid Python 3\.\d+: '\(' was never closed \[open\.py:1\]\.$",
        ),
        ("none.py", "x = 1\n", r"which defines no public function and no class; write one, or"),
        ("none.ipynb", "", r"got none\.ipynb, which is no notebook of JSON \(NotJSONError\); save"),
        ("cells.ipynb", "[]", r"got cells\.ipynb, which is no notebook of JSON \(\w+\); save"),
        ("words.txt", "hello", r"which is no Python file or notebook; name `package\.module:name`"),
    ],
)
def test_a_file_without_names_says_why(tmp_path: Path, name: str, text: str, said: str) -> None:
    """The reason comes first: what is broken or empty has no name that could be given."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TargetError, match=said):
        load(str(path))


def test_a_module_without_a_name_is_no_attribute_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills `package:module` as the hint, which names no attention either."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/inner.py").write_text("class Attention: ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    said = r"which is a module, but .* name Attention, as in: .* package\.inner:Attention\.$"
    with pytest.raises(TargetError, match=said):
        load("package.inner")
    with pytest.raises(TargetError, match=r"did you mean package\.inner:Attention\?$"):
        load("package.inner.Attention")


def test_a_file_of_another_kind_is_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence does not say to install a text file."""
    (tmp_path / "words.txt").write_text("hello", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=r"but words\.txt is no Python file or notebook\.$"):
        load("words.txt:attention")


def test_a_notebook_has_names_too() -> None:
    """The hint names what a cell defines; lines for the notebook are no Python."""
    path = SUBJECTS / "attention.ipynb"
    assert {"single_head", "f"} <= set(default_target.public_names(path))
    with pytest.raises(TargetError, match=r"attention\.ipynb:single_head\.$"):
        load(str(path))


def test_a_command_takes_a_file_of_one_definition(capsys: pytest.CaptureFixture[str]) -> None:
    """`adapt` says the target whole."""
    file = SUBJECTS / "wrong_split.py"
    assert 0 == main(["adapt", str(file)])
    assert f"{file}:f" in capsys.readouterr().out


def test_an_old_notebook_is_read_without_a_word(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Cells without ids, which the format asks for since 4.5, concern no reader of code."""
    cell: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": []}
    book: dict[str, object] = {"metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    book["cells"] = [cell | {"execution_count": None, "source": "def mine(q, k, v): ..."}]
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps(book), encoding="utf-8")
    assert ["mine"] == default_target.public_names(path)
    assert not recwarn.list


def test_an_adapter_of_a_wrong_target_calls_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What is recognised and not equal is called all the same, and said to be looked at."""
    assert 0 == main(["adapt", f"{SUBJECTS}/wants_masks.py:unscaled"])
    said = capsys.readouterr().out
    assert "    return Target(call.query, call.key, call.value, call.num_heads)\n" in said
    assert re.search(r"# As it is called here, the output correlates .* by 0\.\d+: check", said)


def test_a_reason_in_an_adapter_is_wrapped_and_sends_nobody_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No line is longer than 100 columns, and the remedy is no adapter: this is one."""
    assert 0 == main(["adapt", f"{SUBJECTS}/without_counterpart.py:Sharpens"])
    said = capsys.readouterr().out
    assert "# Not recognised: got Sharpens, whose output correlates with attention by " in said
    assert "mha-parity adapt" not in said
    assert 100 >= max(map(len, said.splitlines()))
