"""Figures as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_parity.bench.intervals import Interval


def seconds(value: float) -> str:
    """Return a time with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.9995 * size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-6)} µs"


def ratio(value: Interval | None) -> str:
    """Return a ratio and, behind it, the bounds of its median."""
    if value is None:
        return ""
    if value.low == value.high == 1:
        return "1"
    return f"{_two(value.median)} {_two(value.low)}–{_two(value.high)}"


def memory(value: int | None) -> str:
    """Return bytes in MiB or GiB."""
    if value is None:
        return ""
    mib = value / 2**20
    return f"{mib / 1024:.2f} GiB" if mib >= 1000 else f"{_three(max(mib, 0.0))} MiB"


def rate(value: float | None) -> str:
    """Return operations a second in 10^9."""
    return "" if value is None else _three(value / 1e9)


def share(value: float | None) -> str:
    """Return a share in per cent."""
    return "" if value is None else f"{100 * value:.0f} %"


def _three(value: float) -> str:
    """Return a number with three digits, or all of those before its point."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _two(value: float) -> str:
    """Return a number with two digits behind its point, fewer where more stand before it."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
