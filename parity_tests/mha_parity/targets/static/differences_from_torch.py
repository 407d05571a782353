"""Say where a layer that looks like torch's has other defaults, positions or returned values.

Cases pass by name whatever matters to them: a call that leaves a default alone, or passes by
position, does something else than with torch.nn.MultiheadAttention. That is no wrong attention.
"""

from __future__ import annotations

import itertools
from inspect import Parameter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# torch.nn.MultiheadAttention's, in the order of its parameters.
CONSTRUCTOR: Mapping[str, Any] = {
    "dropout": 0.0, "bias": True, "add_bias_kv": False, "add_zero_attn": False, "kdim": None,
    "vdim": None, "batch_first": False,
}  # fmt: skip
CALL: Mapping[str, Any] = {
    "key_padding_mask": None, "need_weights": True, "attn_mask": None,
    "average_attn_weights": True, "is_causal": False,
}  # fmt: skip
BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def departures(made: Sequence[Parameter], called: Sequence[Parameter]) -> Iterator[str]:
    """Yield a sentence on defaults of constructor and call, and one on the order of each."""
    other = [
        f"{each.name}={each.default!r} (torch: {torch[each.name]!r})"
        for given, torch in ((made, CONSTRUCTOR), (called, CALL))
        for each in given
        if each.name in torch
        and each.default is not Parameter.empty
        and each.default != torch[each.name]
    ]
    if other:
        yield f"defaults are not torch's: {', '.join(other)}; pass these by name."
    for given, torch in ((made, CONSTRUCTOR), (called, CALL)):
        names = [each.name for each in given if each.name in torch and each.kind in BY_POSITION]
        order = [name for name in torch if name in names]
        if names != order:
            moved = next(a for a, b in itertools.zip_longest(names, order) if a != b)
            yield f"`{moved}` has another position than in torch; pass it by name."


def second_value(result: Any) -> str:
    """Describe the second value returned for ``need_weights=False``, unless torch's None."""
    if not isinstance(result, tuple):
        return "need_weights=False returns the output alone; torch returns (output, None)."
    if len(result) == 2 and result[1] is None:
        return ""
    return "need_weights=False returns more than an output; torch returns (output, None)."
