"""Text of a docstring, the Chinese words of masks and shapes in it said in English.

What documentation demands is read by English words. Of Chinese ones those are known that say what
a mask hides or keeps: each gets the word that the readers know, at its own place.
"""

from __future__ import annotations

import inspect
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Longer words stand before those that they begin with.
_ENGLISH: Mapping[str, str] = MappingProxyType({
    "mask 掉": "masked", "mask掉": "masked", "被掩码": "masked", "掩码掉": "masked",
    "掩码位置": "masked positions", "需要掩码": "masked", "掩码": "mask", "掩膜": "mask",
    "屏蔽": "masked", "遮蔽": "masked", "遮挡": "masked", "遮掩": "masked", "遮盖": "masked",
    "掩蔽": "masked", "掩盖": "masked", "忽略": "ignored",
    "不可见": "hidden", "可见": "visible", "无效": "invalid", "有效": "valid",
    "不参与": "ignored", "参与": "participates", "不关注": "ignored", "关注": "attended",
    "允许": "allowed", "禁止": "forbidden", "保留": "kept", "填充": "padding",
    "设置为": "set to", "设为": "set to", "置为": "set to", "负无穷": "-inf",
    "表示": "means", "代表": "means", "位置": "positions", "或者": "or", "或": "or",
    "布尔": "bool", "形状": "shape", "为": "is", "的": "", "会被": "are", "被": "are",
})  # fmt: skip
_KNOWN = re.compile("|".join(map(re.escape, _ENGLISH)))
_SEVERAL = re.compile(rf" ?(?:{_KNOWN.pattern})(?: ?(?:{_KNOWN.pattern}))* ?")


def documented_text(each: Any) -> str:
    """Return the docstring of an object, "" where it has none, with English words for Chinese."""
    return in_english(inspect.getdoc(each) or "")


def in_english(text: str) -> str:
    """Return a text with each known Chinese word in English; indentation stays as it is."""

    def said(found: re.Match[str]) -> str:
        words = (_ENGLISH[each] for each in _KNOWN.findall(found[0]))
        begins = found[0][0] != " " and (text[: found.start()][-1:] or "\n") == "\n"
        return f"{'' if begins else ' '}{' '.join(filter(None, words))} "

    return _SEVERAL.sub(said, text)
