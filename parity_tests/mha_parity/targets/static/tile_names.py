"""Names of parameters that are the sizes of tiles, or how many there are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.targets.static.length_arguments import is_annotated
from mha_parity.targets.static.projection_names import PART_OF_HEADS, snake_case

if TYPE_CHECKING:
    from inspect import Parameter

TILE = 16  # rows of a tile, and heads that are computed at a time, where a call has to say it
FEW = 3  # into which keys are cut where a call has to say how many
COUNTS = re.compile(r"(n|num)_(splits|chunks|tiles|parts|blocks)")
_TILES = re.compile(
    r"(?!.*mask)(.*_)?(block|tile|chunk)s?"
    r"(_(size|len|length|rows|cols|columns|m|n|q|k|kv|quer(y|ies)|keys?))?"
    rf"|(.*_)?bucket_(size|len|length)|{COUNTS.pattern}"
)
_BY_LETTER = re.compile(r"b_?(q|k|kv|r|c|m|n)")  # biases, where they are None by default
_NO_BIAS = re.compile(r"b_?(r|c|m|n)")


def may_be_of_tiles(parameter: Parameter) -> bool:
    """Return whether a parameter of a call is the size or the number of tiles by its name."""
    name, default = snake_case(parameter.name), parameter.default
    is_size = type(default) is int and default > 0
    if default is parameter.empty:
        return is_required_tile(parameter)
    if is_size and _BY_LETTER.fullmatch(name):
        return True
    return (is_size or default is None) and _TILES.fullmatch(name) is not None


def is_required_tile(parameter: Parameter) -> bool:
    """Return whether a parameter without a default is the size of a tile, or their number."""
    name = snake_case(parameter.name)
    by_letter = _BY_LETTER if is_annotated(parameter, int) else _NO_BIAS
    known = _TILES.fullmatch(name) or PART_OF_HEADS.search(name) or by_letter.fullmatch(name)
    return parameter.default is parameter.empty and known is not None


def tile_or_count(name: str, tile: int, most: int, least: int = FEW) -> int:
    """Return what a required parameter of tiles gets: ``tile``, or ``most`` where that is 0.

    A number of tiles is a few, and no more than the rows of which there are ``least``; or one.
    """
    if COUNTS.fullmatch(snake_case(name)):
        return max(1, min(FEW, least)) if tile else 1
    return tile or most
