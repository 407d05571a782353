"""Measure the harness itself: calibration, accuracy survey, mutation run, torch audit."""
