"""``mha-parity identify``: what an attention computes, measured by experiments alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.core.candidate import TargetError
from mha_parity.diagnose.identify import identify
from mha_parity.run.asked_cases import narrowed_candidate, restricted_offer
from mha_parity.targets.trials.fitted_target import Fitted
from mha_parity.targets.trials.refusals import NO_COUNTERPART
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    from mha_parity.core.identity_card import IdentityCard
    from mha_parity.core.options import Options

SECONDS = 60.0  # after which no experiment begins: a loop over all keys in Python takes hours


def identify_target(target: str, options: Options) -> IdentityCard:
    """Return the identity card of one target, within what the options leave of its offer.

    One that is refused, as torch's layer has no counterpart of a part of it, is measured all the
    same: by the call that comes nearest.

    Raises
    ------
    ValueError
        There is no such target, or the options leave nothing that it offers.

    """
    try:
        return _measured(target, options)
    except TargetError as refusal:
        if options.convention is not None or NO_COUNTERPART not in str(refusal):
            raise
        with suppress(TargetError):
            return _measured(target, replace(options, convention=Fitted.name))
        raise


def _measured(target: str, options: Options) -> IdentityCard:
    with opened(target, options) as candidate:
        offer = restricted_offer(candidate, options)
        return identify(narrowed_candidate(candidate, offer, options), target, SECONDS)
