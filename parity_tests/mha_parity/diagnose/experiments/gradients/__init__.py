"""Gradients: factor and residual of each, and the term that is wrong."""
