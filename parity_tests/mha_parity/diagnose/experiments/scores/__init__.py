"""Scores and weights: their scale, their function, terms that are added, keys left out."""
