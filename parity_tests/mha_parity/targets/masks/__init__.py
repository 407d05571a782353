"""Meanings of a target's mask parameters, found by small calls, and their use in cases."""
