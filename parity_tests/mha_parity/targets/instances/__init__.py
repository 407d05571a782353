"""Layers that are built already, and weights and sizes that a target brings along."""
