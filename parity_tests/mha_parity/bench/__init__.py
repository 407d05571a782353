"""The benchmark: contenders in turn, each judged before it is timed, ratios with intervals.

sizes -> posing -> shelf -> worker (stands) -> booth -> judging -> contest -> results -> reports
"""

from __future__ import annotations

__all__: list[str] = []
