"""What a window means is found by small calls, and judged at further sizes and lengths."""

from __future__ import annotations

import pytest

from mha_parity.checks.windows import NAME
from mha_parity.core.features import SQUARE
from mha_parity.core.parameters import Role, Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.window_arguments import ALL, BLOCKS, PAIR_RULES, RULES, WindowUse
from subject_checks import checks_of

judged = checks_of("windows.py", cases=24, dtypes=("float64",))
judged_in_layers = checks_of("windows_in_layers.py", cases=24, dtypes=("float64",))
BEFORE = "of w, row i sees the keys i - w + 1 to i"


@pytest.mark.parametrize(
    ("name", "meanings"),
    [
        ("causal_window", {"window": BEFORE}),
        ("refuses_beyond", {"window": BEFORE}),
        (
            "on_both_sides",
            {"window_size": f"of w, row i sees the keys i - w // 2 to i + w // 2, {SQUARE}"},
        ),
        (
            "by_sides",
            {
                "window_size": "of (left, right), row i sees the keys i - left to i + right, "
                f"{SQUARE}"
            },
        ),
        (
            "by_required_sides",
            {
                "window_size": "of (left, right), row i sees the keys i - left to i + right, "
                f"{SQUARE}"
            },
        ),
        (
            "in_blocks",
            {
                "window": "of w, row i sees the keys of its own block of w, of those counted from "
                "row 0"
            },
        ),
        (
            "Switched",
            {"sliding_window": BEFORE, "use_sliding_window": "True where a window is passed"},
        ),
        (
            "WithTheRule",
            {"window": "of w, row i sees the keys i - w to i, with the causal rule alone"},
        ),
        ("short_by_default", {"window": BEFORE}),
        ("within_radius", {"radius": f"of w, row i sees the keys i - w to i + w, {SQUARE}"}),
        ("masked", {"window": f"of w, row i sees the keys i - w + 1 to i + w - 1, {SQUARE}"}),
        ("OfHalves", {"attention_window": "of w, row i sees the keys i - w // 2 to i + w // 2"}),
        ("OfConfiguration", {"sliding_window": BEFORE}),
    ],
)
def test_right_ones_pass_and_are_said(name: str, meanings: dict[str, str]) -> None:
    """The window is tried; kills a window that is left at its default, or named otherwise."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    said = {each.name: each for each in verdict.parameters if each.role is Role.WINDOW}
    assert meanings == {each: parameter.meaning for each, parameter in said.items()}
    assert {Status.TRIED} == {each.status for each in said.values()}
    assert any(NAME == row.name and row.cases for row in verdict.checks)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "shorter_from_row_64",
            "in row 64, which should see keys 33 to 64, and sees keys 34 to 64",
        ),
        ("less_of_eights", "which should see keys 0 to 8, and sees keys 0 to 7"),
        (
            "sides_exchanged_from_31",
            "in row 0, which should see keys 0 to 16, and sees keys 0 to 32",
        ),
        ("SwitchedShort", "in row 31, which should see keys 0 to 31, and sees keys 16 to 31"),
        ("nothing_with_the_rule", "with `window` = 1 and the causal rule at L = 6"),
        ("ignored_from_row_150", "with `window` = 33 at L = 260"),
        ("filled_with_30", "which should see keys"),
        ("mask_dropped", "with `window` = 3 and a mask at L = 17"),
        ("mask_dropped", "which should see keys 0 to 2, as if no mask were passed"),
        ("CachedLonger", "in row 2, asked with the cache of those before it, which should see"),
        ("CachedLonger", "key 2, and sees keys 1 to 2"),
        ("ConfiguredShort", "should see keys 0 to 10, and sees keys 1 to 10"),
        ("raises_beyond", "with `window` = 15 and the causal rule at L = 12 it raised IndexError"),
    ],
)
def test_wrong_ones_fail_by_the_rows_that_are_off(name: str, said: str) -> None:
    """Each follows its rule in the small calls, and passes without this check."""
    verdict = judged(name, max_failures=0, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert said in verdict.diagnosis[0].title
    assert "look at its bounds" in verdict.diagnosis[0].remedy


@pytest.mark.parametrize(
    ("name", "window", "meaning"),
    [
        ("OfItself", "window", BEFORE),
        ("LooksBack", "left", "of w, row i sees the keys i - w to i"),
    ],
)
def test_windows_of_layers_pass_and_are_said(name: str, window: str, meaning: str) -> None:
    """By a number of the layer's own, and by a name that speaks of a side."""
    verdict = judged_in_layers(name)
    assert Outcome.PASS is verdict.outcome, verdict
    (said,) = (each for each in verdict.parameters if each.role is Role.WINDOW)
    assert (window, meaning, Status.TRIED) == (said.name, said.meaning, said.status)


def test_a_window_that_a_layer_keeps_as_its_own_number_is_asked() -> None:
    """It was wrong wherever L is longer; kills one that is set where it means nothing."""
    verdict = judged_in_layers("OfItselfShort", max_failures=0)
    assert {NAME, "output"} >= {each.check_result.check for each in verdict.failures}
    assert Outcome.FAIL is verdict.outcome
    other = judged_in_layers("OfNoEffect")
    assert Outcome.PASS is other.outcome, other.sentence
    assert not any(each.role is Role.WINDOW for each in other.parameters)


def test_rows_of_one_step_beyond_the_window_are_those_of_the_whole() -> None:
    """Rows one by one are right: kills a step that is asked of one row alone."""
    verdict = judged_in_layers("LooksBackOverwritten", max_failures=0)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    details = [each.check_result.detail for each in verdict.failures]
    assert all("asked in one `stream` behind those before them" in each for each in details)


def test_a_window_that_is_kept_for_the_next_call_fails() -> None:
    """New objects are right: kills a check that makes one for each window."""
    verdict = judged("KeepsBand", max_failures=0, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert "after a call of the same object, one without, elements" in verdict.diagnosis[0].title
    assert "keep it under that window" in verdict.diagnosis[0].remedy


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ignored", "2, 3, 4 and 5 change nothing"),
        ("IgnoredByRule", "2, 3, 4 and 5 change nothing"),
        (
            "without_the_rule",
            "with the causal rule its rows do not follow the window that they do without it",
        ),
        ("dilated", "2, 3, 4 and 5 are attention within no window that is known"),
        ("a_mistake", "no call was answered with one: raised AttributeError"),
    ],
)
def test_a_window_that_is_not_understood_is_no_green(name: str, reason: str) -> None:
    """The run is inconclusive and names the way out, with which it passes."""
    verdict = judged(name)
    assert Outcome.INCONCLUSIVE is verdict.outcome, verdict
    assert f"no case passed `window` (window): {reason}" in verdict.sentence.replace(
        "the rows that it answers with ", ""
    )
    assert "--masks" not in verdict.sentence
    assert "exclude it with --without window" in verdict.sentence
    assert Outcome.PASS is judged(name, without=("window",)).outcome


@pytest.mark.parametrize("name", ["OfLargestLength", "OfPlane", "OfContext", "OfSwitch"])
def test_a_size_of_another_thing_is_no_window_of_keys(name: str) -> None:
    """Kills every name with `window` as a mask: a plane's size, and a largest length."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    assert [] == [each.name for each in verdict.parameters if each.role is Role.WINDOW]


def test_a_given_layer_is_asked_with_windows_of_its_calls() -> None:
    """It has weights of its own, so its rows are those of the cases."""
    verdict = judged("given", cases=120, dtypes=("float32",))
    assert Outcome.PASS is verdict.outcome, verdict
    (window,) = (each for each in verdict.parameters if "window" == each.name)
    assert Status.TRIED is window.status


@pytest.mark.parametrize("rule", [*RULES, *PAIR_RULES])
def test_no_two_rules_are_alike_and_each_row_sees_itself(rule: tuple[str, str]) -> None:
    """Of windows of 2, 3, 4 and 5 rows in a sequence of 8: small calls tell each from others."""

    def seen(each: tuple[str, str]) -> list[tuple[int, int]]:
        use = WindowUse("call.window", each)
        return [use.keys_of(row, size, 8) for size in (2, 3, 4, 5) for row in range(8)]

    group = RULES if rule in RULES else PAIR_RULES
    assert [rule] == [each for each in group if seen(each) == seen(rule)]
    assert all(first <= at % 8 < end for at, (first, end) in enumerate(seen(rule)))


@pytest.mark.parametrize(
    ("rule", "keys", "said"),
    [
        (("w", "w"), (2, 9), "i - w to i + w"),
        (("w - 1", ALL), (3, 12), "i - w + 1 to S - 1"),
        ((ALL, "(w - 1) // 2"), (0, 7), "0 to i + (w - 1) // 2"),
        ((BLOCKS, BLOCKS), (3, 6), "its own block"),
    ],
)
def test_a_rule_says_which_keys_a_row_sees(
    rule: tuple[str, str], keys: tuple[int, int], said: str
) -> None:
    """Row 5 of 12 with a window of 3."""
    use = WindowUse("call.window", rule)
    assert keys == use.keys_of(5, 3, 12)
    assert said in use.meaning


def test_a_window_that_a_mask_replaces_is_said() -> None:
    """It is no failure: whoever passes a mask may hide in it what lies outside of the window."""
    verdict = judged("mask_instead")
    assert Outcome.PASS is verdict.outcome, verdict
    assert "Beside a mask `window` is left out" in " ".join(verdict.notes)


def test_a_window_of_a_configuration_without_effect_is_no_mask() -> None:
    """Layers of transformers keep it for what calls them: it is said that they do not use it."""
    verdict = judged("ReadByOthers")
    assert Outcome.PASS is verdict.outcome, verdict
    assert [] == [each.name for each in verdict.parameters if each.role is Role.WINDOW]
    assert "`sliding_window` of its configuration changes nothing." in verdict.notes
