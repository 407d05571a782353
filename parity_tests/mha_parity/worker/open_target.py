"""From the text of a target to a candidate that a run can ask."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mha_parity.candidate import Candidate
    from mha_parity.conduct import Watched
    from mha_parity.options import Options


def opened(target: str, options: Options) -> AbstractContextManager[Candidate]:
    """Return the target as a candidate: in a process of its own, or here if asked.

    Raises
    ------
        ValueError: there is no such target, or no convention fits it.

    """
    if options.in_process:
        from mha_parity import targets

        return nullcontext(bound_here(targets.load(target), options, target))
    from mha_parity import isolation

    return isolation.isolated(
        target,
        options.convention,
        timeout=options.timeout,
        memory=int(options.memory * isolation.GIB),
        forbid=options.forbid,
        device=options.device,
        path=options.path,
    )


def bound_here(subject: object, options: Options, label: str | None = None) -> Watched:
    """Return a function or class as a candidate in this process, its conduct watched all the same.

    Raises
    ------
        ValueError: no convention fits it.

    """
    from mha_parity import conventions
    from mha_parity.conduct import Watched

    bound = conventions.bind(
        subject, options.convention, device=options.device, label=label, path=options.path
    )
    return Watched(bound, forbid=options.forbid)
