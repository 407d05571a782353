"""Styles that were refused or miscalled are judged, and what torch lacks is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS

FILE = SUBJECTS / "reached.py"
RIGHT = [
    "ProjectsOutManyHeads", "ConfiguredWithin", "ConfiguredScale", "Temperature", "width_given",
    "temperature_given", "ProjectsOutAlone", "SplitsAlone", "CausalFloat32", "FromTheLastKey",
    "SdpaKeeps", "OfPixels", "ConvolvedPixels", "FourLetters", "half_alone", "LengthsWanted",
    "PackedOfAnyName",
]  # fmt: skip
REFUSED = {
    "ForgetsToProject": "the output is not that of its heads times `W_0.weight`",
    "ProjectsTransposed": "the output is not that of its heads times `W_0.weight`",
    "RotaryInside": "but `rotary` has no counterpart in torch's layer",
    "NormedQueries": "but `normalize` has no counterpart in torch's layer",
    "Slopes": "but `slopes` has no counterpart in torch's layer",
}


CASES = {"SdpaKeeps": 60}  # of causal cases, some through the mask and some through the switch


def judged(name: str) -> Verdict:
    """Return the verdict on a subject."""
    options = Options(cases=CASES.get(name, 24), diagnose=False, shrink=False)
    return check(bind_in_process(load.load(f"{FILE}:{name}"), options), options)


@pytest.mark.repeats(4)
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_pass(name: str) -> None:
    """No case of what is offered is wrong, and no mask is left untried."""
    verdict = judged(name)
    assert 0 == verdict.failed, verdict
    assert not [each for each in verdict.parameters if each.is_untried]


@pytest.mark.parametrize(("name", "said"), REFUSED.items(), ids=REFUSED)
def test_what_has_no_counterpart_is_refused_by_its_name(name: str, said: str) -> None:
    """The sentence names what the call runs."""
    with pytest.raises(TargetError) as refused:
        bind(load.load(f"{FILE}:{name}"))
    assert said in str(refused.value)


def test_four_names_of_one_linear_are_said() -> None:
    """Kills the sentence of an output that is not projected, which leads away from the list."""
    said = "but `linears.0`, `linears.1`, `linears.2`, `linears.3` are one module"
    with pytest.raises(TargetError, match=said):
        bind(load.load(f"{SUBJECTS}/shared_projections.py:OneOfFour"))


def test_packed_rows_of_any_name_that_only_come_near_are_refused() -> None:
    """What their sizes say is enough to pass a right one, and a name that says nothing no red."""
    with pytest.raises(TargetError, match=r"`widen\.weight` for q and k and v"):
        bind(load.load(f"{FILE}:PackedOfAnyNameUnscaled"))


def test_a_softmax_named_normalize_refuses_nothing() -> None:
    """A target's own function, or array, of that name may be its softmax: it is judged."""
    assert judged("NormalizesUnscaled").failed


def test_what_is_not_run_refuses_nothing() -> None:
    """Rotary positions that are mentioned, and not run, do not excuse doubled scores."""
    assert judged("Doubled").failed


@pytest.mark.parametrize(
    ("name", "axis", "value", "said"),
    [
        ("ProjectsOutManyHeads", "heads", "one", "with one head it has no `to_out.0.weight`"),
        ("CausalFloat32", "dtype", "float16", "raised RuntimeError"),
        ("ProjectsOutAlone", "masked_rows", "some", "spreads NaN over all heads"),
    ],
)
def test_what_is_left_out_is_said(name: str, axis: str, value: str, said: str) -> None:
    """What raises or is another layer is not offered, with its reason."""
    bound = bind(load.load(f"{FILE}:{name}"))
    assert value not in bound.offer[axis]
    assert said in bound.reasons[axis, value]


def test_a_switch_from_the_last_key_is_said() -> None:
    """A causal rule that is aligned at the last key is judged where that makes no difference."""
    bound = bind(load.load(f"{FILE}:FromTheLastKey"))
    assert "counted from the last ones" in bound.meanings["call.causal"]


def test_the_mask_of_sdpa_keeps() -> None:
    """A layer with the names of scaled_dot_product_attention is not held to the other polarity."""
    assert "True keeps" in bind(load.load(f"{FILE}:SdpaKeeps")).meanings["call.attn_mask"]


def test_a_file_without_a_name_shows_a_command() -> None:
    """What lacks the name is followed by a command with one, that of an attention if there is."""
    said = r"name one of .*, as in: mha-parity check \S*reached.py:Sdpa"
    with pytest.raises(TargetError, match=said):
        load.load(str(FILE))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def attention(q, k, v): ...", "name attention, as"),
        ("def a(): ...\ndef b(): ...", "name one of a, b, as"),
    ],
    ids=["one", "two"],
)
def test_the_names_of_a_file_are_said(text: str, said: str, tmp_path: Path) -> None:
    """One name is no choice; several are one."""
    file = tmp_path / "given.py"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TargetError, match=said):
        load.load(str(file))


def test_what_takes_half_precision_alone_is_tried_in_it() -> None:
    """In float64 every call raises, which is no reason to leave keys of another number out."""
    bound = bind(load.load(f"{FILE}:half_alone"))
    assert ("self", "cross") == bound.offer["inputs"]
