"""Shapes that the documentation of a target says of its masks, by the words of their axes."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from mha_parity.targets.calls.mask_format import SHAPES
from mha_parity.targets.masks.documented_meaning import said_by_both
from mha_parity.targets.static.annotated_axes import annotated_axes
from mha_parity.targets.static.axis_words import HEADS, ROWS, SAMPLES
from mha_parity.targets.static.documented_layout import documentation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.calls.mask_format import Axes

# What a sentence says that a parameter is: "bias is None or a tensor of exactly (L, S)".
_SENTENCE = r"(?<![\w.])[`*]*{name}[`*]* (?:is|are|may be|must be|has to be) ([^.;:]*)"
_TUPLE = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
# What stands between two shapes of which either is taken.
_OR = re.compile(
    r"\s*(for (all|every|each)( \w+)?)?\s*(,|/|or|and)+"
    r"\s*(or|a|of|shape|broadcastable|broadcasts|to|\s)*",
    re.IGNORECASE,
)
# Axes by their words; the last lengths are those of keys, others those of queries.
_AXES = (
    ("1", re.compile("1")),
    ("NH", re.compile(rf"({SAMPLES}|n)\s*\*\s*({HEADS}|h)", re.IGNORECASE)),
    ("N", re.compile(SAMPLES, re.IGNORECASE)),
    ("H", re.compile(HEADS, re.IGNORECASE)),
    (
        "L",
        re.compile(
            rf"{ROWS}|[lts]_?[qk]|[qk]|(?:n|num)_?(?:[qkls]|quer(?:y|ies)|keys?|context|ctx)|(?:from|to)_?seq\w*",
            re.IGNORECASE,
        ),
    ),
)
# What is said of a shape that is made within the call, or of the scores.
_WITHIN = re.compile(
    r"\b(expand|unsqueez|broadcast|reshap|turn|view|convert|becom|made|scores?|logits|inside|within"
    r"|internal)",
    re.IGNORECASE,
)
# But not what is said of the shapes that callers may pass.
_OF_CALLERS = re.compile(
    r"\b(add(ed|s|itive)?|appl(y|ies|ied)) to (\w+ ){0,2}(scores?|logits)\b"
    r"|\bbroadcastable to(?=\s?[(\[])",
    re.IGNORECASE,
)
_ANY_BEFORE = re.compile(r"(?<=broadcastable to )([(\[])\.\.\.,\s*", re.IGNORECASE)
# That keys come before queries, in words or in the order of a tuple.
_KEYS_FIRST = re.compile(
    r"\b(keys?|context|memory|source|kv)\b[\w ]{0,12}\bfirst\b"
    r"|\b(S|(n_|num_)?keys?|(k|kv|key|src|source|context)_?(len\w*|rows)), ?"
    r"(L|(n_|num_)?quer(y|ies)|(q|query|tgt|target)_?(len\w*|rows))\b[^,\w]",
)
# What is said of the shapes that a mask has most often.
_TYPICAL = re.compile(
    r"\b(?:typical|usual|common|possible|accepted|allowed) shapes (?:are|may be)\b([^.;]*)",
    re.IGNORECASE,
)


def documents_keys_first(subject: Any, name: str) -> bool:
    """Return whether the documentation of a mask says that its keys come before its queries."""
    paragraphs = re.split(r"\n\s*\n", documentation(subject))
    named = (each for each in paragraphs if re.search(rf"\b{re.escape(name)}\b", each))
    return any(_KEYS_FIRST.search(" ".join(each.split())) for each in named)


def documented_shapes(subject: Any, entry: Any, name: str) -> tuple[Axes, ...]:
    """Return the shapes that the documentation says of a mask, as far as its words are known.

    The first one, and those that follow it behind an "or"; of an entry, or of a sentence that says
    what the mask is. And those that a sentence of its paragraph says to be typical.
    """
    said = _said_of_shapes(subject, entry, name)
    if not said:
        sentence = re.search(_SENTENCE.format(name=re.escape(name)), documentation(subject))
        said = " ".join(sentence[1].split()) if sentence else ""
    typical = (_shapes_of_tuples(each) for each in _typical(documentation(subject), name))
    return tuple(dict.fromkeys(itertools.chain(_shapes_by_words(said), *typical)))


def _said_of_shapes(subject: Any, entry: Any, name: str) -> str:
    """Return what is said of a mask, and the shape of its annotation where that has none."""
    said = said_by_both(subject, entry, name).strip()
    words = () if _TUPLE.search(said) else annotated_axes(entry, name)
    return f"{said} ({', '.join(words)})".strip() if words else said


def _typical(text: str, name: str) -> Iterator[str]:
    """Yield what a paragraph that names a mask, and no other, says its shapes to be."""
    for paragraph in re.split(r"\n\s*\n", text):
        masks = {*re.findall(r"\w*mask\w*", paragraph)} - {"mask", "masks"}
        if re.search(rf"\b{re.escape(name)}\b", paragraph) and masks <= {name}:
            yield from (each[1] for each in _TYPICAL.finditer(" ".join(paragraph.split())))


def _shapes_of_tuples(text: str) -> Iterator[Axes]:
    """Yield the shapes that all tuples of a text say."""
    found = (_axes(each[1]) for each in _TUPLE.finditer(text))
    yield from (axes for axes in found if axes in SHAPES)


def _shapes_by_words(said: str) -> dict[Axes, str]:
    """Return the shapes that a text says, each with its words."""
    found: dict[Axes, str] = {}
    end = 0
    for each in _TUPLE.finditer(said):
        if found and not _OR.fullmatch(said[end : each.start()]):
            break
        if axes := _axes(each[1]):
            found.setdefault(axes, each[1])
            end = each.end()
    return {axes: words for axes, words in found.items() if axes in SHAPES}


def demanded_shapes(subject: Any, entry: Any, name: str, *, of_itself: bool) -> tuple[Axes, ...]:
    """Return the shapes that the documentation demands of a mask.

    Of several those of unlike numbers of axes in which queries and keys have words of their own:
    shapes of several layouts, of the scores, or that are made within the call, are not demanded.
    What is broadcastable to (..., L, S) may be (L, S). Of self-attention (``of_itself``), which has
    one length, all that begin with samples are.
    """
    said = _ANY_BEFORE.sub(r"\1", _said_of_shapes(subject, entry, name))
    shapes = _shapes_by_words(said)
    if _WITHIN.search(_OF_CALLERS.sub(" ", said)) or len({*map(len, shapes)}) < len(shapes):
        return ()
    of_samples = of_itself and "broadcast" not in said.lower()
    if len(shapes) == 1 or (of_samples and all(axes[0] == "N" for axes in shapes)):
        return tuple(shapes)
    return tuple(axes for axes, words in shapes.items() if _is_of_two_lengths(axes, words))


def _is_of_two_lengths(axes: Axes, words: str) -> bool:
    """Return whether the words of a shape are others for queries than for keys."""
    named = zip(axes, words.removesuffix(",").lower().split(","), strict=True)
    lengths = [word.strip() for axis, word in named if axis in {"L", "S"}]
    return len({*lengths}) == len(lengths)


def _axes(text: str) -> Axes:
    """Return the axes that the words of a tuple stand for, () where one is unknown.

    Of (n, h, l, s) and (s, n) n is samples, of (b, n, n) and (n, n) rows.
    """
    words = [word.strip().lower() for word in text.removesuffix(",").split(",")]
    found = [next((axis for axis, known in _AXES if known.fullmatch(word)), "") for word in words]
    of_samples = words[0] == "n" and words.count("n") == 1
    if words in (["s", "n"], ["l", "s", "n"]):
        return ()  # samples behind keys: no shape that is demanded
    found = [axis or {"n": "L"}.get(word, "") for axis, word in zip(found, words, strict=True)]
    if of_samples:
        found[0] = "N"
    if not all(found):
        return ()
    if "L" in found:  # the last of them is that of keys
        found[len(found) - 1 - found[::-1].index("L")] = "S"
    return tuple(found)
