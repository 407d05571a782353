"""The reference answer in float64, and bounds on how far rounding may move any answer from it."""
