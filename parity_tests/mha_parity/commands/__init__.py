"""Commands that need a run or the catalogue besides a report: replay, explain, list."""

from __future__ import annotations

__all__: list[str] = []
