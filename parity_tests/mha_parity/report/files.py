"""Writes the reports that go into files: JSON, JUnit, a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.report.json_document import SCHEMA, document

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mha_parity.core.verdict import Verdict


def writable(names: Iterable[str | None]) -> None:
    """Make sure, before a long run, that its reports can be written.

    Raises
    ------
    ValueError
        A file lies in a folder that does not exist, or is a folder itself.

    """
    for name in names:
        if name is None:
            continue
        path = Path(name)
        if not path.parent.is_dir():
            raise ValueError(
                f"{name} cannot be written: there is no folder {path.parent}; make it."
            )
        if path.is_dir():
            raise ValueError(f"{name} is a folder, but should be a file; name a file in it.")


def write(
    verdicts: Sequence[Verdict],
    *,
    json: str | None = None,
    junit: str | None = None,
    html: str | None = None,
) -> list[str]:
    """Write the files that were asked for and return a line on each."""
    if json:
        _text(json, as_json(verdicts))
    if junit:
        from mha_parity.report import junit as xml

        _text(junit, xml.document(verdicts))
    if html:
        from mha_parity.report import html_page

        _text(html, html_page.document(verdicts))
    named = (("JSON", json), ("JUnit XML", junit), ("page", html))
    return [f"{what} written to {name}" for what, name in named if name]


def as_json(verdicts: Sequence[Verdict]) -> str:
    """Return one verdict's document, or several under ``runs``."""
    documents = [document(verdict) for verdict in verdicts]
    whole: Any = documents[0] if len(documents) == 1 else {"schema": SCHEMA, "runs": documents}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def _text(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
