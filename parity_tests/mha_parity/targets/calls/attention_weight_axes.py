"""Axes of returned weights as documentation has them: `(heads, batch, L, S)`, `(N, H, S, L)`.

Torch's are (N, H, L, S). Others are read as documented where their shape is the documented one; a
shape that is neither is wrong.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from mha_parity.targets.calls.canonical_layout import WEIGHTS_AXES
from mha_parity.targets.static.axis_words import HEADS, ROWS, SAMPLES
from mha_parity.targets.static.documented_layout import documented_sentences

# A switch too, as `return_weights`.
_SAYS_WEIGHTS = re.compile(
    r"(?:\b|_)(?:weights?|probs?|probabilities|attention|attn|maps?)\b", re.IGNORECASE
)
_TUPLE = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
_KEYS = (
    r"(?:(?:n|num|max)_?)?(?:s|src|source|k|kv|keys?|mem|memory)(?:_?(?:len(?:gth)?|tokens|seq))?"
    r"|(?:seq_?)?len(?:gth)?_?(?:k|kv|s)|seq_?(?:k|kv)"
)
_QUERIES = r"(?:n_?)?(?:tgt|target|q|quer(?:y|ies))"
_AXES = {
    "N": re.compile(SAMPLES, re.IGNORECASE),
    "S": re.compile(_KEYS, re.IGNORECASE),
    "H": re.compile(HEADS, re.IGNORECASE),
    "L": re.compile(f"{ROWS}|{_QUERIES}", re.IGNORECASE),
}


def documented_weights(subject: Any) -> str:
    """Return the axes of the weights of all heads by documentation, as "HNLS"; "" for torch's.

    Also "" where no tuple of four names them, or several do, each otherwise.
    """
    found = {
        _axes(each[1].split(","))
        for sentence in documented_sentences(subject)
        for said in [_SAYS_WEIGHTS.search(sentence)]
        if said
        for each in _TUPLE.finditer(sentence)
    } - {""}
    return found.pop() if len(found) == 1 and WEIGHTS_AXES not in found else ""


def _axes(words: list[str]) -> str:
    """Return the axes that the words of a tuple mean, "" unless each is there once.

    Of two lengths of one name the first is that of the queries.
    """
    said = [each.strip().lower() for each in words]
    n = "L" if any(map(_AXES["N"].fullmatch, said)) else "N"  # tokens behind `batch`
    axes = [
        n if word == "n" else next((a for a, known in _AXES.items() if known.fullmatch(word)), "")
        for word in said
    ]
    for one, other in itertools.permutations("LS"):
        if axes.count(one) == 2 and other not in axes:
            first = axes.index(one)
            axes[first], axes[axes.index(one, first + 1)] = "L", "S"
            break
    return "".join(axes) if sorted(axes) == sorted(WEIGHTS_AXES) else ""
