"""Checks without a reference answer: metamorphic relations, call effects, dropout, rejection."""
