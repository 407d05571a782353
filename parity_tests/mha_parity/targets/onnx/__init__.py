"""Exported models as targets."""
