"""From a seed to arrays: which cases a run draws, their values and their memory layout."""
