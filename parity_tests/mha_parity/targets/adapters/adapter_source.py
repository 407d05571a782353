"""The source of an adapter for a target: its imports, and its lines or what is to be filled in."""

from __future__ import annotations

import json
import re
import textwrap
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import ADAPTER
from mha_parity.targets.adapters.code_lines import WIDTH, wrapped
from mha_parity.targets.adapters.template_lines import WEIGHTS, Skeleton
from mha_parity.targets.static import call_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.targets.trials.fitted_target import Fitted

NUMPY = "import numpy as np"
IMPORTS = {
    "torch": "import torch", "jax": "import jax.numpy as jnp",
    "tensorflow": "import tensorflow as tf",
}  # fmt: skip
ARRAYS = {"torch": "torch.Tensor", "jnp": "jnp.ndarray", "np": "np.ndarray", "tf": "tf.Tensor"}
NEAREST = "Nearest tried, to be kept as far as it is right:"
HEAD = """\
# Judge it with `mha-parity check THIS_FILE.py:attention`.

{imports}
from mha_parity.targets.load import load

{loaded}


@mha_parity.adapter
def attention(call: mha_parity.AttentionCall) -> {returned}:
"""
EMPTY = '''\
    """Call {signature}."""
{reason}{reading}
    # The call has query, key, value (N, L, E); q_proj_weight, k_proj_weight, v_proj_weight,
    # out_proj_weight (E, E) and q_proj_bias ...; attn_mask, key_padding_mask, is_causal, or all
    # masks as one: hidden("N 1 L S"), added("N H L S"), lengths("N"); embed_dim, num_heads,
    # head_dim, num_kv_heads, scale, need_weights. Return the output, or output and weights.
    raise NotImplementedError("call the target here")
'''


def empty_adapter(
    target: str, subject: Any, reason: str, library: str, reading: Sequence[str] = ()
) -> str:
    """Return the source of an adapter in this library for a target that was not recognised.

    ``reading`` are lines of the nearest reading, which its author keeps as far as they are right.
    """
    named = ", ".join(str(each) for each in call_parameters.of_callable(subject))
    signature = f"{getattr(subject, '__name__', 'the target')}({named})"
    head = _head(target, IMPORTS.get(library, NUMPY))
    kept = [each for line in reading for each in wrapped(line).splitlines()]
    said = [NEAREST, *(f"    {line}" for line in kept)] if kept else []
    return head + EMPTY.format(
        signature=signature,
        reason=_comment(f"Not recognised: {reason}"),
        reading="".join(f"\n    # {line}" for line in said),
    )


def _docstring(text: str) -> str:
    """Return a text as the docstring of a function, its lines no longer than those of code."""
    quotes, indent = '"' * 3, " " * 4
    lines = textwrap.wrap(text, WIDTH - len(indent) - 2 * len(quotes))
    return textwrap.indent(quotes + "\n".join(lines) + quotes, indent)


def _comment(text: str) -> str:
    """Return a sentence as lines of comments; what remedy is left when this is the adapter."""
    said = re.sub(r"[,;:]?( or)? $", "", text.partition(ADAPTER)[0])
    return textwrap.indent(textwrap.fill(said, 94), "    # ")


def filled_adapter(target: str, loaded: Any, fitted: Fitted, *, said: str = "") -> str:
    """Return the source of an adapter for a target that was recognised in what is loaded.

    ``said`` is what a call of it came to that is not right: its author finishes it.
    """
    library = IMPORTS.get(fitted.library.name, NUMPY)
    how = [_docstring(f"Call it as {fitted.how}.")]
    if not fitted.fit.exact:  # the target may be wrong, or its call: its owner knows
        how.append(_comment(f"As it is called here, {fitted.fit.missed}: check the call."))
    if said:
        how.append(_comment(f"As it is written here, a small call {said}: finish the lines."))
    lines = [*how, *(wrapped(line) for line in Skeleton(fitted, loaded).lines())]
    two = lines[-1].endswith(WEIGHTS)
    return _head(target, library, arrays=1 + two) + "\n".join(lines) + "\n"


def _head(target: str, library: str, arrays: int = 1) -> str:
    """Return the lines above the body of an adapter that returns ``arrays`` arrays.

    What it returns says which arrays the call has: those of the library that is imported.
    """
    imports = "\n".join(sorted(("import mha_parity", library)))
    kind = ARRAYS[library.rsplit(maxsplit=1)[-1]]
    returned = kind if arrays == 1 else f"tuple[{', '.join([kind] * arrays)}]"
    loaded = wrapped(f"Target = load({json.dumps(target)})")
    return HEAD.format(loaded=loaded, imports=imports, returned=returned)
