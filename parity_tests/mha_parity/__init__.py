"""mha-parity: proves that a multi-head attention computes what torch's computes.

``assert_parity`` judges an attention in a test. ``judge`` returns a report that shows itself, in a
notebook as a page, and ``replay`` prints one of its cases. ``check`` judges what is bound already
and returns the verdict as data.
Neither numpy nor torch is loaded until one of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_parity.asserting import assert_parity, judge, replay
    from mha_parity.run import check

__version__ = "0.1.0"
__all__ = ["__version__", "assert_parity", "check", "judge", "replay"]

_HOMES = {
    "assert_parity": "mha_parity.asserting",
    "check": "mha_parity.run",
    "judge": "mha_parity.asserting",
    "replay": "mha_parity.asserting",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
