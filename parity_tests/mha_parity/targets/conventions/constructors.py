"""How a layer is built for a width and a number of heads, whatever its constructor calls them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from mha_parity.targets.fit.construct import LENGTH, LayerSizes, meanings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from inspect import Parameter

    from mha_parity.targets.conventions.signatures import Signature

__all__ = ["DROPOUTS", "LENGTH", "LayerSizes", "SizesConfig", "arguments", "counts_heads"]

DROPOUTS = (
    "dropout", "dropout_p", "p_dropout", "dropout_rate", "attn_dropout", "attn_drop",
    "attention_dropout", "drop_rate", "p_drop", "drop", "dropout_prob", "proj_drop",
    "resid_dropout", "resid_pdrop", "attn_pdrop", "attention_probs_dropout_prob", "p",
)  # fmt: skip
BIASES = ("bias", "qkv_bias", "use_bias", "in_bias", "attention_bias")
CONFIGS = frozenset(
    (
        "config",
        "cfg",
        "args",
        "hparams",
        "params",
        "conf",
        "hp",
        "model_args",
        "model_config",
        "opt",
    )
)
# What people call an argument of a constructor, in lower case.
MEANINGS = {
    "width": (
        "embed_dim", "d_model", "dim", "hidden_size", "n_embd", "num_hiddens", "d_in", "d_out",
        "emb_size", "embed_size", "in_dim", "out_dim", "model_dim", "width", "channels",
        "input_dim", "output_dim", "embedding_dim", "embedding_size", "dim_in", "dim_out",
        "hidden_dim", "model_size", "input_size", "output_size", "in_features", "out_features",
        "nhid", "d_embed", "n_features", "model",
    ),
    "heads": ("h", "n_head", "num_heads", "nhead", "num_kv_groups", "num_groups", "n_groups"),
    "head_dim": ("d_k", "d_v", "d_q", "d_head", "depth", "dim_head", "head_dim", "head_size"),
    "length": (
        "context_length", "block_size", "max_len", "seq_len", "max_seq_len", "n_ctx", "t",
        "context_size", "ctx_len", "max_length", "max_seq", "sequence_length", "seq_length",
        "max_position_embeddings", "n_positions", "context_window", "window_size",
        "max_sequence_length", "max_context_length",
    ),
    "bias": BIASES,
    "dropout": DROPOUTS,
}  # fmt: skip
# What is given though it has a default.
GIVEN = frozenset(MEANINGS)


def _value(sizes: LayerSizes, name: str) -> Any:
    """Return what the argument of a known name gets."""
    return sizes.value("kv_heads" if counts_kv_heads(name) else str(_meaning(name)))


@cache
def _meaning(name: str) -> str | None:
    plain = _plain(name)
    known = next((meaning for meaning, names in _PLAIN.items() if plain in names), None)
    if known is None and "head" in plain:
        return "head_dim" if "dim" in plain or "size" in plain else "heads"
    return "length" if known is None and meanings(name) == ("length",) else known


def counts_kv_heads(name: str) -> bool:
    """Return whether an argument of this name is the number of key and value heads."""
    return meanings(name)[:1] == ("kv_heads",)


def alike_kv_heads(
    named: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> frozenset[str]:
    """Return the arguments for the number of key heads that get as many as the query heads'."""
    given = dict(zip((each.name for each in named), args, strict=False)) | dict(kwargs)
    heads = [value for name, value in given.items() if meanings(name)[:1] == ("heads",)]
    return frozenset(n for n, value in given.items() if counts_kv_heads(n) and value in heads)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


_PLAIN = {meaning: frozenset(map(_plain, names)) for meaning, names in MEANINGS.items()}


def takes_a_config(made: Signature) -> bool:
    """Return whether a constructor takes a configuration, and nothing else by position."""
    return len(made.required) == 1 and made.required[0].lower() in CONFIGS


def counts_heads(made: Signature) -> bool:
    """Return whether a constructor takes the number of heads; else the layer has one."""
    names = (*made.required, *made.optional)
    if takes_a_config(made):
        return True
    by_name = any(_meaning(name) in {"heads", "head_dim"} for name in names)
    return by_name or any(_meaning(name) is None for name in made.required)


class SizesConfig:
    """A configuration whose attributes are the sizes that their names say, and no others."""

    def __init__(self, sizes: LayerSizes) -> None:
        self._sizes = sizes
        self.asked: set[str] = set()  # the meanings so far

    def __getattr__(self, name: str) -> Any:
        """Return the value of an attribute that is known."""
        if name.startswith("__") or _meaning(name) is None:
            raise AttributeError(f"the layer asks its configuration for {name!r}, which is unknown")
        self.asked.add(str(_meaning(name)))
        return _value(self._sizes, name)


def arguments(made: Signature, sizes: LayerSizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what to pass to a constructor, by position and by keyword.

    Two arguments whose names tell nothing are the width and the heads.

    Raises
    ------
    ValueError
        There are others whose meaning is unknown.

    """
    required = made.required
    if takes_a_config(made):
        return (SizesConfig(sizes),), {}
    unknown = [name for name in required if _meaning(name) is None]
    if unknown and len(required) > 2:
        raise ValueError(f"its constructor wants {unknown[0]!r}, whose meaning is unknown")
    if unknown:
        return (sizes.width, sizes.heads)[: len(required)], {}
    known = [name for name in made.optional if _meaning(name) in GIVEN]
    more = [name for name in known if "window" not in name.lower()]  # another attention
    return (), {name: _value(sizes, name) for name in (*required, *more)}
