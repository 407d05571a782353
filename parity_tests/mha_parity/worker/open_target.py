"""Open a target, given as text or as an object, as a candidate."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from mha_parity.core.errors import UsageError
from mha_parity.core.threads import in_one_thread
from mha_parity.targets.programs.command import EXEC

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.options import Options


def opened(target: str, options: Options) -> AbstractContextManager[Candidate]:
    """Return the target as a candidate: in a process of its own, or here if asked.

    Raises
    ------
    UsageError
        There is no such target, or no convention fits it.

    """
    if target.startswith(EXEC) and (options.in_process or options.forbid):
        raise UsageError(
            f"got {target}, a process of its own, which --in-process (or --pdb) and --forbid do "
            "not reach; leave them out."
        )
    if options.in_process:
        from mha_parity.targets import load

        return nullcontext(bind_in_process(load.load(target), options, target))
    from mha_parity.worker import client

    return client.isolated(
        target,
        options.convention,
        timeout=options.timeout,
        memory=int(options.memory * client.GIB),
        forbid=options.forbid,
        device=options.device,
        path=options.path,
        masks=options.masks,
        without=options.without,
        state_dict=options.state_dict,
        num_heads=options.num_heads,
    )


@in_one_thread()
def bind_in_process(
    subject: object, options: Options, label: str | None = None
) -> MonitoredCandidate:
    """Return a function or class as a candidate in this process, its calls checked as well.

    Raises
    ------
    UsageError
        No convention fits it.

    """
    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.targets.bind import bind

    bound = bind(
        subject, options.convention, device=options.device, label=label, path=options.path,
        masks=options.masks, without=options.without,
        state_dict=options.state_dict, num_heads=options.num_heads,
    )  # fmt: skip
    return MonitoredCandidate(bound, forbid=options.forbid)
