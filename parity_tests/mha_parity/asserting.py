"""``assert_parity``: one line of a test that judges somebody's attention."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from mha_parity.options import DEFAULT_TARGET, Options
from mha_parity.options import features as parsed_features
from mha_parity.verdict import Outcome

if TYPE_CHECKING:
    from mha_parity.verdict import Verdict

WIDTH = 100  # of the report inside an assertion's message


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
        raise AssertionError(as_text(verdict))
    return verdict


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


def _judge(candidate: object, options: Options) -> Verdict:
    from mha_parity.opening import bound_here, opened
    from mha_parity.run import check

    if isinstance(candidate, str):
        with opened(candidate, options) as bound:
            return check(bound, options, target=candidate)
    return check(bound_here(candidate, options), options)


def as_text(verdict: Verdict) -> str:
    """Return the terminal's report without colours."""
    from mha_parity.report import terminal

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    terminal.show(verdict, console)
    stream = console.file
    return stream.getvalue() if isinstance(stream, io.StringIO) else ""
