"""The verdict in a notebook, as the page in a frame, and as text where there is no page."""

from __future__ import annotations

import html
import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.console import Console

from mha_parity.report import terminal

if TYPE_CHECKING:
    from mha_parity.core.verdict import Verdict

WIDTH = 100  # columns of the text
HEIGHT = 620  # pixels that a notebook gives the page, which scrolls
NEEDED = ("jinja2", "matplotlib")  # for the page


def frame(verdict: Verdict) -> str | None:
    """Return the page in a frame of its own, so that no style leaks; None without NEEDED."""
    if not can_draw():
        return None
    from mha_parity.report import html_page

    document = html.escape(html_page.document([verdict]), quote=True)
    return (
        f'<iframe srcdoc="{document}" title="{html.escape(verdict.sentence, quote=True)}" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )


def can_draw() -> bool:
    """Whether the page can be made here: the extra `report` brings what it needs."""
    return all(find_spec(name) is not None for name in NEEDED)


def console(*, stderr: bool = False) -> Console:
    """Return where to print from Python; in a notebook, whose streams claim to be terminals, plain.

    There rich would show each line as an output of its own, and cursors move nowhere.
    """
    usual = Console(stderr=stderr)
    if not usual.is_jupyter:
        return usual
    return Console(stderr=stderr, force_jupyter=False, force_terminal=False)


def as_text(verdict: Verdict, *, verbose: bool = False) -> str:
    """Return the terminal's report without colours."""
    text = io.StringIO()
    plain = Console(file=text, width=WIDTH, color_system=None, force_jupyter=False)
    terminal.show(verdict, plain, verbose=verbose)
    return text.getvalue()
