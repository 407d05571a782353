"""Writes the reports that go into files: JSON, JUnit, a page, Markdown, SARIF."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mha_parity.core.errors import UsageError
from mha_parity.report import github, junit, markdown, sarif
from mha_parity.report.json_document import SCHEMA, refusal, verdict_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mha_parity.core.verdict import Refusal, Verdict

    Make = Callable[[Sequence[Verdict], Sequence[Refusal]], str]


ANOTHER = "name another file"


class Written(NamedTuple):
    """A line on each report that was written, and a sentence on each that could not be."""

    lines: tuple[str, ...]
    lost: tuple[str, ...]


def require_writable_files(names: Iterable[str | None]) -> None:
    """Make sure, before a long run, that its reports can be written.

    Raises
    ------
    UsageError
        A file lies in a folder that does not exist, is a folder itself, may not be written, or is
        named twice.

    """
    seen: set[Path] = set()
    for name in names:
        if name is None:
            continue
        path = Path(name)
        if path.resolve() in seen:
            raise UsageError(f"got {name} for two reports; name a file for each.")
        seen.add(path.resolve())
        if not path.parent.is_dir():
            raise UsageError(
                f"{name} cannot be written: there is no folder {path.parent}; make it."
            )
        if path.is_dir():
            raise UsageError(f"{name} is a folder, but should be a file; name a file in it.")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"{name} cannot be written: {os.strerror(errno.EACCES)}; {ANOTHER}.")


def write_reports(
    verdicts: Sequence[Verdict],
    names: Mapping[str, str | None],
    refused: Sequence[Refusal] = (),
) -> Written:
    """Write the files that were asked for, by format; return a line on each that is written.

    Targets that were refused stand in them behind the verdicts.
    """
    written, lost = [], []
    for kind, name in names.items():
        if not name:
            continue
        text = MAKE[kind](verdicts, refused)
        try:
            written.append(write_text(TITLES[kind], name, text))
        except UsageError as error:
            lost.append(str(error))
    return Written(tuple(written), tuple(lost))


def write_text(title: str, name: str, text: str) -> str:
    """Write one file and return a line on it.

    Raises
    ------
    UsageError
        The system does not let it be written: no room is left, say.

    """
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error.strerror}; {ANOTHER}.") from None
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
