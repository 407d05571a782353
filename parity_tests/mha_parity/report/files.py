"""Writes the reports that go into files: JSON, JUnit, a page, Markdown, SARIF."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.report import github, junit, markdown, sarif
from mha_parity.report.json_document import SCHEMA, refusal, verdict_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mha_parity.core.verdict import Refusal, Verdict

    Make = Callable[[Sequence[Verdict], Sequence[Refusal]], str]


def require_writable_files(names: Iterable[str | None]) -> None:
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


def write_reports(
    verdicts: Sequence[Verdict],
    names: Mapping[str, str | None],
    refused: Sequence[Refusal] = (),
) -> list[str]:
    """Write the files that were asked for, by format, and return a line on each.

    Targets that were refused stand in them behind the verdicts.
    """
    return [
        write_text(TITLES[kind], name, MAKE[kind](verdicts, refused))
        for kind, name in names.items()
        if name
    ]


def write_text(title: str, name: str, text: str) -> str:
    """Write one file and return a line on it."""
    Path(name).write_text(text, encoding="utf-8")
    return f"{title} written to {name}"


def append_summary(verdicts: Sequence[Verdict], refused: Sequence[Refusal] = ()) -> None:
    """Append the Markdown to the summary of a step of GitHub Actions, where one runs."""
    name = os.environ.get(github.SUMMARY)
    if name:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(markdown.document(verdicts, refused))


def as_json(verdicts: Sequence[Verdict], refused: Sequence[Refusal] = ()) -> str:
    """Return one verdict's document, or several under ``runs``."""
    documents = [*map(verdict_document, verdicts), *map(refusal, refused)]
    whole: Any = documents[0] if len(documents) == 1 else {"schema": SCHEMA, "runs": documents}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def _page(verdicts: Sequence[Verdict], refused: Sequence[Refusal]) -> str:
    from mha_parity.report import html_page

    return html_page.document(verdicts, refused=refused)


TITLES = {
    "json": "JSON", "junit": "JUnit XML", "html": "page", "markdown": "Markdown", "sarif": "SARIF",
}  # fmt: skip
MAKE: Mapping[str, Make] = {
    "json": as_json,
    "junit": junit.document,
    "html": _page,
    "markdown": markdown.document,
    "sarif": sarif.document,
}
