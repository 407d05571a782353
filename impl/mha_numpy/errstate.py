"""NaN and infinity pass through in silence, as in torch."""

from __future__ import annotations

import numpy as np

quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore")
"""Decorator of every public function that computes.

Infinite and missing numbers in the inputs, hidden rows and values past a dtype's range are part of
the answer here; the caller's own error state is restored afterwards. As a decorator it costs a
third of what a `with` block does.
"""
