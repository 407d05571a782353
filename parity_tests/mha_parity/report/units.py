"""Times, sizes, rates and shares with three digits and a unit."""

from __future__ import annotations


def format_seconds(value: float) -> str:
    """Return a time with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.9995 * size:
            return f"{two_decimals(value / size)} {unit}"
    return f"{two_decimals(value / 1e-6)} µs"


def format_memory(value: int | None) -> str:
    """Return bytes in MiB or GiB."""
    if value is None:
        return ""
    mib = value / 2**20
    return f"{mib / 1024:.2f} GiB" if mib >= 1000 else f"{two_decimals(max(mib, 0.0))} MiB"


def format_rate(value: float | None) -> str:
    """Return operations a second in 10^9."""
    return "" if value is None else two_decimals(value / 1e9)


def format_share(value: float | None) -> str:
    """Return a share in per cent."""
    return "" if value is None else f"{100 * value:.0f} %"


def two_decimals(value: float) -> str:
    """Return a number with two digits behind its point, and fewer from 10 and 100 on.

    One that would be rounded to 0.00 is given to one significant digit.
    """
    if 0 < value < 0.005:
        return f"{value:.1g}"
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
