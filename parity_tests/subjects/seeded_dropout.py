"""Functions that drop where they get a seed, a generator, or are said to be in training."""

import torch

__all__ = ["by_generator", "by_seed", "by_seed_keeps_size", "in_training", "in_training_keeps_size"]


def _attend(q, k, v, p, generator, gain):
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
    if p > 0 and generator is not None:
        kept = torch.rand(weights.shape, generator=generator) >= p
        weights = weights * kept.to(weights.dtype) * gain
    return weights @ v


def _generator(seed):
    return None if seed is None else torch.Generator().manual_seed(seed)


def by_seed(q, k, v, dropout_p: float = 0.0, seed: int | None = None):
    """Attend over (N, H, L, D): right."""
    return _attend(q, k, v, dropout_p, _generator(seed), 1 / max(1 - dropout_p, 1e-9))


def by_seed_keeps_size(q, k, v, dropout_p: float = 0.0, seed: int | None = None):
    """Attend over (N, H, L, D), where kept weights stay as they are: wrong."""
    return _attend(q, k, v, dropout_p, _generator(seed), 1)


def by_generator(q, k, v, dropout_p: float = 0.0, generator=None):
    """Attend over (N, H, L, D): right."""
    return _attend(q, k, v, dropout_p, generator, 1 / max(1 - dropout_p, 1e-9))


def in_training(q, k, v, dropout_p: float = 0.0, training: bool = False):
    """Attend over (N, H, L, D): right."""
    drawn = torch.default_generator if training else None
    return _attend(q, k, v, dropout_p, drawn, 1 / max(1 - dropout_p, 1e-9))


def in_training_keeps_size(q, k, v, dropout_p: float = 0.0, training: bool = False):
    """Attend over (N, H, L, D), where kept weights stay as they are: wrong."""
    return _attend(q, k, v, dropout_p, torch.default_generator if training else None, 1)
