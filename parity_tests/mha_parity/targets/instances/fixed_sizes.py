"""Classes that have sizes by themselves: each problem that they are asked has these sizes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mha_parity.cases.fixed_sizes import fixed_sizes
from mha_parity.core.candidate import TargetError, without_place
from mha_parity.core.own_weights import OwnWeights
from mha_parity.targets.layers.sizes_in_code import sizes_in_code
from mha_parity.targets.trials.fitted_target import Fitted
from mha_parity.targets.trials.tile_multiples import OfMultiplesError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.targets.convention_base.convention import Convention


def at_own_sizes(subject: object, recognise: Callable[..., Convention]) -> Convention:
    """Return a subject as it is recognised, at its own sizes where these alone are served.

    Numbers in the code of a class are tried as its sizes where no others are served rightly: it is
    judged at those with which it computes attention, or with which it comes nearest to that.

    Raises
    ------
    TargetError
        It cannot be recognised.

    """
    try:
        found = recognise()
    except OfMultiplesError as error:
        return _of_multiples(error, recognise)
    except TargetError:
        near = _nearest(subject, recognise)
        if near is None:
            raise
        return near
    if isinstance(found, Fitted) and not found.fit.exact:
        near = _nearest(subject, recognise)
        if near is not None and _nearness(near) > _nearness(found):
            return near
    return found


def _of_multiples(error: OfMultiplesError, recognise: Callable[..., Convention]) -> Convention:
    """Return a target at the lengths that it takes.

    Raises
    ------
    TargetError
        It is not recognised at these either.

    """
    own = OwnWeights(
        arrays={}, features={}, sizes={}, places={}, multiple=error.multiple,
        beyond=without_place(error.raised),
    )  # fmt: skip
    with fixed_sizes({}, own.trial_multiple):
        found = recognise(name=Fitted.name)  # no other convention keeps to lengths
    found.own_weights = own
    return found


def _nearest(subject: object, recognise: Callable[..., Convention]) -> Fitted | None:
    """Return a class at the sizes in its code with which it is nearest to attention."""
    near: list[Fitted] = []
    for sizes in sizes_in_code(subject) if isinstance(subject, type) else ():
        with fixed_sizes(sizes):
            try:
                found = recognise()
            except TargetError:
                continue
        if isinstance(found, Fitted):
            asked = sizes | {"kv_heads_count": int(found.how.one_kv_head)}
            found.own_weights = OwnWeights(arrays={}, features={}, sizes=asked, places={})
            near.append(found)
            if found.fit.exact:
                break
    return max(near, key=_nearness, default=None)


def _nearness(bound: Fitted) -> tuple[bool, float]:
    return bound.fit.exact, bound.fit.correlation


@contextmanager
def asked_at_own_sizes(bound: Convention) -> Iterator[None]:
    """Context: problems have the sizes that a class has by itself; then its offer has these alone.

    Of a class that is built for any sizes nothing is changed.
    """
    own = bound.own_weights if isinstance(bound, Fitted) else None
    sizes, multiple = ({}, 1) if own is None else (own.sizes, own.trial_multiple)
    with fixed_sizes(sizes, multiple):
        yield
    if multiple > 1:
        sized = (each for each in bound.offer["size"] if each not in {"ones", "empty"})
        bound.offer = bound.offer | {"size": tuple(sized)}
    if not sizes:
        return
    heads, width = sizes["heads_count"], sizes.get("head_dim", 0)
    usual = ("medium", "ones", "equal" if heads == width else "small")
    bound.offer = bound.offer | {
        "heads": ("one" if heads == 1 else "many",),
        "size": ("ones",) if width == 1 else usual,
        "kv_heads": bound.offer["kv_heads"][:1],
    }
