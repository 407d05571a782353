"""The ways in which attentions are called, and ``bind``: somebody's attention as a candidate."""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity import adapters
from mha_parity.conventions.functions import (
    QKV,
    QKVHeads,
    XWeights,
    XWeightsHeads,
    XWeightsOutHeads,
)
from mha_parity.conventions.jax_attention import JaxAttention
from mha_parity.conventions.keras_layer import KerasLayer
from mha_parity.conventions.linear_module import LinearModule
from mha_parity.conventions.modules import ModuleMask, ModuleValidLens
from mha_parity.conventions.probing import accepts, settle, unproved
from mha_parity.conventions.projections import Projections
from mha_parity.conventions.sdpa import SDPA
from mha_parity.conventions.torch_module import TorchModule
from mha_parity.global_state import GlobalState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.adapters.library import Library
    from mha_parity.conventions.base import Convention

_KINDS: tuple[type[Convention], ...] = (
    QKVHeads, XWeightsHeads, XWeightsOutHeads, QKV, XWeights, Projections,
    ModuleValidLens, ModuleMask, TorchModule, LinearModule, SDPA, JaxAttention, KerasLayer,
)  # fmt: skip
KNOWN: Mapping[str, type[Convention]] = MappingProxyType({kind.name: kind for kind in _KINDS})

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
    state = GlobalState.now()
    try:
        return _bound(subject, name, device, path, label, call=probe)
    finally:
        state.restore()


def _bound(
    subject: object,
    name: str | None,
    device: str,
    path: str | None,
    label: str | None,
    *,
    call: bool,
) -> Convention:
    libraries = [adapters.library(each, device) for each in adapters.candidates_for(subject)]
    if device != "cpu" and all(each.name == "numpy" for each in libraries):
        raise ValueError(
            f"got the device {device!r}, but the target takes NumPy's arrays, which lie on the "
            "CPU; leave --device out."
        )
    if name is None:
        from mha_parity.recognise import recognise

        name = recognise(subject, libraries, call=call)
    kind = named(name)
    bound = _in_its_library(kind, subject, libraries, path, call=call)
    bound.name = label or bound.name
    (settle if call else unproved)(bound)
    return bound


def _in_its_library(
    kind: type[Convention],
    subject: object,
    libraries: list[Library],
    path: str | None,
    *,
    call: bool,
) -> Convention:
    """Return the subject bound with the first library's arrays that it accepts, or the first."""
    bound = [kind(subject, library=library, path=path) for library in libraries]
    if call and len(bound) > 1:
        bound.sort(key=lambda each: not accepts(each, each.plain_case()).offered)
    return bound[0]
