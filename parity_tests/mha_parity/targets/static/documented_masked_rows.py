"""Documentation of what rows come to that see no key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.targets.static.documented_layout import documentation, documented_sentences

if TYPE_CHECKING:
    from typing import Any

_ROWS = r"\b(rows?|quer(y|ies)|tokens?|outputs?)\b"
_KEYS = (
    r"((visible|allowed|permitted|usable|valid|unmasked|kept|attendable|real) )?keys?\b"
    r"(?! \w*(bias|proj|mask|pad))"
)
_GAP = r"(?:(?!\bzero|\b0\b)[^,;:]){0,60}?"
# A row, and that it sees no key.
_NO_KEY = re.compile(
    rf"\b(fully|entirely|completely)[- ](masked|hidden|blocked) (\w+ )?{_ROWS}"
    rf"|{_ROWS}{_GAP}\b(no|without an?y?) {_KEYS}"
    rf"|{_ROWS}{_GAP}(\bno true\b|\bsees? nothing\b|\bnothing to attend)"
    rf"|{_ROWS}{_GAP}\b(whole|all|every) (of (its|the) )?(keys?|context)( is| are)? "
    r"(hidden|masked|blocked|padding|padded|excluded)\b"
    r"|\bempty (set|sequence|memory|context|neighbou?rhood|segment)\b",
    re.IGNORECASE,
)
# What becomes of it.
_ZERO = re.compile(
    r"\b(is|are|be|ha(s|ve)|gives?|gets?|returns?|outputs?|yields?|produces?|set to"
    r"|comes?( out)?( as| to)?)"
    r"( an?| the| exactly| all)? ?((attention )?output (of )?|(row|vector)s? of )?"
    r"(zeros?|0(\.0)?)\b(?! \w*(prob|weight|bias))|\bzeroed\b"
    r"|\bare cleared to zeros?\b|\bzero (output )?rows?\b",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"\b(not?|never|nan|uniform(ly)?|mean|averag\w*|undefined|instead|unless|except|gradients?"
    r"|weights?|prob\w*|scores?|logits|softmax|rais\w*|caller|avoid\w*|position|index|fill\w*)\b"
    r"|\w+n['\u2019]t\b",
    re.IGNORECASE,
)
_NO_NAN = re.compile(r",? ?\b(not|instead of|rather than|never) nans?\b", re.IGNORECASE)
_NO_GRADIENT = re.compile(
    r",? ?\b(and )?(pass(es)?|ha(s|ve)|carr(y|ies)|gets?|receives?) no gradients?\b", re.IGNORECASE
)
_BOTH = re.compile(
    r",? ?\b(both )?(in|for|of) (the )?outputs? and (in |for |of )?(the )?(attention )?weights?\b"
    r"|\b(all[- ])?zero (attention )?weights? and (?=an? (all[- ])?zero (output|row|vector)s?\b)",
    re.IGNORECASE,
)

# That there are no rows without a key.
_A_KEY = re.compile(
    r"\b(every|each|any|all) ((query|output|attention) )?(rows?|quer(y|ies)|tokens?|positions?) "
    r"(of \S+ )?((must|should|has to|have to|needs? to|is expected to) )?"
    r"(keeps?|sees?|has|have|leaves?|attends? to|retains?) (at least one|one|some) "
    rf"({_KEYS}|true\b|entry|entries|(visible|allowed|unmasked) \w+)(?! (less|fewer|more)\b)",
    re.IGNORECASE,
)


def documents_a_key(subject: Any) -> bool:
    """Return whether the documentation demands a key for each row: others are not served."""
    return _A_KEY.search(" ".join(documentation(subject).split())) is not None


def documents_zero_rows(subject: Any) -> bool:
    """Return whether a class or function promises an output of 0 in rows that see no key.

    A sentence that says both says so, unless it denies something, or speaks of other arrays.
    """
    return any(map(_promises_zero, documented_sentences(subject)))


def _promises_zero(sentence: str) -> bool:
    """Return whether a sentence promises 0 where there is no key, and nothing else besides."""
    sentence = _BOTH.sub("", _NO_GRADIENT.sub("", _NO_NAN.sub("", sentence)))
    said = _NO_KEY.search(sentence)
    if said is None:
        return False
    rest = sentence[: said.start()] + sentence[said.end() :]
    return bool(_ZERO.search(rest)) and not _OTHERWISE.search(rest)
