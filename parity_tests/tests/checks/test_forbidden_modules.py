"""A function is of the module that it says, else of its owner's; submodules are forbidden too."""

from __future__ import annotations

import inspect
import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mha_parity.checks.forbidden_modules import ForbiddenModules

FRAME: Any = inspect.currentframe()


class Owner:
    """An object of this module, with a method in C that says no module."""


@pytest.mark.parametrize(
    ("function", "forbidden", "named"),
    [
        (SimpleNamespace(__module__="m.sub", __name__="f", __self__=Owner()), "m", "m.sub.f"),
        (SimpleNamespace(__module__="m", __name__="f", __self__=None), "m", "m.f"),
        (SimpleNamespace(__module__=None, __name__="f", __self__=Owner()), __name__, None),
        (SimpleNamespace(__module__=None, __name__="f", __self__=Owner), __name__, None),
        (re.compile("a").match, "re", "re.match"),
        (SimpleNamespace(__module__="m"), "m", "m.?"),
        (SimpleNamespace(__module__="mm", __name__="f", __self__=None), "m", ""),
    ],
    ids=["submodule", "own", "owner", "class", "method", "nameless", "other"],
)
def test_a_function_in_c_is_of_its_own_module_else_of_its_owners(
    function: Any, forbidden: str, named: str | None
) -> None:
    """Kills `and` for `or` between both, and a comparison that takes any name that begins so."""
    watch = ForbiddenModules([forbidden])
    watch.record(FRAME, "c_call", function)
    named = f"{__name__}.f" if named is None else named
    expected = [f"forbidden modules: the call ran {named} of {forbidden}."] if named else []
    assert expected == list(watch.findings())


def test_only_calls_are_recorded_the_first_of_each_module() -> None:
    """A return runs nothing; a second function of a module adds no finding."""
    watch = ForbiddenModules([__name__, "m"])
    watch.record(FRAME, "return", None)
    watch.record(FRAME, "c_return", SimpleNamespace(__module__="m", __name__="f"))
    assert [] == list(watch.findings())
    watch.record(FRAME, "call", None)
    watch.record(FRAME, "c_call", SimpleNamespace(__module__=__name__, __name__="f"))
    (finding,) = watch.findings()
    assert finding == f"forbidden modules: the call ran {__name__}.<module> of {__name__}."


def test_a_profiler_of_threads_goes_on() -> None:
    """What the user has set for new threads is put back, as that of this thread is."""

    def watch(*_: object) -> None: ...

    threading.setprofile(watch)
    try:
        with ForbiddenModules(["re"]):
            assert threading.getprofile() != watch
        assert threading.getprofile() is watch
    finally:
        threading.setprofile(None)
