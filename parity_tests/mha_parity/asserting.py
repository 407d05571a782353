"""``judge``, ``assert_parity``, ``replay``: the command's work in a line of Python."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from mha_parity.again import again, named
from mha_parity.options import DEFAULT_TARGET, Options
from mha_parity.options import features as parsed_features
from mha_parity.verdict import Outcome

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mha_parity.candidate import Candidate
    from mha_parity.report.shown import Report
    from mha_parity.run import Progress
    from mha_parity.verdict import Verdict


def judge(
    candidate: object = DEFAULT_TARGET,
    *,
    convention: str | None = None,
    features: str | None = None,
    options: Options | None = None,
    **changes: object,
) -> Report:
    """Return the report on ``candidate``, whatever it says; a notebook shows it as a page.

    Arguments are those of ``assert_parity``. ``str()`` of the report is what the terminal shows,
    ``holds`` says whether parity holds, ``verdict`` has all that was found.

    Raises
    ------
        ValueError: the candidate cannot be called, or does not offer what was asked for.

    """
    from mha_parity.report.progress import progress
    from mha_parity.report.shown import Report, can_draw, console

    asked = _options(options, convention, features, {"draw": can_draw(), **changes})
    name = candidate if isinstance(candidate, str) else named(candidate)
    with progress(console(stderr=True), name) as tick:
        return Report(_judge(candidate, asked, tick))


def assert_parity(
    candidate: object = DEFAULT_TARGET,
    *,
    convention: str | None = None,
    features: str | None = None,
    options: Options | None = None,
    **changes: object,
) -> Verdict:
    """Assert that ``candidate`` computes what torch.nn.MultiheadAttention computes.

    ``candidate`` is a callable, a class, or the text of a target; a text runs in a process of its
    own, a callable here. ``convention`` says how it is called (default: recognised from its
    signature). ``features`` narrows the run, as in ``"attn=causal,bias=yes"``. Further keywords are
    fields of ``Options``: ``cases``, ``seed``, ``dtypes``, ``fully_masked``, ``max_times_torch``...

    Returns the verdict where parity holds.

    Raises
    ------
        AssertionError: parity does not hold or could not be judged; the message is the report.
        ValueError: the candidate cannot be called, or does not offer what was asked for.

    """
    __tracebackhide__ = True
    verdict = _judge(candidate, _options(options, convention, features, changes))
    if verdict.outcome is not Outcome.PASS:
        from mha_parity.report.shown import as_text

        raise AssertionError(as_text(verdict))
    return verdict


def replay(
    case: str,
    candidate: object = DEFAULT_TARGET,
    *,
    convention: str | None = None,
    pdb: bool = False,
    options: Options | None = None,
    **changes: object,
) -> None:
    """Print one case in full: inputs, the candidate's answer, torch's, and the difference.

    ``case`` is the id that a report prints. With ``pdb`` the debugger stops at the first line of
    the candidate. Other arguments are those of ``assert_parity``.

    Raises
    ------
        ValueError: the id is no case, or the candidate does not offer what the case needs.

    """
    from mha_parity import replaying
    from mha_parity.report.shown import console

    asked = _options(options, convention, None, changes)
    bound, name = _opened(candidate, replaying.here(asked) if pdb else asked)
    replaying.replay(case, bound, name, asked, console(), pdb=pdb)


def _judge(candidate: object, options: Options, progress: Progress | None = None) -> Verdict:
    from mha_parity.run import check

    bound, _ = _opened(candidate, options)
    with bound as ready:
        if isinstance(candidate, str):
            return check(ready, options, target=candidate, progress=progress)
        return check(ready, options, again=again(candidate, options), progress=progress)


def _opened(candidate: object, options: Options) -> tuple[AbstractContextManager[Candidate], str]:
    """Return the candidate, bound, and what to call it."""
    from mha_parity.opening import bound_here, opened

    if isinstance(candidate, str):
        return opened(candidate, options), candidate
    name = named(candidate)
    return nullcontext(bound_here(candidate, options, name)), name


def _options(
    options: Options | None,
    convention: str | None,
    narrowed: str | None,
    changes: dict[str, object],
) -> Options:
    import dataclasses

    known = {field.name for field in dataclasses.fields(Options)}
    unknown = sorted(set(changes) - known)
    if unknown:
        options_known = ", ".join(sorted(known))
        raise ValueError(f"got the option {unknown[0]!r}, but should be one of {options_known}.")
    given = dict(changes)
    if convention is not None:
        given["convention"] = convention
    if narrowed is not None:
        given["features"] = parsed_features(narrowed)
    return dataclasses.replace(options or Options(), **given)  # type: ignore[arg-type]  # vary in type
