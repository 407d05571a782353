"""``judge``, ``assert_parity``, ``replay``: the command's work as Python functions."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.core import verdict as core
from mha_parity.core.errors import UsageError
from mha_parity.core.option_flags import with_keywords
from mha_parity.core.options import DEFAULT_TARGET, OptionKeywords, Options
from mha_parity.run.repro import display_name, replay_lines_of

if TYPE_CHECKING:
    import os
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager
    from typing import Unpack

    from mha_parity.core.candidate import Candidate
    from mha_parity.run.check import Progress


class Verdict(core.Verdict):
    """All that a run found out about one target; text, a page and JSON are made from it.

    ``bool(verdict)`` and ``holds`` say whether parity holds, ``failures`` and ``diagnosis`` where
    it does not and why. ``str(verdict)`` is the terminal's report; a notebook shows the page.

    Attributes
    ----------
    target, convention : str
        What was judged, and how it was called.
    outcome : Outcome
        ``"pass"``, ``"fail"`` or ``"inconclusive"``, with its ``exit_status``.
    run, passed, failed, inconclusive : int
        Numbers of cases.
    features : tuple of FeatureRow
        Each feature with its status, its cases, and how many of these fail.
    parameters : tuple of Parameter
        The target's parameters, each with whether some case passed it.
    checks : tuple of CheckRow
        Each check with how many cases it judged, and how many of these fail.
    failures : tuple of Failure
        One for each check and severity: what it found, the smallest case, the line that replays it.
    diagnosis : tuple of Diagnosis
        The bug's name, evidence and remedy, or what was measured where no name fits.
    accuracy : tuple of Accuracy
        Errors in units of torch's own, by dtype.
    worst : CheckResult or None
        The largest error next to what is allowed.
    notes : tuple of str
        What else there is to know: limits of the target, and of the run.
    source : Source or None
        File and line of the definition.
    environment : dict of str
        Versions, platform and device.
    seconds : float
        How long the run took.

    """

    def __str__(self) -> str:
        """Return the terminal's report without colours."""
        from mha_parity.report.notebook_view import as_text

        return as_text(self)

    def _repr_html_(self) -> str | None:
        """Return the page in a frame of its own; None without the extra ``report``."""
        from mha_parity.report.notebook_view import in_iframe

        return in_iframe(self)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page, one self-contained file; the extra ``report`` has what this needs."""
        from mha_parity.report import html_page

        Path(path).write_text(html_page.document([self]), encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Return the document that ``mha-parity check --json`` writes."""
        from mha_parity.report.json_document import verdict_document

        return verdict_document(self)


def judge(
    target: object = DEFAULT_TARGET,
    *,
    options: Options | None = None,
    executor: Executor | None = None,
    **keywords: Unpack[OptionKeywords],
) -> Verdict:
    """Return the verdict on a target: holds, does not hold, or inconclusive.

    Parameters
    ----------
    target
        A function, a class, or the text of a target, as for the command: a file that defines one
        function or class needs no name. Text runs in a process of its own; an object runs in this
        one, where ``timeout`` and ``memory`` cannot be kept and are refused.
    options
        Options of the run; the keywords below change single fields.
    executor
        Where the cases run, for a target given as text: any executor of ``concurrent.futures``
        whose workers can import it, such as ``dask.distributed.Client(address).get_executor()``.
        Default: processes of this machine, as many as ``jobs`` says.
    **keywords
        Fields of ``Options``: ``cases=200``, ``features="attn=causal,bias=yes"``,
        ``dtypes="float32"``, ``convention="qkv-heads"``, ``seed``, ``fully_masked``,
        ``max_times_torch``, ``grad``, ``forbid``, ``timeout``, ``memory``, ``device``, ``jobs``.

    Raises
    ------
    UsageError
        The target cannot be called or does not offer a named feature, a keyword is wrong, or the
        executor cannot open the target.

    """
    from mha_parity.report.notebook_view import can_draw, console, status_line
    from mha_parity.report.progress import progress

    asked = with_keywords(options or Options(draw=can_draw()), keywords)
    target = _named(target)
    name = target if isinstance(target, str) else display_name(target)
    with progress(console(stderr=True), name, status=status_line()) as tick:
        return _judge(target, asked, tick, executor)


def assert_parity(
    target: object = DEFAULT_TARGET,
    *,
    options: Options | None = None,
    **keywords: Unpack[OptionKeywords],
) -> Verdict:
    """Assert that a target computes what torch.nn.MultiheadAttention computes.

    Returns the verdict where parity holds. An inconclusive run fails.

    Parameters
    ----------
    target
        A function, a class, or the text of a target. Text runs in a process of its own.
    options
        Options of the run; the keywords below change single fields.
    **keywords
        Fields of ``Options``, as for ``judge``.

    Raises
    ------
    AssertionError
        Parity does not hold, or the run is inconclusive. The first line of the message is the
        sentence and the bug; the attribute ``verdict`` is the verdict.
    UsageError
        The target cannot be called or does not offer a named feature, or a keyword is wrong.

    """
    __tracebackhide__ = True
    verdict = _judge(_named(target), with_keywords(options or Options(), keywords))
    if not verdict.holds:
        raise ParityError(verdict)
    return verdict


class ParityError(AssertionError):
    """Parity does not hold, or the run is inconclusive; ``verdict`` has all that was found."""

    __module__ = "mha_parity"  # what pytest prints before the message

    def __init__(self, verdict: core.Verdict) -> None:
        """Make the message: at most 25 lines."""
        from mha_parity.report.brief import brief

        super().__init__(brief(verdict))
        self.verdict = verdict


def replay(
    case: str,
    target: object = DEFAULT_TARGET,
    *,
    pdb: bool = False,
    options: Options | None = None,
    **keywords: Unpack[OptionKeywords],
) -> None:
    """Print one case: inputs, the target's output, torch's output, and their difference.

    A notebook shows the attention weights next to torch's as well.

    Parameters
    ----------
    case
        The id of the case, as a report prints it.
    target
        A function, a class, or the text of a target.
    pdb
        Stop in the debugger at the first line of the target.
    options
        Options of the run; the keywords below change single fields.
    **keywords
        Fields of ``Options``, as for ``judge``.

    Raises
    ------
    UsageError
        The id is no case, the target does not offer what the case needs, or a keyword is wrong.

    """
    from mha_parity.commands import replay as replaying
    from mha_parity.report.notebook_view import console, picture_display

    if not isinstance(case, str):
        raise UsageError(
            f"got {case!r:.60} for the id of a case, but should be a text as a report prints it; "
            "pass replay(case, target)."
        )
    asked = with_keywords(options or Options(), keywords)
    bound, name = _opened(_named(target), replaying.in_process(asked) if pdb else asked)
    display = picture_display()
    replaying.replay(case, bound, name, asked, console(), pdb=pdb, display=display)


def _named(target: object) -> object:
    """Return a target; the text of a file that defines one function or class gets its name."""
    from mha_parity.targets.loading.default_target import with_only_name

    return with_only_name(target) if isinstance(target, str) else target


def _judge(
    target: object,
    options: Options,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Verdict:
    from mha_parity.run.check import check

    name = target if isinstance(target, str) else None
    repro = None if name else replay_lines_of(target, options)
    bound, _ = _opened(target, options)
    with bound as ready:
        found = check(
            ready, options, target=name, repro=repro, progress=progress, executor=executor
        )
    return Verdict(**{each.name: getattr(found, each.name) for each in dataclasses.fields(found)})


def _opened(target: object, options: Options) -> tuple[AbstractContextManager[Candidate], str]:
    """Return the target as a candidate, and what to call it."""
    from mha_parity.worker.open_target import bind_in_process, opened

    if isinstance(target, str):
        return opened(target, options), target
    for limit in ("timeout", "memory"):
        if getattr(options, limit) != getattr(Options(), limit):
            raise UsageError(
                f"got {limit}={getattr(options, limit):g}, but an object is judged in this "
                "process, where no call can be ended; name the target by its text, or leave "
                f"{limit} out."
            )
    name = display_name(target)
    return nullcontext(bind_in_process(target, options, name)), name
