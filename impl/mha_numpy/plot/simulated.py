"""Simulated heads: what attention heads of trained models are reported to specialise in.

Drawn by hand, not computed from weights, to show what to look for in a heat map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Weights: TypeAlias = npt.NDArray[np.float64]
Links: TypeAlias = Mapping[tuple[str, str], float]

EXAMPLE_TOKENS = ("The", "quick", "brown", "fox", "jumps", ".")
EXAMPLE_SYNTAX: Links = MappingProxyType({("jumps", "fox"): 0.8, ("jumps", "The"): 0.6})
EXAMPLE_MEANING: Links = MappingProxyType({("quick", "brown"): 0.5, ("brown", "quick"): 0.5})


def simulated_heads(
    tokens: Sequence[str] = EXAMPLE_TOKENS,
    *,
    syntax: Links = EXAMPLE_SYNTAX,
    meaning: Links = EXAMPLE_MEANING,
) -> dict[str, Weights]:
    """Return the weights of six heads that each specialise in one thing.

    Parameters
    ----------
    tokens
        the L tokens of a sentence, at least one.
    syntax
        how strongly one word looks at another it depends on, by (query word, key word);
        next to 0.1 for the word itself. A link with a word that is not among the tokens has no
        effect.
    meaning
        the same for words of related meaning, next to 0.2.

    Returns
    -------
    By name, in this order, float64 weights of shape (L, L), one row a query; rows sum to 1:

    * positional: 0.7 on the previous token, 0.3 on itself;
    * syntactic and semantic: as the links say, itself otherwise;
    * beginning of sequence: 0.7 on the first token, 0.3 on itself;
    * delimiter: 0.6 on each token without letter or digit (the last one where there is none),
      0.2 on itself;
    * uniform: the same on every token.

    Raises
    ------
    ValueError
        there are no tokens.
    """
    if not tokens:
        raise ValueError(
            "`tokens` is empty, but should hold at least one token; pass the words of a sentence."
        )
    itself, first = np.eye(len(tokens)), np.eye(1, len(tokens))
    heads = {
        "positional": 0.7 * np.eye(len(tokens), k=-1) + 0.3 * itself,
        "syntactic": _linked(tokens, syntax) + 0.1 * itself,
        "semantic": _linked(tokens, meaning) + 0.2 * itself,
        "beginning of sequence": 0.7 * first + 0.3 * itself,
        "delimiter": np.where(_delimiters(tokens), 0.6, 0.2 * itself),
        "uniform": np.ones_like(itself),
    }
    return {name: head / head.sum(axis=-1, keepdims=True) for name, head in heads.items()}


def _linked(tokens: Sequence[str], links: Links) -> Weights:
    return np.array([[links.get((query, key), 0.0) for key in tokens] for query in tokens])


def _delimiters(tokens: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell for each key whether it separates: punctuation, or for want of it the last token."""
    found = np.array([not any(map(str.isalnum, token)) for token in tokens])
    return found if found.any() else np.arange(len(tokens)) == len(tokens) - 1
