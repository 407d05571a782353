"""Features that a target has to offer to be timed beside torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.bench.client import UnableError, WorkerClient
from mha_parity.bench.contenders import target_contender
from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from mha_parity.bench.timing import BenchSettings
    from mha_parity.core.features import Offer


def target_offer(settings: BenchSettings) -> Offer:
    """Return what the target of a run offers.

    Raises
    ------
    UsageError
        It cannot be loaded, or takes no projected inputs, where these are asked for.

    """
    text = settings.text
    assert text is not None  # noqa: S101  (asked of runs with a target)
    contender = target_contender(text)
    client = WorkerClient(
        contender, threads=settings.threads, text=text, convention=settings.convention
    )
    with client:
        try:
            offer = client.opened().offer
        except UnableError as why:
            raise UsageError(str(why)) from None
    assert offer is not None  # noqa: S101  (a target has one)
    if settings.projected and "qkv" not in offer["form"]:
        raise UsageError(
            f"the target {text!r} is a whole layer, but --projected times attention on projected "
            "inputs; leave it out."
        )
    return offer
