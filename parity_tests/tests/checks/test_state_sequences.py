"""Which calls of one object show which kept state, on the layers of the catalogue, call by call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue
from mha_parity.catalogue.plain_layer import Layer, bound_layer
from mha_parity.checks import statelessness
from mha_parity.checks.call_sequence import AS_BUILT, MODES, CallSequence, Mode
from mha_parity.core.case import parse

PROBLEM = make_problem(parse("mha-N2-L6-S6-H2-D2-bias-outproj-padding-weights-float32-s3"))
CHECKS = {
    "sequence": statelessness.in_sequence, "rewritten": statelessness.rewritten_arrays,
    "reloaded": statelessness.reloaded_weights, "repeated": statelessness.repeated_calls,
}  # fmt: skip
THIS, SHORT = "this problem", "a problem of 3 queries and 3 keys"
OTHER, BARE = "other rows of the same shapes", "these rows without masks"
LAST = " in evaluation mode"


def after(call: str, earlier: str, cause: str) -> str:
    """Return the end of a sentence on a call, one that came before, and what is kept of it."""
    return f"{call} by an object that answered {earlier} before: {cause}"


# Of each layer: the number of findings, and two calls and the cause that the first one names.
SHOWN: dict[str, tuple[dict[str, int], str]] = {
    "keys-kept": ({"sequence": 1}, after(OTHER + LAST, THIS + LAST, statelessness.KEYS_KEPT)),
    "keys-appended": (
        {"sequence": 9, "rewritten": 1, "repeated": 1},
        after(THIS, SHORT, statelessness.KEYS_APPENDED),
    ),
    "buffer-of-first-call": ({"sequence": 6}, after(THIS, SHORT, statelessness.FIRST_SHORTER)),
    "tail-of-longer-call": ({"sequence": 3}, after(SHORT, BARE, statelessness.FIRST_LONGER)),
    "values-kept": ({"sequence": 6}, after(THIS, SHORT, statelessness.VALUES_KEPT)),
    "identity-keyed-cache": ({"rewritten": 1}, f"{OTHER}, {statelessness.BY_IDENTITY}"),
    "counts-calls": ({"repeated": 1}, f"call 13 of 32 {statelessness.COUNTED}, {THIS}"),
}


def found(name: str | None) -> dict[str, list[str]]:
    """Return what each way of calling finds of a layer; without a name, of the right one."""
    bug = None if name is None else catalogue()[name].layer
    bound = bound_layer(Layer if bug is None else bug())
    said = {key: list(each(CallSequence(bound, PROBLEM))) for key, each in CHECKS.items()}
    return {key: findings for key, findings in said.items() if findings}


@pytest.mark.parametrize("name", SHOWN)
def test_each_state_shows_in_the_calls_that_it_changes(name: str) -> None:
    """And in no others; the sentence names the shortest sequence that shows it, and the cause.

    Kills a call that is left out or compared with another, and each condition negated.
    """
    counts, ends = SHOWN[name]
    said = found(name)
    assert counts == {key: len(findings) for key, findings in said.items()}
    first = next(iter(said.values()))[0]
    assert first.endswith(f" in the answer to {ends}."), first


def test_the_right_layer_shows_nothing() -> None:
    """In none of the calls above."""
    assert {} == found(None)


def test_an_array_that_is_used_again_is_named_with_the_call_that_overwrites_it() -> None:
    """The weights of a call change in the next one of their shape."""
    (findings,) = found("weights-buffer-reused").values()
    assert 4 == len(findings)
    assert all(each.startswith("output aliasing: ") for each in findings)
    assert findings[0].endswith(f"{OTHER} after {THIS}.")


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_an_object_is_asked_in_the_modes_that_it_has(trains: bool, library: str) -> None:
    """Evaluation where it trains, no autograd under torch; in 16 bits and on a path of torch none.

    Kills `==` for `>=`: what trains is asked without autograd in training too.
    """
    expected = [
        mode for mode in MODES
        if (trains or not mode.evaluates) and (library == "torch" or not mode.without_autograd)
    ]  # fmt: skip

    def modes(dtype: str = "float32", path: str | None = None) -> tuple[Mode, ...]:
        problem = make_problem(parse(f"qkv-N1-L2-S2-H1-D2-cross-{dtype}-s1"))
        bound: Any = SimpleNamespace(path=path, library=SimpleNamespace(name=library))
        sequence = CallSequence(bound, problem)
        sequence.__dict__["_trains"] = trains
        return sequence.modes

    assert expected == list(modes()) == list(modes("float64"))
    assert () == modes("float16") == modes("bfloat16") == modes(path="flash")
    assert AS_BUILT not in MODES
