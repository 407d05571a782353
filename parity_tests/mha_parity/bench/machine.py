"""The machine that figures belong to, and how much memory a process of it takes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int | None:
    """Return the bytes available without swapping; None where the system does not report it."""
    try:
        text = Path("/proc/meminfo").read_text("ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def busy_seconds() -> float | None:
    """Return the seconds that all cores together have worked since the machine's start.

    None where the system does not report it, or where only some of the machine's cores are ours.
    """
    if cores() != os.cpu_count():
        return None
    try:
        words = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, *interrupts = map(int, words[1:9])
    return (user + nice + system + sum(interrupts)) / float(os.sysconf("SC_CLK_TCK"))


def blas() -> tuple[str, ...]:
    """Return the BLAS libraries that are loaded, with the kernel each one chose.

    torch's own is linked into it, not visible to threadpoolctl.
    """
    if "torch" in sys.modules:
        import torch

        built = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
        name = built[1].upper() if built else "BLAS unknown"
        return (f"{name}, {torch.backends.cpu.get_cpu_capability()}",)
    from threadpoolctl import threadpool_info

    return tuple(
        " ".join(
            str(each[key])
            for key in ("internal_api", "version", "architecture")
            if each.get(key) is not None
        )
        for each in threadpool_info()
        if each["user_api"] == "blas"
    )


def resident_memory() -> int | None:
    """Return the bytes that this process holds; None where the system does not report it."""
    held = _status("VmRSS")
    return peak_memory() if held is None else held


def peak_memory() -> int | None:
    """Return the most bytes that this process has held since ``reset_peak_memory``."""
    high = _status("VmHWM")
    if high is not None:
        return high
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def reset_peak_memory() -> None:
    """Reset the recorded peak, where the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return


def _status(field: str) -> int | None:
    try:
        text = STATUS.read_text("ascii")
    except OSError:
        return None
    found = re.search(rf"^{field}:\s*(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None
