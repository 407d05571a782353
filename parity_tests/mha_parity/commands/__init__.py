"""Commands that need a run or the catalogue besides a report: check, record, replay, explain."""

from __future__ import annotations

__all__: list[str] = []
