"""Experiments on a target: each a small design of calls, with what it says in one sentence."""
