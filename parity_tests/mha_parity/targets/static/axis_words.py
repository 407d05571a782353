"""Words by which documentation names the axes of an array, as regular expressions."""

from __future__ import annotations

SAMPLES = r"(?:mini_?)?(?:batch(?:es)?(?:_?size)?|bsz?|b)"
_LENGTH = r"(?:(?:n|num|max|q|k|kv|key|query|tgt|src|target|source)_?)?len(?:gth)?(?:_?[qk])?"
ROWS = (
    rf"(?:(?:n|num|max)_)?(?:seq(?:uence)?s?(?:_?len(?:gth)?)?(?:_?[qk])?|{_LENGTH}"
    r"|time(?:_?steps?)?|tokens?|l|t|s)"
)
WIDTH = (
    r"(?:[a-z]*_?)?(?:d|e|c|h|dim|d_?model|model|emb\w*|hidden\w*|width|channels?|features?|size)"
    r"(?:_?(?:in|out|dim|size|model|head|[kqv]|\d))?"
)
HEADS = r"(?:(?:n|num|q|kv)_?)?(?:heads?|h)(?:_?[qk]v?)?"
