"""The two oracles agree on every feature, and a slip in either of them shows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from mha_torch import (
    OraclesDisagreeError,
    Path,
    agree,
    agree_sdpa,
    multihead_attention,
    scaled_dot_product_attention,
)
from mha_torch.example import example

SEEDS = range(5)
LAYOUTS = ("batch_first", "sequence_first", "unbatched")
N, L, S, H, D = 2, 5, 11, 3, 7

seeded = pytest.mark.parametrize("seed", SEEDS, ids="seed={}".format)
kinds = pytest.mark.parametrize("kind", ["none", "bool", "float", "bool and float"])
path_names = pytest.mark.parametrize("path", list(Path), ids=str)


def masks(seed: int, kind: str, *, keys: int = S, per_head: bool = False) -> dict[str, Any]:
    """Return masks of both places; key 0 stays visible to all, so that no row sees nothing."""
    rng = np.random.default_rng([seed, 77])
    shape = (N * H, L, keys) if per_head else (L, keys)
    hidden, padding = rng.random(shape) < 0.4, rng.random((N, keys)) < 0.3
    hidden[..., 0] = padding[:, 0] = False
    added = np.where(rng.random(shape) < 0.5, 0.0, rng.standard_normal(shape))
    added[hidden] = -np.inf
    return {
        "none": {},
        "bool": {"attn_mask": hidden, "key_padding_mask": padding},
        "float": {"attn_mask": added, "key_padding_mask": np.where(padding, -np.inf, 0.5)},
        "bool and float": {"attn_mask": added, "key_padding_mask": padding},
    }[kind]


@seeded
@kinds
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("appended", [(), ("bias_kv",), ("zero",), ("bias_kv", "zero")], ids=str)
def test_oracles_agree(seed: int, kind: str, layout: Any, appended: tuple[str, ...]) -> None:
    """Both oracles give one answer for every mask kind, layout, and appended key."""
    widths: dict[str, Any] = {"kdim": 13, "vdim": 17} if seed % 2 else {}
    case = example(seed, bias=seed != 3, bias_kv="bias_kv" in appended, **widths)
    options = masks(seed, kind, per_head=seed % 3 == 0)
    units = agree(
        *case.arrays,
        num_heads=H,
        add_zero_attn="zero" in appended,
        layout=layout,
        **options,
    )
    assert 0 < units < 1


@seeded
@path_names
def test_paths_agree_where_torch_promises(seed: int, path: Path) -> None:
    """Without fully masked rows, NaN, or hints, all of torch's paths give the same attention."""
    case = example(seed, heads=4, queries=S, self_attention=True)
    hidden = np.triu(np.ones((S, S), dtype=bool), k=1)
    padding = np.arange(S) >= np.array([[S], [6]])
    options: list[dict[str, Any]] = [
        {},
        {"attn_mask": hidden},
        {"key_padding_mask": padding},
        {"is_causal": True},
    ]
    assert agree(*case.arrays, num_heads=4, path=path, **options[seed % 4]) < 1


@seeded
def test_oracles_agree_without_projections(seed: int) -> None:
    """A state without weights is the attention of the inputs as they are."""
    case = example(seed)
    assert agree(case.query, case.key, case.value, {}, num_heads=H) < 1


@seeded
@pytest.mark.parametrize("factor", [1e-300, 1e-3, 10.0, 1e5, 1e150], ids="times={:g}".format)
def test_oracles_agree_on_every_magnitude(seed: int, factor: float) -> None:
    """Peaky, huge and tiny logits are agreed upon: the bound grows with what rounding can do."""
    case = example(seed)
    assert agree(factor * case.query, case.key, case.value, case.state, num_heads=H) < 1


@seeded
def test_oracles_agree_on_rows_that_see_nothing(seed: int) -> None:
    """A fully masked row is NaN in both oracles, and in no other row."""
    case, hidden = example(seed), np.zeros((N * H, L, S), dtype=bool)
    hidden[4, 3] = True
    assert agree(*case.arrays, num_heads=H, attn_mask=hidden) < 1
    output, weights = multihead_attention(*case.arrays, num_heads=H, attn_mask=hidden)
    assert weights is not None
    assert [[1, 3]] == np.argwhere(np.isnan(output).any(axis=-1)).tolist()
    assert [[1, 1, 3]] == np.argwhere(np.isnan(weights).any(axis=-1)).tolist()


@seeded
def test_no_projection_keeps_nan_in_its_head(seed: int) -> None:
    """An absent output projection does not spread the NaN of one head over the others."""
    case, hidden = example(seed), np.zeros((N * H, L, S), dtype=bool)
    hidden[4, 3] = True
    assert agree(case.query, case.key, case.value, {}, num_heads=H, attn_mask=hidden) < 1
    output, _ = multihead_attention(
        case.query, case.key, case.value, {}, num_heads=H, attn_mask=hidden
    )
    assert list(range(D, 2 * D)) == np.flatnonzero(np.isnan(output[1, 3])).tolist()


@seeded
@pytest.mark.parametrize(
    ("samples", "queries", "keys"), [(0, 5, 11), (2, 0, 11), (2, 5, 0), (1, 1, 1)]
)
def test_oracles_agree_on_smallest_sizes(seed: int, samples: int, queries: int, keys: int) -> None:
    """Nothing at all, and one of everything, are problems too."""
    case = example(seed, samples=samples, queries=queries, keys=keys)
    assert agree(*case.arrays, num_heads=H) < 1


@seeded
@pytest.mark.parametrize("scale", [None, 0.31, -2.0])
@pytest.mark.parametrize("feature", ["plain", "causal", "keep", "float", "gqa"])
def test_oracles_agree_on_sdpa(seed: int, scale: float | None, feature: str) -> None:
    """Both oracles give one scaled dot-product attention; here True in a mask keeps."""
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((N, 6, L, D)), rng.standard_normal((N, 6, S, D))
    value = rng.standard_normal((N, 6, S, 13))
    keep = rng.random((N, 1, L, S)) < 0.5
    keep[0, 0, 2] = False
    features: dict[str, dict[str, Any]] = {
        "plain": {},
        "causal": {"is_causal": True},
        "keep": {"attn_mask": keep},
        "float": {"attn_mask": rng.standard_normal((L, S))},
        "gqa": {"enable_gqa": True},
    }
    groups = 2 if feature == "gqa" else 6
    key, value = key[:, :groups], value[:, :groups]
    assert agree_sdpa(query, key, value, scale=scale, **features[feature]) < 1


# --- what must be caught


def changed_state(name: str, change: Any) -> Any:
    """Return torch's answer to a problem whose weights were changed on the way."""

    def subject(query: Any, key: Any, value: Any, state: Any, **options: Any) -> Any:
        return multihead_attention(
            query, key, value, {**state, name: change(state[name])}, **options
        )

    return subject


def one_weight_off(weight: Any) -> Any:
    """Move one weight by a relative 1e-11."""
    return weight * (1 + 1e-11 * (np.arange(weight.size) == 17).reshape(weight.shape))


def rescaled(weight: Any) -> Any:
    """Turn the scale 1/sqrt(D) into 1/sqrt(E) by way of the query rows of in_proj."""
    return np.concatenate([weight[: H * D] / np.sqrt(H), weight[H * D :]])


def interleaved(weight: Any) -> Any:
    """Give head h the features h, h + H, ... instead of a block."""
    order = np.arange(H * D).reshape(D, H).T.ravel()
    return np.concatenate([part[order] for part in np.split(weight, 3)])


def exchanged(weight: Any) -> Any:
    """Project queries as keys and keys as queries."""
    queries, keys, values = np.split(weight, 3)
    return np.concatenate([keys, queries, values])


def inverted_mask(*arrays: Any, **options: Any) -> Any:
    """Take True for keep."""
    query, key, value, state = arrays
    options["attn_mask"] = ~options["attn_mask"]
    return multihead_attention(query, key, value, state, **options)


def half_precision(*arrays: Any, **options: Any) -> Any:
    """Compute in float32 and say nothing."""
    query, key, value, state = arrays
    narrow = {name: array.astype(np.float32) for name, array in state.items()}
    query, key, value = (array.astype(np.float32) for array in (query, key, value))
    return multihead_attention(query, key, value, narrow, dtype="float32", **options)


def nan_as_zero(*arrays: Any, **options: Any) -> Any:
    """Answer with numbers where the oracle has NaN."""
    output, weights = multihead_attention(*arrays, **options)
    return np.nan_to_num(output), weights


def transposed(*arrays: Any, **options: Any) -> Any:
    """Answer in the layout (L, N, E)."""
    return multihead_attention(*arrays, **options)[0].swapaxes(0, 1), None


BROKEN = {
    "one weight off by 1e-11": changed_state("in_proj_weight", one_weight_off),
    "scaled by 1/sqrt(embed_dim)": changed_state("in_proj_weight", rescaled),
    "heads interleaved": changed_state("in_proj_weight", interleaved),
    "queries and keys exchanged": changed_state("in_proj_weight", exchanged),
    "mask inverted": inverted_mask,
    "float32 inside": half_precision,
    "nan as zero": nan_as_zero,
    "samples as rows": transposed,
}


@seeded
@pytest.mark.parametrize("name", BROKEN)
def test_broken_oracle_is_caught(seed: int, name: str) -> None:
    """Each way to be wrong, down to the eleventh digit of one weight, passes the bound."""
    case, hidden = example(seed), np.zeros((L, S), dtype=bool)
    hidden[1, 4] = hidden[2] = True
    with pytest.raises(OraclesDisagreeError, match=r"torch gives .* plain NumPy"):
        agree(*case.arrays, num_heads=H, attn_mask=hidden, oracle=BROKEN[name])


@pytest.mark.parametrize("weights", [False, True], ids=["output", "weights"])
def test_disagreement_names_its_place(weights: bool) -> None:
    """The message says which element differs, both values, and what rounding would explain."""

    def subject(*arrays: Any, **options: Any) -> Any:
        answers = list(multihead_attention(*arrays, **options))
        answers[weights] = answers[weights].copy()  # type: ignore[union-attr] # WEIGHTS gives them
        answers[weights][1, 2, 3] += 1e-9  # type: ignore[index] # as above
        return tuple(answers)

    where = r"weights\[1, 2, 3, \d+\]" if weights else r"output\[1, 2, 3\]"
    with pytest.raises(OraclesDisagreeError, match=where + ".*rounding explains a difference of"):
        agree(*example(0).arrays, num_heads=H, oracle=subject)


@seeded
def test_broken_sdpa_is_caught(seed: int) -> None:
    """A scale that is off by one part in 1e12 passes the bound."""
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((N, H, size, D)) for size in (L, S, S)]
    broken = partial(scaled_dot_product_attention, scale=(1 + 1e-12) / np.sqrt(D))
    with pytest.raises(OraclesDisagreeError, match="output"):
        agree_sdpa(*arrays, oracle=broken)


def test_the_causal_mask_is_of_the_sequence_in_every_layout() -> None:
    """With 5 rows of 2 samples the mask is 5 x 5, wherever the samples stand."""
    case = example(3, self_attention=True)
    outputs = [
        multihead_attention(*case.arrays, num_heads=H, is_causal=True, layout=layout)[0]
        for layout in ("batch_first", "sequence_first", "unbatched")
    ]
    for other in outputs[1:]:
        np.testing.assert_allclose(other, outputs[0], rtol=1e-12)
