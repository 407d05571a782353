"""Projections that weights, biases and parameters belong to, by their names."""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What surrounds the word that says which projection it is, in the singular.
_SURROUNDING = (
    "weight", "projection", "project", "proj", "linear", "lin", "layer", "fc", "dense", "matrix",
    "matrice", "mat", "to", "transform", "kernel", "param", "map", "mapping", "conv", "head",
    "attention", "attn", "att", "self", "embedding", "gen", "generator", "get", "trans",
    "transformation", "emb", "embed", "module", "w", "mha", "net", "network", "vector", "mlp",
    "layernorm", "list",
)  # fmt: skip
_AFFIXES = sorted((f"{word}{end}" for word in _SURROUNDING for end in ("", "s")), key=len)[::-1]
_WORDS = {
    "q": ("q", "qs", "query", "queries", "querys", "theta"),
    "k": ("k", "ks", "key", "keys", "phi"),
    "v": ("v", "vs", "val", "vals", "value", "values", "g"),
    "out": ("o", "out", "outs", "outputs", "output", "res", "final", "c", "p", "os", "unify",
            "combine", "join", "merge", "mix"),
}  # fmt: skip
ROWS = ("q", "k", "v")
_LETTERS = {"query": "q", "key": "k", "value": "v"}
PARTS: dict[str, tuple[str, ...]] = {
    word: (part,) for part, words in _WORDS.items() for word in words
}
PARTS |= {"".join(order): order for order in permutations(ROWS)}
PARTS |= {"".join(map(dict(zip(_LETTERS.values(), _LETTERS, strict=True)).get, order)): order  # type: ignore[arg-type]
          for order in permutations(ROWS)}  # fmt: skip
# Of transformers that name a convolution of width 1 `c_attn`, and of those who write it out.
PARTS |= {f"c{word}": tuple(word) for word in ("q", "k", "v", "kv", "qkv")}
PARTS |= {"kv": ("k", "v"), "vk": ("v", "k"), "qk": ("q", "k"), "kq": ("k", "q"), "in": ROWS}
OF_Q_AND_K = frozenset({"qk", "kq"})
# Words for all three, whose order the code may show. `fused` and `packed` may be of any Linear.
OF_ATTENTION = frozenset({"cattn", "cattention"})
WHOLE = OF_ATTENTION | {"fused", "packed", "pack"}
PARTS |= dict.fromkeys(WHOLE, ROWS)
PARTS |= dict.fromkeys(("keyvalue", "keyvalues", "keysvalues"), ("k", "v"))
_ALIKE = tuple(
    tuple(map(change, words))
    for words in (("query", "key", "value", "output"), ("q", "k", "v", "o"))
    for change in (str, str.capitalize, str.upper)
)
_LEAVES = frozenset({
    "weight", "weights", "bias", "w", "b", "kernel", "linear", "bias_", "weight_", "data", "params",
    "param", "parameters", "_parameters",
})  # fmt: skip
_WHOLES = tuple("".join(order) for order in permutations(ROWS))
# Of as many heads as are computed at a time.
PART_OF_HEADS = re.compile(
    r"heads?_?per_?(pass|block|step|chunk|tile|slice|round|iter(ation)?|call|launch|program)"
    r"|heads?_?(at_(once|a_time)|(block|chunk|tile|slice)(_?size)?)$|(block|chunk|tile|slice)_?heads?$"
)
# Of the keys that a row sees by their distance.
WINDOW = re.compile(
    r"^(?!.*(context|ctx|mask|bias))(?![qkvx]_).*window(_?(size|len(gth)?|width|left|right|radius))?$"
    r"|^((attn|attention|local|band)_?)?radius$|^(attn|attention|local)_?band(_?width)?$"
    r"|^((n|num|max)_)?(left|look_?back)(_(context|frames|rows|tokens|keys|size|chunk_size))?$"
)


def snake_case(name: str) -> str:
    """Return a name in lower case, with an underscore between the words of `CamelCase`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def plain(name: str) -> str:
    """Return a name in lower case, without digits, underscores and `_t`: that it is transposed.

    Of a private name the class is left out, which Python puts before it.
    """
    name = re.sub(r"^_[A-Za-z]\w*?__(?=\w)", "", name)
    return re.sub(r"[\d_]+", "", re.sub(r"(?<=.)_(t|transposed?)$", "", name.lower()))


def stem(name: str) -> str:
    """Return what is left of a name without the affixes that say nothing; "" if nothing is."""
    left = plain(name)
    whole = next((each for each in _WHOLES if left.removeprefix(each) in PARTS), "")
    left = left.removeprefix(whole)  # `qkv_q`: that of q, among all of them
    while left not in PARTS:
        if left in WHOLE:
            return left
        for affix in _AFFIXES:
            if left.startswith(affix) or left.endswith(affix):
                cut = left.removeprefix(affix)
                left = cut if len(cut) < len(left) else left.removesuffix(affix)
                break
        else:
            return left
    return left


def parts(path: str) -> tuple[str, ...]:
    """Return the projections that a path like ``heads.0.key.weight`` names, in order; () if none.

    The last segment that names one decides.
    """
    segments = [each for each in path.split(".") if not each.isdigit()]
    for segment in reversed(segments):
        found = PARTS.get(stem(segment))
        if found:
            return found
        if segment.lower() not in _LEAVES and stem(segment):
            return ()
    return ()


def parts_by_pattern(paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the projections of paths that are alike but for a word for q, k, v or the output.

    `Lq.0`, `Lk.0` and `Lv.0` say so whatever `L` is; one such name alone would not.
    """
    bare = {path: re.sub(r"\d+", "", path) for path in paths}
    found: dict[str, tuple[str, ...]] = {}
    for named in set(bare.values()):
        for words in _ALIKE:
            for place in re.finditer(re.escape(words[0]), named):
                before, after = named[: place.start()], named[place.end() :]
                alike = [f"{before}{word}{after}" for word in words]
                if {*alike[:3]} <= {*bare.values()}:
                    found |= dict(zip(alike, ((part,) for part in (*ROWS, "out")), strict=True))
    return {path: found[named] for path, named in bare.items() if named in found}


def bias_parts(path: str) -> tuple[str, ...]:
    """Return the projections whose bias a path names: ``b_q``, ``bias_q``, ``query.bias``.

    Of a tensor of the target's own its array is named, ``b_q.data``.
    """
    segments = path.removesuffix(".data").split(".")
    last = plain(segments[-1])
    for marker in ("bias", "b"):
        for rest in (last.removeprefix(marker), last.removesuffix(marker)):
            if len(rest) == len(last):
                continue
            if not rest and len(segments) > 1:
                return parts(".".join(segments[:-1]))
            found = PARTS.get(stem(rest))
            if found:
                return found
    return ()


def is_weight(name: str) -> bool:
    """Return whether the name of a parameter speaks of weights, and not of an input."""
    left = plain(name)
    marked = any(
        left.startswith(each) or left.endswith(each)
        for each in ("w", "proj", "weight", "weights", "kernel", "cattn", "linear")
    )
    return marked and left != "w" and "window" not in left


def is_part(name: str) -> bool:
    """Return whether the name of a parameter says whose weight or bias it is."""
    return bool((is_weight(name) and parts(name)) or bias_parts(name))
