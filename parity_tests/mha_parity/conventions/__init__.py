"""The ways in which attentions are called, and ``bind``: somebody's attention as a candidate."""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity import adapters
from mha_parity.conventions.functions import QKV, QKVHeads, XWeights, XWeightsHeads
from mha_parity.conventions.modules import ModuleMask, ModuleValidLens
from mha_parity.conventions.projections import Projections
from mha_parity.conventions.sdpa import SDPA
from mha_parity.conventions.torch_module import TorchModule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.conventions.base import Convention

KNOWN: Mapping[str, type[Convention]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            QKVHeads, XWeightsHeads, QKV, XWeights, Projections, ModuleValidLens, ModuleMask,
            TorchModule, SDPA,
        )
    }  # fmt: skip
)

__all__ = ["KNOWN", "bind", "named"]


def named(name: str) -> type[Convention]:
    """Return the convention called ``name``.

    Raises
    ------
    ValueError
        There is none of that name.

    """
    if name in KNOWN:
        return KNOWN[name]
    close = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(KNOWN)}."
    raise ValueError(f"got the convention {name!r}, but there is no such one; {hint}")


def bind(
    subject: object,
    name: str | None = None,
    *,
    device: str = "cpu",
    path: str | None = None,
    label: str | None = None,
    probe: bool = True,
) -> Convention:
    """Return ``subject`` as a candidate called by the convention ``name`` (None: recognised).

    ``path`` sends torch's own module along one of its paths. ``probe`` makes a few small calls to
    see what it offers; without it the signature alone decides.

    Raises
    ------
    ValueError
        The convention is unknown, or cannot be recognised.

    """
    kind = named(name or "")
    library = next(adapters.candidates_for(subject))
    bound = kind(subject, library=adapters.library(library, device), path=path)
    bound.name = label or bound.name
    if probe:
        from mha_parity.conventions.probing import settle

        settle(bound)
    return bound
