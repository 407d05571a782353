"""Parts that torch's layer lacks, such as rotary positions, are taken out by ``--without``."""

from __future__ import annotations

import inspect
import re

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.layers.removed_parts import Bypass
from subject_checks import checks_of, load_subject

judged = checks_of("without_parts.py", cases=40)
ROTARY = ("rotary", "q_norm", "k_norm")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("NormedRotary", ROTARY),
        ("NormedRotary", ("scores_of",)),
        ("ByModule", ("rope",)),
        ("ByStaticMethod", ("rotate_half",)),
        ("built", ("rope",)),
        ("attention", ("with_positions",)),
        ("OneNorm", ("q_norm", "k_norm")),
        ("OfBase", ROTARY),
        ("ByObject", ("by_object",)),
        ("Alibi", ("alibi",)),
        ("ByTable", ("rotary_by_table",)),
        ("ByTableOfAClass", ("rotary_by_object",)),
    ],
)
def test_the_rest_is_judged_where_a_part_returns_what_it_is_given(
    name: str, parts: tuple[str, ...]
) -> None:
    """A function, a method, a module: without it the layer is right, and the verdict says so.

    A table of positions that each call gets is None then: the function cannot be run with it.
    """
    verdict = judged(name, without=parts)
    assert verdict.outcome is Outcome.PASS
    assert f"without its {', '.join(parts)}" in verdict.sentence
    taken_out = tuple(each.name for each in verdict.parameters if each.of == "part")
    assert parts == taken_out


@pytest.mark.parametrize(
    ("name", "parts"), [("UnscaledRotary", ROTARY), ("ByTableUnscaled", ("rotary_by_table",))]
)
def test_what_is_wrong_beside_the_part_fails(name: str, parts: tuple[str, ...]) -> None:
    """Without its positions a layer without a scale is named by that."""
    verdict = judged(name, without=parts, diagnose=True)
    assert verdict.outcome is Outcome.FAIL
    assert ["scale-none"] == [each.bug for each in verdict.diagnosis]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # `scores_of` is around it, but its norms do not stand for what they are given.
        ("NormedRotary", "--without scores_of judges the rest"),
        ("UnscaledRotary", "--without rotary judges the rest"),
        ("ByModule", "--without rope judges the rest"),
        ("ByStaticMethod", "--without rotate_half judges the rest"),
        ("built", "--without rope judges the rest"),
        ("Alibi", "--without alibi judges the rest"),
        ("ByTableOfAClass", "--without rotary_by_object judges the rest"),
    ],
)
def test_a_refusal_names_the_part_to_take_out(name: str, said: str) -> None:
    """Trials showed that the rest is attention, or the name of the part says what it is."""
    with pytest.raises(TargetError, match=re.escape(said)):
        judged(name)


def test_zeros_stand_for_what_is_added_alone() -> None:
    """What is multiplied by a bias is no attention with zeros in its place, and stays refused."""
    with pytest.raises(TargetError, match="`alibi` has no counterpart"):
        judged("AlibiMultiplied", without=("alibi",))


def test_norms_of_queries_and_keys_are_named_beside_what_is_taken_out() -> None:
    """A refusal that follows has the parts that are taken out already."""
    with pytest.raises(TargetError, match="--without rotary,q_norm,k_norm judges the rest"):
        judged("NormedRotary", without=("rotary",))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("rotation",), "got --without rotation, but what `rotation` returns"),
        (("rotery",), "has no part of that name; did you mean rotary?"),
        (("qkv",), "but what `qkv` returns has other shapes than what it is given"),
    ],
)
def test_a_name_that_takes_nothing_out_is_refused(parts: tuple[str, ...], said: str) -> None:
    """A misspelt one, or one whose results no argument can stand for."""
    with pytest.raises(TargetError, match=re.escape(said)):
        judged("NormedRotary", without=parts)


@pytest.mark.parametrize(
    ("name", "parts", "said"),
    [
        ("attention", ("with_positions", "unused"), "no call runs `unused`; leave it out"),
        ("attention", ("with_positions", "sums"), "but what `sums` returns has other shapes"),
        ("ShiftedByModule", ("rope",), "but what `rope` returns has other shapes"),
    ],
)
def test_a_part_that_is_not_taken_out_is_refused(
    name: str, parts: tuple[str, ...], said: str
) -> None:
    """The rest of the target is right: without a refusal the verdict would name that part."""
    with pytest.raises(TargetError, match=re.escape(said)):
        judged(name, without=parts)


def test_a_name_of_no_part_of_a_built_layer_leaves_the_module_as_it_was() -> None:
    """A layer that is no module of torch has no modules to look for."""
    subject = load_subject("without_parts.py:attention")
    before = subject.__globals__["with_positions"]

    class Built:
        """An object with a state."""

        def named_modules(self) -> list[tuple[str, object]]:
            """Raise: nothing of torch is asked of it."""
            raise AssertionError

    with Bypass(subject, ("with_positions",), Built()) as bypass:
        assert before is not subject.__globals__["with_positions"]
        assert {"with_positions"} == {*bypass.found}
    assert before is subject.__globals__["with_positions"]


def test_the_target_is_as_it_was() -> None:
    """Class, module and built layer have their parts again when the verdict is there."""
    static = load_subject("without_parts.py:ByStaticMethod")
    built = load_subject("without_parts.py:built")
    before = inspect.getattr_static(static, "rotate_half"), built.rope
    frequencies = built.rope.frequencies.clone()
    judged("ByStaticMethod", without=("rotate_half",))
    judged("built", without=("rope",))
    assert before == (inspect.getattr_static(static, "rotate_half"), built.rope)
    assert frequencies.dtype == built.rope.frequencies.dtype
    assert frequencies.equal(built.rope.frequencies)
