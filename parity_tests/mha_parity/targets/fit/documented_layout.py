"""What the documentation of a class says of the order of axes: samples before rows, or behind.

Attention over the first axis is what torch's layer computes by default. Where the documentation
says that samples come first, it is a mistake: `batch_first=True` is missing.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from mha_parity.targets.conventions.signatures import forward

_SAMPLES = r"(?:mini_?)?(?:batch(?:es)?(?:_?size)?|bsz?|b)"
_ROWS = (
    r"(?:(?:n|num|max)_)?(?:seq(?:uence)?s?(?:_?len(?:gth)?)?|(?:q|tgt|src|target|source)?_?len(?:gth)?"
    r"|time(?:_?steps?)?|tokens?|l|t|s)(?:_?q)?"
)
_REST = r"\s*,\s*[^,()\[\]]+[)\]]"


def _tuple_of(first: str, second: str) -> str:
    return rf"[(\[]\s*{first}\s*,\s*{second}{_REST}"


# N is the samples before L, and the tokens behind B.
_SAMPLES_FIRST = re.compile(
    f"{_tuple_of(_SAMPLES, f'(?:{_ROWS}|n)')}|{_tuple_of('n', _ROWS)}", re.IGNORECASE
)
_ROWS_FIRST = re.compile(
    f"{_tuple_of(f'(?:{_ROWS}|n)', _SAMPLES)}|{_tuple_of(_ROWS, 'n')}", re.IGNORECASE
)
SAMPLES_FIRST = "its documentation says that samples come first: no other order of axes was tried."


def documents_samples_first(kind: Any) -> bool:
    """Return whether a class documents rows (samples, rows, width), and no other order."""
    documented = (kind, getattr(kind, "__init__", None), forward(kind))
    text = "\n".join(inspect.getdoc(each) or "" for each in documented)
    return bool(_SAMPLES_FIRST.search(text)) and not _ROWS_FIRST.search(text)
