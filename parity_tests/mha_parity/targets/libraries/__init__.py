"""Layers of JAX and Keras that make their weights in a first call."""
