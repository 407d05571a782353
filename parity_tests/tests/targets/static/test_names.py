"""What names say: of weights which projection they are, of sizes what they count."""

from __future__ import annotations

import pytest

from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.argument_meanings import meanings


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("heads.0.key.weight", "k"), ("heads.0.get_keys.weight", "k"),
        ("query.linear.weight", "q"), ("q_lin.weight", "q"),
        ("W_query", "q"), ("toqueries.weight", "q"), ("c_attn.weight", "qkv"), ("W.o", "out"),
        ("in_proj_weight", "qkv"), ("to_kv.weight", "kv"), ("kqv.weight", "kqv"),
        ("heads.0.embeddings_to_queries_layer.weight", "q"),
        ("_Layer__qkv.weight", "qkv"), ("query_weights_list.0", "q"),
        ("qkv_nets.0.weight", "qkv"), ("rotary.inv_freq", ""), ("linears.3.weight", ""),
    ],
)  # fmt: skip
def test_names_of_weights(path: str, parts: str) -> None:
    """Affixes say nothing, the word between them says which projection it is."""
    expected = ("out",) if parts == "out" else tuple(parts)
    assert expected == names.parts(path)


def test_a_window_is_no_weight() -> None:
    """Though its name begins with the letter of weights."""
    assert not any(map(names.is_weight, ("window", "WINDOW_SIZE", "window_size")))


@pytest.mark.parametrize("path", ["b_q", "bias_q", "query.bias", "bq.data"])
def test_names_of_biases(path: str) -> None:
    """Those of a tensor of the target's own too."""
    assert ("q",) == names.bias_parts(path)


def test_names_that_are_alike_but_for_a_letter() -> None:
    """q, k and v are said by three names together, whatever surrounds the letter; not by one."""
    alike = ["Lq.0.weight", "Lk.0.weight", "Lv.0.weight", "Lo.weight", "K_rotation.1", "other"]
    found = names.parts_by_pattern([*alike, "Lq.1.weight", "Q_rotation.0", "V_rotation.0"])
    assert {"Lq.0.weight": ("q",), "Lq.1.weight": ("q",)}.items() <= found.items()
    assert ("k",) == found["K_rotation.1"]
    assert not {"Lo.weight", "other"} & found.keys()
    assert not names.parts_by_pattern(["Lq.0.weight", "Lk.0.weight"])


def test_names_of_constructors() -> None:
    """Rare names of sizes have their meanings, several where they are open."""
    read = {
        "model_dimension": "width", "hid_dim": "width", "n_feat": "width", "d_cond": "width",
        "emb": "width", "kv_heads": "kv_heads", "number_of_heads": "heads", "nhead": "heads",
        "dim_head": "head_dim", "head_embd": "head_dim", "context_length": "length",
        "attn_pdrop": "dropout", "max_T": "length", "max_tokens": "length",
        "n_positions": "length", "seq": "length", "max_heads": "heads", "jax_key": "random",
    }  # fmt: skip
    assert read == {name: meanings(name)[0] for name in read}
    assert ("head_dim", "heads") == meanings("head_size")
    assert ("head_dim", "width") == meanings("q_dim")
