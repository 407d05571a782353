"""Compare two versions of torch path by path: ``make torch-versions``; `data/torch-versions.md`.

``python -m mha_parity.selftest.torch_versions FILE`` holds the torch that is installed against the
one that answered FILE, recorded by ``mha-parity record torch.nn:MultiheadAttention``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mha_torch
from mha_parity.answers import answers_file
from mha_parity.core.environment import TORCH
from mha_parity.core.errors import UsageError
from mha_parity.oracle.torch_answers import using_record
from mha_parity.run.torch_changes import path_changes

HEAD = (
    "path",
    "cases",
    "equal to the bit",
    "within rounding",
    "beyond rounding",
    "taken by the newer alone",
    "taken by the older alone",
    "largest difference, of what is allowed",
)


def changes_table(file: str) -> str:
    """Return the table of what changed since a record, in Markdown.

    Raises
    ------
    ValueError
        The file cannot be read.

    """
    record = answers_file.read_record(file)
    with using_record(record):
        found = path_changes(record, record.problems)
    rows = [
        (
            each.path,
            str(each.equal + each.rounding + each.more),
            *(str(count) for count in (each.equal, each.rounding, each.more, each.new, each.gone)),
            f"{each.units:.2g}" if each.case else "",
        )
        for each in found
    ]
    then, now = record.environment.get(TORCH, "?"), mha_torch.describe()[TORCH]
    return f"torch {then} and {now}, {len(record.problems)} cases:\n\n{_table(rows)}\n"


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(words: list[str] | None = None) -> int:
    """Print the table, or write it where ``--markdown`` says; return 0, or 2 for no record."""
    parser = argparse.ArgumentParser(prog="python -m mha_parity.selftest.torch_versions")
    parser.add_argument("file", help="the recorded answers of another torch")
    parser.add_argument("--markdown", metavar="FILE", help="append the table to a file")
    asked = parser.parse_args(words)
    try:
        text = changes_table(asked.file)
    except UsageError as error:
        sys.stderr.write(f"torch_versions: {error}\n")
        return 2
    if asked.markdown:
        with Path(asked.markdown).open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
