"""``mha-parity adapt`` prints an adapter that runs as it is for a recognised target."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mha_parity.commands import adapt
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

RUN = Options(cases=12, shrink=False, diagnose=False)
RECOGNISED = {
    "documented_layouts.py:HeadsOfRows": ".reshape(*call.query.shape[1::-1], call.num_heads, -1)",
    "documented_layouts.py:heads_of_rows": "return result.reshape(*call.query.shape[1::-1], -1)",
    "styles.py:Configured": "config = Target.__init__.__globals__[",
    "styles.py:KeywordsFirstAxis": "call.query.swapaxes(0, 1)",
    "styles.py:Bare": ".permute(",
    "own_layers.py:OfMaps": "call.query.swapaxes(1, 2)[..., None]",
    "styles.py:Grid": "call.query[:, :, None]",
    "along_one_axis.py:AlongFrames": "return result[:, :, 0]",
    "styles.py:OnlyMatrices": "for query in call.query:",
    "styles.py:Normed": 'layer.set_submodule("norm", torch.nn.Identity())',
    "functions_of_weights.py:lists": "for head in range(call.num_heads)]",
    "functions_of_weights.py:ByName": 'layer.W["q"] = call.q_proj_weight.T',
    "layers_in_the_wild.py:ListOfHeads": "for head in range(call.num_heads):",
    "given_weights.py:OneKernel": "kernel=np.zeros((call.embed_dim, 3 * call.embed_dim))",
    "given_weights.py:rows_of_heads": "call.query.reshape(*call.query.shape[:2], call.num_",
    "config_switch.py:ConfiguredTurned": "embedded=call.embed_dim",  # of the call alone
    "mask_meanings.py:Keeps": '~call.hidden("N H L S")',
    "mask_meanings.py:TorchNames": "call.value, call.attn_mask, call.key_padding_mask)",
    "mask_meanings.py:lengths_of_keys": 'call.lengths("N")',
}


def printed(name: str) -> tuple[str, dict[str, Any]]:
    """Return the source for a subject, and what executing it defines."""
    source = adapt.source_of_adapter(f"{SUBJECTS}/{name}")
    scope: dict[str, Any] = {}
    exec(source, scope)  # noqa: S102  (the source of our own subject is what is tested)
    return source, scope


@pytest.mark.repeats(7)
@pytest.mark.parametrize(("name", "line"), RECOGNISED.items(), ids=RECOGNISED)
def test_the_skeleton_runs_as_it_is(name: str, line: str) -> None:
    """What was recognised stands in the source, and the adapter has no wrong case."""
    source, scope = printed(name)
    assert "".join(line.split()) in "".join(source.split())
    verdict = check(bind(scope["attention"]), RUN)
    assert (RUN.cases, 0) == (verdict.run, verdict.failed)


FILLED_IN = {
    "required_states.py:OfPair": "call.query.new_zeros((len(call.query), call.num_heads, 0, ",
    "required_states.py:RowsFirst": "call.query.new_zeros((len(call.query), 0, call.num_heads, ",
    "required_states.py:OfNone": "layer(call.query, (None, None))",
    "required_states.py:attention": "0, call.value.shape[-1] // call.num_heads",
    "cache_objects.py:Requires": 'call.query, Target.forward.__globals__["Grows"]()',
    "behind_keywords.py:PassedUp": "q=call.query, k=call.key, v=call.value",
    "bias_of_lengths.py:Biased": "Target.apply(",
}


@pytest.mark.parametrize(("name", "line"), FILLED_IN.items(), ids=FILLED_IN)
def test_every_required_argument_is_passed(name: str, line: str) -> None:
    """Kills a state, an argument behind keywords and the ``apply`` that the call left out."""
    source, scope = printed(name)
    assert "".join(line.split()) in "".join(source.split())
    bound = bind(scope["attention"])
    verdict = check(bound, RUN)
    assert (RUN.cases, 0) == (verdict.run, verdict.failed)
    assert "many" in bound.offer["heads"]


def test_no_name_of_a_parameter_is_that_of_the_weights() -> None:
    """Kills ``state`` for the dictionary of weights of a layer whose call takes a `state`."""
    source, _ = printed("required_states.py:OfPair")
    assert "state = " not in source


@pytest.mark.parametrize("name", ["KeepsRows.attend", "OneHead", "heads_joined"])
def test_a_skeleton_offers_the_heads_that_its_target_has(name: str) -> None:
    """Kills reading `head_dim` for one head, one object for all samples, and heads split twice."""
    _, scope = printed(f"skeletons.py:{name}")
    bound = bind(scope["attention"])
    offered = bind(load(f"{SUBJECTS}/skeletons.py:{name}")).offer["heads"]
    assert offered == bound.offer["heads"]
    verdict = check(bound, RUN)
    assert (RUN.cases, 0) == (verdict.run, verdict.failed)


def test_a_number_of_its_module_that_nothing_reads_stays() -> None:
    """Kills setting a global for an attribute of its name; each sample has an object of its own."""
    source, _ = printed("skeletons.py:KeepsRows.attend")
    assert "__globals__" not in source
    assert "        layer = Target(dk=call.embed_dim)\n" in source


FORMATTED = (
    "required_states.py:attention",
    "skeletons.py:KeepsRows.attend",
    "functions_of_weights.py:ByName",
    "functions_of_weights.py:lists",
    "mask_meanings.py:Keeps",
    "mask_meanings.py:TorchNames",
    "styles.py:Configured",
    "styles.py:Normed",
)


def ruff(source: str, *words: str) -> tuple[str, int]:
    """Return what ruff says of a source by its own defaults, and its status."""
    command = [sys.executable, "-m", "ruff", *words, "--quiet", "--isolated", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode


@pytest.mark.parametrize("name", FORMATTED)
def test_formatter_and_linter_have_nothing_to_change(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No import is unused or out of order, and no line is broken in another way."""
    monkeypatch.chdir(SUBJECTS)  # wherever this folder lies
    source = adapt.source_of_adapter(name)
    for words in (("format", "--diff"), ("check", "--select=E,F,I")):
        assert ("", 0) == ruff(source, *words)


@pytest.mark.parametrize("folder", ["a" * 60, "a" * 90])
def test_a_long_path_is_broken_as_a_formatter_does(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills one line for every path: a clone in a longer one failed."""
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir()
    shutil.copy(SUBJECTS / "functions_of_weights.py", folder)
    source = adapt.source_of_adapter(f"{folder}/functions_of_weights.py:ByName")
    assert ("", 0) == ruff(source, "format", "--diff")


def test_a_wrong_target_stays_wrong_behind_it() -> None:
    """The skeleton of a layer with a scrambled split does not pass."""
    _, scope = printed("linear_layers.py:Attention")
    scope["Target"].scaled = False
    assert check(bind(scope["attention"]), RUN).failed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("full_width.py:ListOfWideHeads", "heads are as wide as the input"),
        ("own_channels.py:OneForAll", "each head projects its own channels"),
        ("one_kv_head.py:MultiQuery", "its heads share one of keys and values"),
        ("own_tensors.py:OfTensors", "it takes tensors of its own"),
        ("python_lists.py:attention", "it takes Python's lists"),
        ("functions_of_weights.py:objects", "its weights are attributes of objects"),
    ],
)
def test_what_the_harness_fills_in_a_way_of_its_own_is_left_to_the_author(
    name: str, reason: str
) -> None:
    """How weights and inputs get there is no line of an adapter."""
    source, _ = printed(name)
    assert reason in source
    assert "raise NotImplementedError" in source


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dropping.py:Ignores", "AttributeError: 'Ignores' object has no attribute"),
        ("constructors.py:OfMethods", "NameError: name 'one' is not defined"),
    ],
)
def test_lines_that_do_not_run_are_said_to_be_unfinished(name: str, said: str) -> None:
    """Kills silence where the lines lack what only the harness does."""
    source, _ = printed(name)
    assert f"As it is written here, a small call raised {said}" in source
    assert "the lines." in source


def test_what_is_not_recognised_is_said() -> None:
    """Reason and signature stand in it; running it says what is to be done."""
    source, scope = printed("without_counterpart.py:TalkingHeads")
    assert "`talk` has no counterpart" in source
    assert '"""Call TalkingHeads(' in source
    assert "\nimport torch\n" in source  # a layer of torch is called with tensors
    with pytest.raises(ValueError, match="NotImplementedError: call the target here"):
        check(bind(scope["attention"]), RUN)


NEAREST = {
    "OfALength": ("torch", 'state_dict["W_k.weight"] = call.k_proj_weight'),
    "OneHeadOfALength": (
        "torch",
        "layer = Target(embed_dim=call.embed_dim, head_dim=call.embed_dim)",
    ),
    "of_a_length": ("torch", "q = call.query.reshape(*call.query.shape[:2], call.num_heads, -1)"),
    "by_numpy": ("numpy as np", "W_v = call.v_proj_weight.T"),
}


@pytest.mark.parametrize(("name", "library", "line"), [(n, *each) for n, each in NEAREST.items()])
def test_the_nearest_reading_is_kept(name: str, library: str, line: str) -> None:
    """Kills NumPy for a function of tensors in a file of both; comments have weights and inputs."""
    source, _ = printed(f"of_one_length_alone.py:{name}")
    assert f"\nimport {library}\n" in source
    assert f"    #     {line}" in source
    assert "NotImplementedError" in source
