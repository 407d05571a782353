"""``judge`` and ``replay`` in Python: for a notebook, a console, a script."""

from __future__ import annotations

import dataclasses
import html
import re
import shlex
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mha_numpy
import mha_parity
from mha_parity.__main__ import main
from mha_parity.core.options import OptionKeywords, Options
from mha_parity.report import notebook_view, progress
from mha_parity.run import repro
from mha_parity.targets.load import load
from subject_checks import SUBJECTS


def unscaled(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return an attention that forgets the scale."""
    logits = Q @ K.T
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    output: np.ndarray = odds / odds.sum(axis=-1, keepdims=True) @ V
    return output


def test_a_right_one() -> None:
    """The report holds, and shows itself as text."""
    verdict = mha_parity.judge(load(f"{SUBJECTS}/projected.py:f"), cases=40)
    assert verdict.holds
    assert bool(verdict)
    assert "Parity holds: " in str(verdict)
    text = " ".join(str(verdict).replace("│", " ").split())  # as wide as the window
    assert "equals torch in 40 of 40 cases" in text
    assert f"<Verdict: {verdict.sentence}>" == repr(verdict)


@pytest.fixture(scope="module")
def wrong() -> mha_parity.Verdict:
    """Return the report on that attention, judged outside a notebook."""
    return mha_parity.judge(unscaled, cases=40)


def test_a_wrong_one_is_no_exception(wrong: mha_parity.Verdict) -> None:
    """The report names the bug."""
    assert not wrong.holds
    with pytest.raises(AssertionError):
        assert wrong
    assert "the bug: the scores are not scaled" in str(wrong)


def test_the_verdict_is_exported_with_its_reports(tmp_path: Path) -> None:
    """``judge`` returns a ``Verdict``, which writes its page and gives its JSON document."""
    verdict = mha_parity.judge(unscaled, cases=40, shrink=False)
    verdict.save_html(tmp_path / "page.html")

    assert isinstance(verdict, mha_parity.Verdict)
    assert "fail" == verdict.to_dict()["outcome"]
    assert verdict.sentence == verdict.to_dict()["sentence"]
    assert "<!DOCTYPE html>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_keywords_are_the_fields_of_options() -> None:
    """What a call takes as keywords is what ``Options`` has, no more and no less."""
    fields = {field.name for field in dataclasses.fields(mha_parity.Options)}
    assert fields == set(OptionKeywords.__annotations__)


def test_help_says_what_there_is() -> None:
    """The package's own page names every public name but the version, with a line on it."""
    for name in sorted(set(mha_parity.__all__) - {"__version__"}):
        assert f"\n``{name}``\n    " in str(mha_parity.__doc__)


def test_a_text_is_judged_in_its_own_process() -> None:
    """Targets of the command are targets here."""
    target = f"{SUBJECTS}/misbehaving.py:exits_over_one_head"
    verdict = mha_parity.judge(target, cases=12, diagnose=False, shrink=False)
    assert "ended its process with exit status 3" in str(verdict)


def test_a_notebook_gets_the_page(wrong: mha_parity.Verdict) -> None:
    """It stands in a frame, so that its style does not leak, and has the pictures."""
    shown_there = wrong._repr_html_()
    assert shown_there is not None
    (page,) = re.findall(r'<iframe srcdoc="([^"]*)" title="Parity does not hold: ', shown_there)
    document = html.unescape(page)
    assert document.startswith("<!DOCTYPE html>")
    assert "<svg" in document
    assert "<" not in page


def test_a_notebook_without_the_extra_gets_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter shows the text where there is no page."""
    monkeypatch.setattr(notebook_view, "NEEDED", ("jinja2", "no_such_package"))
    verdict = mha_parity.judge(unscaled, cases=4)
    assert verdict._repr_html_() is None
    assert () == verdict.pictures
    assert "Parity does not hold" in str(verdict)


def test_a_notebook_is_not_printed_into(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What rich prints in a notebook would be shown at once, apart from the text that is wanted."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("displayed"))
    few: Any = {"cases": 12, "diagnose": False, "shrink": False}
    verdict = mha_parity.judge(unscaled, **few)
    assert "Parity does not hold" in str(verdict)
    with pytest.raises(AssertionError, match="Parity does not hold"):
        mha_parity.assert_parity(unscaled, **few)
    assert ("", "") == capsys.readouterr()
    mha_parity.replay(verdict.failures[0].case.id, unscaled)
    out = capsys.readouterr().out
    assert "fails this case" in out
    assert "\x1b" not in out


class Notebook:
    """What a notebook's cell shows: outputs, and one line that is replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in for the part of IPython that is used."""
        self.outputs: list[dict[str, str]] = []
        self.lines: list[str] = []
        package, display = ModuleType("IPython"), ModuleType("IPython.display")
        package.__spec__ = ModuleSpec("IPython", None)
        vars(package).update(display=display, get_ipython=lambda: self)
        vars(display).update(display=self.display)
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
        monkeypatch.setattr(progress, "STATUS_EVERY", 0.0)

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool = False) -> Notebook:
        """Add an output."""
        assert raw
        if display_id:
            self.lines.append(data["text/plain"])
        else:
            self.outputs.append(data)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        """Replace the line."""
        assert raw
        self.lines.append(data["text/plain"])


def test_a_notebook_erases_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run counts its cases in one line, which is empty when it is over; nothing is printed."""
    notebook = Notebook(monkeypatch)
    mha_parity.judge(unscaled, cases=4, diagnose=False, shrink=False, draw=False)
    assert "judging" in notebook.lines[0]
    assert "4 of 4 cases" in notebook.lines[-2]
    assert "" == notebook.lines[-1]
    assert [] == notebook.outputs
    assert ("", "") == capsys.readouterr()


def test_a_replay_shows_its_picture_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below the text stand the target's weights, torch's, and their difference, in a frame."""
    notebook = Notebook(monkeypatch)
    case = "qkv-N1-L5-S5-H1-D4-unbatched-float64-s0"
    mha_parity.replay(case, unscaled)
    (shown,) = notebook.outputs
    page = html.unescape(shown["text/html"])
    assert f'title="{case}"' in page
    assert 3 == page.count("<svg")
    assert "fails this case" in capsys.readouterr().out


def test_a_replay_elsewhere_shows_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a notebook there is nothing to show a picture in."""
    assert notebook_view.picture_display() is None
    assert notebook_view.status_line() is None
    mha_parity.replay("qkv-N1-L5-S5-H1-D4-unbatched-float64-s0", unscaled)
    assert "<" not in capsys.readouterr().out


def test_a_target_in_the_place_of_the_case_is_said_in_one_sentence() -> None:
    """`judge` takes its target first, `replay` the case."""
    with pytest.raises(ValueError, match="for the id of a case, but should be a text as a report"):
        mha_parity.replay(unscaled, "qkv-N1-L5-S5-H1-D4-unbatched-float64-s0")  # type: ignore[arg-type]


def test_a_case_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """The expression that a report prints shows the failing case of a local function."""

    def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        return unscaled(Q, K, V)

    verdict = mha_parity.judge(attention, cases=40, diagnose=False)
    (failure,) = [each for each in verdict.failures if each.check_result.check == "output"]
    line = f'mha_parity.replay("{failure.case.id}", attention)'
    assert line == failure.replay
    assert line in str(verdict)
    eval(line, {"mha_parity": mha_parity, "attention": attention})  # noqa: S307  (as one would type)
    out = capsys.readouterr().out
    assert failure.case.id in out
    assert "attention fails this case: output" in " ".join(out.split())


def test_what_has_a_file_is_replayed_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The printed line works in a shell as it stands."""
    target = load(f"{SUBJECTS}/wrong_scale.py:f")
    verdict = mha_parity.judge(target, cases=40, diagnose=False)
    line = verdict.failures[0].replay
    command, *arguments = shlex.split(line)
    assert "mha-parity" == command
    assert 1 == main(arguments)
    assert "fails this case" in " ".join(capsys.readouterr().out.split())


def test_what_the_command_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name in a file: neither lambdas, nor inner functions, nor cells, nor what is built in."""
    own = Path(__file__)
    monkeypatch.chdir(own.parent)
    sys.modules.setdefault(__name__, sys.modules[unscaled.__module__])
    assert f"{own.name}:unscaled" == repro.importable_target(unscaled)
    monkeypatch.chdir(tmp_path)
    assert f"{own}:unscaled" == repro.importable_target(unscaled)
    cell = ModuleType("cell")
    exec("def f(Q, K, V): return V", cell.__dict__)  # noqa: S102  (as a notebook does)
    monkeypatch.setitem(sys.modules, "cell", cell)
    for nameless in (cell.f, lambda rows: rows, len, np.float64(1)):
        assert repro.importable_target(nameless) is None
    layer = mha_numpy.MultiheadAttention
    assert "mha_numpy.module:MultiheadAttention" == repro.importable_target(layer)
    assert load(str(repro.importable_target(layer))) is layer


def test_what_is_no_attention_raises_the_error_that_is_exported() -> None:
    """One sentence, in an error that a caller can name and that is a ValueError."""
    with pytest.raises(mha_parity.TargetError) as caught:
        mha_parity.judge(3, cases=2)
    assert isinstance(caught.value, ValueError)
    assert 1 == len(str(caught.value).splitlines())


def test_what_has_no_name_is_called_by_its_place() -> None:
    """A lambda by its line, in reports; a line to repeat its run leaves its place open."""
    nameless = lambda rows: rows  # noqa: E731  (that is what is named)
    line = nameless.__code__.co_firstlineno
    assert f"lambda at {Path(__file__).name}:{line}" == repro.display_name(nameless)
    assert 'mha_parity.replay("x", ...)' == repro.replay_lines_of(nameless, Options()).case("x")


def test_a_line_repeats_where_and_how_a_case_failed() -> None:
    """Device and path through torch are repeated, and a shell reads each value as one word."""
    options = Options(device="cuda:0", path="sdpa-math", answers="my answers.safetensors")
    line = repro.Repro("torch.nn:MultiheadAttention", options).case("x")
    assert line.endswith("--answers 'my answers.safetensors' --device cuda:0 --path sdpa-math")


COMMAND = repro.Repro("a.py:f", Options(convention="qkv", cases=5))
PYTHON = repro.Repro("f", Options(convention="qkv", cases=5), as_python=True)
LINES = {
    "command": (
        COMMAND,
        "mha-parity replay x a.py:f --convention qkv",
        (
            "mha-parity check a.py:f --cases 5 --seed 0 --dtypes float32 "
            "--features attn=none,bias=yes --convention qkv"
        ),
    ),
    "python": (
        PYTHON,
        'mha_parity.replay("x", f, convention="qkv")',
        (
            'mha_parity.judge(f, cases=5, seed=0, dtypes="float32", '
            'features="attn=none,bias=yes", convention="qkv")'
        ),
    ),
}


@pytest.mark.parametrize(("subject", "case", "run"), LINES.values(), ids=LINES)
def test_a_run_is_repeated_with_its_options(subject: repro.Repro, case: str, run: str) -> None:
    """What decides the cases, and how the target is called, are repeated."""
    assert case == subject.case("x")
    features = (("attn", "none"), ("bias", "yes"))
    drawn = dataclasses.replace(subject.options, dtypes=("float32",), features=features)
    assert run == dataclasses.replace(subject, options=drawn).run()


def test_a_case_that_is_not_offered_is_refused() -> None:
    """A mistake is a sentence, as for the command."""
    with pytest.raises(ValueError, match=r"the case needs form=mha, but .*:unscaled offers qkv"):
        mha_parity.replay("mha-N2-L5-S7-H3-D4-cross-causal-float32-s11", unscaled)
    with pytest.raises(ValueError, match="got 'cases_', but no such option; did you mean 'cases'"):
        mha_parity.replay("mha-N2-L5-S7-H3-D4-cross-causal-float32-s11", unscaled, cases_=3)  # type: ignore[call-arg]  # on purpose
