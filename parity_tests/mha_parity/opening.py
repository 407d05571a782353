"""From the text of a target to a candidate that a run can ask."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mha_parity.candidate import Candidate
    from mha_parity.options import Options


def opened(target: str, options: Options) -> AbstractContextManager[Candidate]:
    """Return the target as a candidate: in a process of its own, or here if asked.

    Raises
    ------
        ValueError: there is no such target, or no convention fits it.

    """
    if options.in_process:
        from mha_parity import conventions, targets

        found = targets.load(target)
        bound = conventions.bind(
            found, options.convention, device=options.device, label=target, path=options.path
        )
        return nullcontext(bound)
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
