"""What the text of an option may be, and what a keyword in its stead."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest

from mha_parity.core import option_values as values
from mha_parity.core.option_flags import FLAGS, add_options, from_namespace, with_keywords
from mha_parity.core.options import OptionKeywords, Options

TAKEN: list[tuple[Callable[[str], Any], str, Any]] = [
    (values.positive_integer, "1", 1), (values.positive_integer, "9" * 18, int("9" * 18)),
    (values.nonnegative_integer, "0", 0), (values.nonnegative_integer, "9" * 18, int("9" * 18)),
    (values.shard, "1/1", (1, 1)), (values.shard, "2/3", (2, 3)), (values.shard, "3/3", (3, 3)),
    (values.positive_number, "1e-300", 1e-300), (values.positive_number, "0.5", 0.5),
    (values.dtypes, "float32,float64", ("float32", "float64")),
    (values.policy, "zero", "zero"),
    (values.comma_list, " a.b, c,,", ("a.b", "c")),
    (values.mask_meanings, "m=keeps:(N,1,L,S), n=hides",
     (("m", "keeps:(N,1,L,S)"), ("n", "hides"))),
    (values.feature_pairs, "attn=causal, bias = yes", (("attn", "causal"), ("bias", "yes"))),
]  # fmt: skip
REFUSED: list[tuple[Callable[[str], Any], str, str]] = [
    *((values.positive_integer, text, "a whole number from 1 up")
      for text in ("0", "-1", "1.5", "", "x", "1" * 19)),
    *((values.nonnegative_integer, text, "a whole number from 0 up")
      for text in ("-1", "x", "1" * 19)),
    *((values.shard, text, "K/N with K from 1 to N")
      for text in ("0/1", "2/1", "1", "/1", "1/", "x/2", "1/x", "1/2/3", "")),
    *((values.positive_number, text, "a number above 0")
      for text in ("0", "-1", "inf", "nan", "x")),
    (values.dtypes, "float23", "no such dtype; did you mean 'float32'?"),
    (values.policy, "?", "known are nan, zero, uniform"),
    (values.mask_meanings, "m", "but should be NAME=keeps"),
    (values.module_names, " ,", "but should be names of modules"),
    (values.mask_meanings, "m=hide:(1,S)", "did you mean 'hides'?"),
    (values.feature_pairs, "causal", "but should be AXIS=VALUE"),
    (values.feature_pairs, "attn=casual", "no such value of attn; did you mean 'causal'?"),
]  # fmt: skip


@pytest.mark.parametrize(("parse", "text", "value"), TAKEN)
def test_a_text_becomes_its_value(parse: Callable[[str], Any], text: str, value: Any) -> None:
    """Kills other limits: the least and the greatest number are taken, spaces are not kept."""
    assert value == parse(text)


@pytest.mark.parametrize(("parse", "text", "said"), REFUSED)
def test_any_other_text_is_refused(parse: Callable[[str], Any], text: str, said: str) -> None:
    """Kills `or` for `and` in what a shard is, and each limit moved by one."""
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(said)):
        parse(text)


def test_lists_given_several_times_are_joined_without_repetition() -> None:
    """Kills joining what is no list: a number stays one, and so does a text."""
    parser = argparse.ArgumentParser()
    add_options(parser.add_argument)
    words = ["--dtypes", "float32", "--dtypes", "float64,float32", "--cases", "7", "--grad",
             "--answers", "file"]  # fmt: skip
    options = from_namespace(parser.parse_args(words))
    assert Options(dtypes=("float32", "float64"), cases=7, grad=True, answers="file") == options
    assert Options() == from_namespace(parser.parse_args([]))
    prefixed: dict[str, list[str]] = {f"mha_parity_{name.replace('-', '_')}": [] for name in FLAGS}
    assert "flash" == from_namespace(Namespace(**prefixed, path="flash"), "mha-parity-").path
    for name in ("html", "markdown", "github"):
        asked = Namespace(**vars(parser.parse_args([])), **{name: "file"})
        assert from_namespace(asked) == Options(draw=True)


def test_a_keyword_is_held_to_the_rules_of_its_option() -> None:
    """Kills `is not None` for `is None`: None is a value where it is the default, and nowhere else.

    A list is joined as a command line's is; a switch is True or False.
    """
    given = {"jobs": None, "grad": True, "dtypes": ["float32"], "timeout": 2, "features": [],
             "masks": [("m", "keeps")]}  # fmt: skip
    expected = Options(grad=True, dtypes=("float32",), timeout=2.0, masks=(("m", "keeps"),))
    assert expected == with_keywords(Options(jobs=3), given)
    assert Options(jobs=3) == with_keywords(Options(), {"jobs": 3})
    for keywords, said in (
        ({"cases": None}, "cases: got 'None', but should be a whole number from 1 up."),
        ({"grad": 1}, "grad: got 1, but should be True or False."),
        ({"jobz": 1}, "got 'jobz', but no such option; did you mean 'jobs'?"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            with_keywords(Options(), keywords)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(cases=-3), "cases: got '-3', but should be a whole number from 1 up."),
        (Options(fully_masked="half"), "fully_masked: got 'half', "),  # type: ignore[arg-type]  # wrong on purpose
    ],
    ids=["cases", "fully_masked"],
)
def test_options_are_held_to_the_rules_of_the_command(options: Options, said: str) -> None:
    """Kills options that are taken as they are: no case was judged, or a policy was ignored."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        with_keywords(options, {"seed": 1})


def test_every_keyword_may_be_left_out() -> None:
    """For a type checker too. Kills a call that has to name all of them."""
    assert not OptionKeywords.__required_keys__


def test_a_hint_asks_for_the_nearest_words_or_says_something_else() -> None:
    """As many as are asked for, written as asked for."""
    known = ["causal", "casual", "none"]
    assert "did you mean causal?" == values.hint_of("causl", known)
    assert "did you mean 'causal'?" == values.hint_of("causl", known, write=repr)
    assert "did you mean causal or casual?" == values.hint_of("causl", known, most=2)
    assert "see the list" == values.hint_of("xyz", known, "see the list")
