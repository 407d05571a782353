"""Axes of a target's rows according to its documentation: their order, and heads.

Attention over the first axis is what torch's layer computes by default. Where the documentation
says that samples come first, it is a mistake: `batch_first=True` is missing.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from mha_parity.targets.static.axis_words import HEADS, ROWS, SAMPLES, WIDTH
from mha_parity.targets.static.documented_text import documented_text
from mha_parity.targets.static.signatures import forward

_SENTENCE = re.compile(r"(?<=[.;])\s+|\n\s*\n|\n\s*[-*]\s")


def _tuple_of(*axes: str) -> str:
    joined = r"\s*,\s*".join(axes)
    return rf"[(\[]\s*{joined}\s*[)\]]"


# N is the samples before L, and the tokens behind B. Of two lengths behind the samples it is a
# mask or weights, which torch's layer has so in each of its orders.
_SAMPLES_FIRST = re.compile(
    f"{_tuple_of(SAMPLES, f'(?:{ROWS}|n)', WIDTH)}|{_tuple_of('n', ROWS, WIDTH)}",
    re.IGNORECASE,
)
_ROWS_FIRST = re.compile(
    f"{_tuple_of(f'(?:{ROWS}|n)', SAMPLES, WIDTH)}|{_tuple_of(ROWS, 'n', WIDTH)}"
    rf"|\b(?:{ROWS})\s*[x×*]\s*{SAMPLES}\b|\b(?:sequence|seq|time|length)[- _]first\b"
    r"|batch_first\s*=\s*False",
    re.IGNORECASE,
)
_OF_ROWS = rf"(?:{ROWS}|(?:n|num)_(?:quer(?:y|ies)|keys?))"
_OF_SAMPLES = f"(?:{SAMPLES}|n)"
_HEADS_OF_SAMPLES = re.compile(
    f"{_tuple_of(_OF_SAMPLES, _OF_ROWS, HEADS, WIDTH)}"
    rf"|\b{_OF_SAMPLES}\s*[x×*]\s*{_OF_ROWS}\s*[x×*]\s*{HEADS}\b",
    re.IGNORECASE,
)
_HEADS_BEFORE_ROWS = re.compile(
    f"{_tuple_of(_OF_SAMPLES, HEADS, _OF_ROWS, WIDTH)}"
    rf"|\b{_OF_SAMPLES}\s*[x×*]\s*{HEADS}\s*[x×*]\s*{_OF_ROWS}\b",
    re.IGNORECASE,
)
_HEADS_FIRST = re.compile(_tuple_of(HEADS, _OF_SAMPLES, _OF_ROWS, WIDTH), re.IGNORECASE)
_HEADS_OF_ROWS = re.compile(_tuple_of(_OF_ROWS, _OF_SAMPLES, HEADS, WIDTH), re.IGNORECASE)
_WITH_HEADS = re.compile(
    rf"{_tuple_of('[^,()]+', HEADS, '[^,()]+', '[^,()]+')}"
    rf"|{_tuple_of('[^,()]+', '[^,()]+', HEADS, '[^,()]+')}",
    re.IGNORECASE,
)
_OF_ONE_SAMPLE = re.compile(_tuple_of(f"(?:{_OF_ROWS}|[nm])", WIDTH), re.IGNORECASE)
_SEVERAL_HEADS = re.compile(r"\bheads\b|\bmulti[- ]?head", re.IGNORECASE)
# What a length is documented to be a multiple of; a width is one of the heads' number anyway.
_LENGTHS = r"\b(lengths?|[LSTN]|seq\w*|tokens|rows|queries|keys)\b"
_MULTIPLES = re.compile(
    rf"{_LENGTHS}[^.;:,]{{0,40}}\b(multiples? of|divisible)"
    rf"|\bdivides? [^.;:,]{{0,20}}{_LENGTHS}|\b[LSTN] % \w+ ==? 0|\bwhole (chunks|tiles|blocks)\b",
    re.IGNORECASE,
)
_ANY_LENGTH = re.compile(
    r"\bpad(s|ded)? to\b|\bnot (only|need)|\bany\b|\bneed not\b|\b(internal|insid)", re.IGNORECASE
)
_OF_WIDTHS = re.compile(r"\b(d_model|embed\w*|dim\w*|width|channels|heads?)\b", re.IGNORECASE)
# `q, k : (B, H, T, E)`, with `v` among them or beside them, and what is one sequence.
_ONE_ENTRY = re.compile(
    r"\b(q|quer(y|ies))\s*(,|and|/)\s*(k|keys?)\b[^()\[\]]{0,20}[(\[][^()\[\]]+[)\]]", re.IGNORECASE
)
_OF_ONE_SEQUENCE = re.compile(
    r"\bself[- ]attention\b|\bof the sequence\b|\bwindow\b", re.IGNORECASE
)
_PLANE = re.compile(r"\b(height\s*,\s*width|h\s*,\s*w)\b", re.IGNORECASE)
_TILES = re.compile(
    r"\bh\w*\s*(?:%|\bmod(?:ulo)?\b)\s*\(?[\w.]*(?:kv|k_heads|key_heads|groups?)", re.IGNORECASE
)
_REFERS = re.compile(r"[Ss]ee (also )?(:\w+:)?`{1,2}~?(?P<name>\w+)(\(\))?`{1,2}\.?")
ONE_LENGTH = "its documentation has one length for queries and keys, and it is not right with two"
SAMPLES_FIRST = "its documentation says that samples come first: no other order of axes was tried."


def documents_samples_first(subject: Any) -> bool:
    """Return whether a class or function documents samples before rows, and no other order.

    Behind them may be a width, or heads and their width.
    """
    text = documentation(subject)
    samples, rows = (
        any(each.search(text) for each in orders)
        for orders in ((_SAMPLES_FIRST, _HEADS_OF_SAMPLES), (_ROWS_FIRST, _HEADS_OF_ROWS))
    )
    return samples and not rows


def documents_samples_of_heads(subject: Any) -> bool:
    """Return whether a class or function documents arrays with heads whose rows are not first."""
    text = documentation(subject)
    samples = _HEADS_OF_SAMPLES.search(text) or _HEADS_BEFORE_ROWS.search(text)
    return bool(samples) and not _HEADS_OF_ROWS.search(text)


def documents_heads_first(subject: Any) -> bool:
    """Return whether a class or function documents arrays with heads first, and no other order."""
    text = documentation(subject)
    others = (_HEADS_OF_SAMPLES, _HEADS_BEFORE_ROWS, _HEADS_OF_ROWS)
    return bool(_HEADS_FIRST.search(text)) and not any(each.search(text) for each in others)


def documents_heads_before_rows(subject: Any) -> bool:
    """Return whether a class or function documents (N, H, L, D), and no rows before heads."""
    text = documentation(subject)
    return bool(_HEADS_BEFORE_ROWS.search(text)) and not _HEADS_OF_SAMPLES.search(text)


def documents_heads(subject: Any) -> bool:
    """Return whether a class or function documents arrays of four axes with one of heads.

    And none of three: where there are rows too, the heads are what it makes of them.
    """
    text = documentation(subject)
    rows = _SAMPLES_FIRST.search(text) or _ROWS_FIRST.search(text)
    heads = _WITH_HEADS.search(text) or _HEADS_FIRST.search(text)
    return bool(heads) and not rows


def documents_rows_alone(subject: Any) -> bool:
    """Return whether a class or function documents rows of one sample or of several, and no heads.

    `(T, d)`, `(batch, T, d)`, `(T, batch, d)`: what it answers to four axes is not promised.
    """
    text = documentation(subject)
    rows = any(each.search(text) for each in (_OF_ONE_SAMPLE, _SAMPLES_FIRST, _ROWS_FIRST))
    return rows and not any(p.search(text) for p in (_WITH_HEADS, _HEADS_FIRST, _SEVERAL_HEADS))


def documents_one_length(subject: Any) -> bool:
    """Return whether a class or function documents self-attention or a window over one length.

    Of queries and keys in one entry, whose shape has one length: other lengths are not promised.
    """
    text = " ".join(documentation(subject).split())
    return bool(_ONE_ENTRY.search(text)) and bool(_OF_ONE_SEQUENCE.search(text))


def documents_multiples(subject: Any) -> bool:
    """Return whether a class or function, or its module, documents lengths as multiples."""
    text = _with_module(subject)
    sentences = (" ".join(each.split()) for each in re.split(r"(?<=[.;])\s|\n\s*\n", text))
    return any(map(_limits_lengths, sentences))


def _limits_lengths(sentence: str) -> bool:
    """Return whether a sentence says of a length, and of no width, what it is a multiple of."""
    found = _MULTIPLES.search(sentence)
    if found is None or _ANY_LENGTH.search(sentence):
        return False
    return _OF_WIDTHS.search(found[0]) is None


def names_plane(subject: Any) -> bool:
    """Return whether documentation, or the code of the call, names a height and a width of rows."""
    call = forward(subject) if isinstance(subject, type) else subject
    named = getattr(getattr(inspect.unwrap(call), "__code__", None), "co_varnames", ())
    # Local names stand in the order in which they are set: `n, h, w, c = x.shape`.
    return _PLANE.search(f"{documentation(subject)} {', '.join(named)}") is not None


def documents_tiles(subject: Any) -> bool:
    """Return whether a target, or its module, says that query head h reads key head h % Hkv."""
    return _TILES.search(_with_module(subject)) is not None


def _with_module(subject: Any) -> str:
    """Return what the module of a class or function documents, and what that does."""
    return f"{documented_text(inspect.getmodule(subject))}\n\n{documentation(subject)}"


def documentation(subject: Any) -> str:
    """Return what a class, its constructor and its call document, or a function, by paragraphs.

    And what they refer to in their module by a line of its own: "See :class:`Kernel`."
    """
    documented = [subject]
    if isinstance(subject, type):
        documented += [getattr(subject, "__init__", None), forward(subject)]
    texts = [documented_text(each) for each in documented]
    scope = vars(inspect.getmodule(subject) or object)
    named = [_REFERS.fullmatch(line.strip()) for text in texts for line in text.splitlines()]
    referred = (scope.get(found["name"]) for found in named if found is not None)
    texts += [documented_text(each) for each in referred if each is not None]
    return "\n\n".join(texts)


def module_sentences(subject: Any) -> list[str]:
    """Return the sentences of what the module of a class or function documents."""
    text = documented_text(inspect.getmodule(subject))
    return [" ".join(each.split()) for each in _SENTENCE.split(text)]


def documented_sentences(subject: Any) -> list[str]:
    """Return the sentences and entries of what ``documentation`` returns, each in one line."""
    return [" ".join(each.split()) for each in _SENTENCE.split(documentation(subject))]
