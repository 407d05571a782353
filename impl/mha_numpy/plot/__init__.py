"""Heat maps of attention weights, one panel a head (needs matplotlib, the extra `plot`)."""

from __future__ import annotations

from mha_numpy.plot.heat_maps import attention_heads, specialised_heads
from mha_numpy.plot.simulated import simulated_heads

__all__ = ["attention_heads", "simulated_heads", "specialised_heads"]
