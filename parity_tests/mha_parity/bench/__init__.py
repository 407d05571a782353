"""Time attentions against torch's: each in its own process, judged first, timed in rounds.

tasks, task_arrays, array_files, worker (calls), client, judge, timing, results, reports
"""

from __future__ import annotations

__all__: list[str] = []
