"""Views of a notebook: the page in a frame, the picture of one case, the progress of a run."""

from __future__ import annotations

import html
import io
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mha_parity.report import terminal
from mha_parity.report.progress import error_console

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.report_arrays import WeightsPicture
    from mha_parity.core.verdict import Verdict

WIDTH = 88  # columns of the text where there is no window; a page of documentation shows as many
MAX_WIDTH = 100
HEIGHT = 620  # pixels of the frame where no script runs; the page's script fits it to the page
NEEDED = ("jinja2", "matplotlib")  # for the page


def in_iframe(verdict: Verdict) -> str | None:
    """Return the page in a frame of its own, so that no style leaks; None without NEEDED."""
    if not can_draw():
        return None
    from mha_parity.report import html_page

    return _framed(html_page.document([verdict]), verdict.sentence)


def _framed(document: str, title: str) -> str:
    return (
        f'<iframe srcdoc="{html.escape(document, quote=True)}" '
        f'title="{html.escape(title, quote=True)}" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )


def picture_display() -> Callable[[WeightsPicture], None] | None:
    """Return a function that shows a picture in the output of a cell; None without a notebook."""
    if not (_in_a_cell() and can_draw()):
        return None

    def show(picture: WeightsPicture) -> None:
        from IPython.display import display

        from mha_parity.report import html_page

        framed = _framed(html_page.document(pictures=[picture]), picture.case.id)
        display({"text/html": framed, "text/plain": ""}, raw=True)

    return show


def status_line() -> Callable[[str], None] | None:
    """Return a function that replaces one line of a cell's output; None without a notebook."""
    if not _in_a_cell():
        return None
    from IPython.display import display

    shown: list[Any] = []  # the line, once there is one

    def show(text: str) -> None:
        line = {"text/plain": text, "text/html": html.escape(text)}
        if shown:
            shown[0].update(line, raw=True)
        elif text:
            shown.append(display(line, raw=True, display_id=True))

    return show


def _in_a_cell() -> bool:
    """Whether a notebook's kernel shows what is displayed here."""
    if not Console().is_jupyter or find_spec("IPython") is None:
        return False
    from IPython import get_ipython

    return get_ipython() is not None


def can_draw() -> bool:
    """Whether the page can be made here: the extra `report` brings what it needs."""
    return all(find_spec(name) is not None for name in NEEDED)


def console(*, stderr: bool = False) -> Console:
    """Return where to print from Python; in a notebook, whose streams claim to be terminals, plain.

    There rich would show each line as an output of its own, and cursors move nowhere.
    """
    usual = error_console() if stderr else Console()
    if not usual.is_jupyter:
        return usual
    return Console(stderr=stderr, force_jupyter=False, force_terminal=False)


def as_text(verdict: Verdict, *, verbose: bool = False) -> str:
    """Return the terminal's report without colours, as wide as the window."""
    text = io.StringIO()
    width = min(shutil.get_terminal_size((WIDTH, 0)).columns, MAX_WIDTH)
    plain = Console(file=text, width=width, color_system=None, force_jupyter=False)
    terminal.print_verdict(verdict, plain, verbose=verbose)
    return text.getvalue()
