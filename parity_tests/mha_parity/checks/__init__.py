"""Checks without a reference answer: metamorphic relations, conduct, dropout, rejection."""
