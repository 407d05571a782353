"""Reports: each is made from a ``Verdict`` and from nothing else."""

from __future__ import annotations

__all__: list[str] = []
