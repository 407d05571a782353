"""Find tables that a page shows as running text, because what rendered it knows no tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils.nodes import document
    from sphinx.application import Sphinx

# Typography makes dashes of two and three hyphens.
RULE = re.compile(r"\|[ \t]*:?(?:-{2,}|[–—]+):?[ \t]*\|")


def is_raw_table(text: str) -> bool:
    """Return whether a paragraph has the rule below a table's head, which no reader should see."""
    return RULE.search(text) is not None


def warn_of_raw_tables(app: Sphinx, doctree: document, name: str) -> None:
    """Warn of each raw table of a page; ``make docs`` fails on a warning."""
    from docutils.nodes import paragraph
    from sphinx.util import logging

    del app
    for each in doctree.findall(paragraph):
        if is_raw_table(each.astext()):
            first = each.astext().splitlines()[0]
            logging.getLogger(__name__).warning(
                "a table is shown as text: %s", first, location=name
            )
