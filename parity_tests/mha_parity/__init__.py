"""mha-parity: proves that a multi-head attention computes what torch's computes.

    from mha_parity import assert_parity

Loads neither numpy nor torch until something is asked for.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
