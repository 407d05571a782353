"""Axes of returned weights as documentation has them: `(heads, batch, L, S)`, `(N, H, S, L)`.

Torch's are (N, H, L, S). Others are read as documented where their shape is the documented one; a
shape that is neither is wrong.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mha_parity.targets.conventions.axis_words import HEADS, ROWS, SAMPLES
from mha_parity.targets.fit.documented_layout import documented_sentences

if TYPE_CHECKING:
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

TORCHS = "NHLS"
SAID = "returned weights were read with their documented axes, ({}); torch's are (N, H, L, S)."
# A switch too, as `return_weights`.
_OF_WEIGHTS = re.compile(
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
        for said in [_OF_WEIGHTS.search(sentence)]
        if said
        for each in _TUPLE.finditer(sentence)
    } - {""}
    return found.pop() if len(found) == 1 and TORCHS not in found else ""


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
            axes[axes.index(one)], axes[axes.index(one, axes.index(one) + 1)] = "L", "S"
            break
    return "".join(axes) if sorted(axes) == sorted(TORCHS) else ""


def in_torchs_order(problem: Problem, answer: Answer, documented: str) -> Answer:
    """Return an answer whose weights have the documented axes with torch's, and say it."""
    averaged = problem.case.weights == "averaged"
    axes, torchs = (each.replace("H" * averaged, "") for each in (documented, TORCHS))
    if problem.case.layout == "unbatched":  # which the one sample's axis was put in front of
        axes = "N" + axes.replace("N", "")
    sizes = dict(zip(TORCHS, problem.weights_shape, strict=True))
    weights = answer.weights
    if weights is None or weights.shape != tuple(sizes[axis] for axis in axes):
        return answer
    ordered = weights.transpose([axes.index(axis) for axis in torchs])
    said = SAID.format(", ".join(documented))
    return replace(answer, weights=ordered, remarks=tuple(dict.fromkeys((*answer.remarks, said))))
