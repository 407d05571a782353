"""Say below a published table by which command it was made, when and where."""

from __future__ import annotations

import platform
import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from mha_parity.core.environment import cpu

MARK = "Made by "  # begins the line, the last one of a page
LIBRARIES = ("numpy", "torch")


def with_origin(page: str, command: str) -> str:
    """Return a page that is written now with its line: command, date, processor, versions."""
    today = datetime.now(UTC).date().isoformat()
    versions = [f"{name} {found}" for name in LIBRARIES if (found := _version(name))]
    where = ", ".join([cpu(), f"Python {platform.python_version()}", *versions])
    return f"{without_origin(page)}\n\n{MARK}`{command}` on {today}; {where}.\n"


def without_origin(page: str) -> str:
    """Return a page without that line, and without line breaks at its end."""
    return re.sub(rf"\n{MARK}.*\Z", "", page.rstrip("\n")).rstrip("\n")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
