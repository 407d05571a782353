"""Reproducers: what torch makes of masks, and of rows that see nothing."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import nn

from mha_torch import _masks
from mha_torch._arrays import Array, to_array, to_tensor
from mha_torch._evidence import Evidence, largest, largest_difference, nan_share
from mha_torch._forward import multihead_attention
from mha_torch._gradients import gradients
from mha_torch._paths import Path
from mha_torch._sdpa import scaled_dot_product_attention
from mha_torch.example import Example, example

HEADS = 4
LENGTH = 5
BLIND = 2  # the row that sees nothing


def _case() -> Example:
    return example(1, heads=HEADS, queries=LENGTH, self_attention=True)


def _blind_row() -> Array:
    """Hide every key from one query."""
    hidden = np.zeros((LENGTH, LENGTH), dtype=bool)
    hidden[BLIND] = True
    return hidden


def _row(path: Path) -> Array:
    """Return what `path` answers for the row that sees nothing, less the output bias."""
    case = _case()
    output, _ = multihead_attention(
        *case.arrays, num_heads=HEADS, attn_mask=_blind_row(), path=path
    )
    return np.asarray(output[:, BLIND] - case.state["out_proj.bias"])


def fully_masked_row() -> Evidence:
    """Compare need_weights=True and False in train()."""
    nan, zero = nan_share(_row(Path.WEIGHTS)), largest(_row(Path.NO_WEIGHTS))
    numbers = {"weights: share of NaN": nan, "no-weights: largest value": zero}
    return Evidence(nan == 1 and zero == 0, numbers)


def fully_masked_row_fast() -> Evidence:
    """Compare the fast path with the slow one, need_weights=False in both."""
    nan, zero = nan_share(_row(Path.FAST)), largest(_row(Path.NO_WEIGHTS))
    numbers = {"fast: share of NaN": nan, "no-weights: largest value": zero}
    return Evidence(nan == 1 and zero == 0, numbers)


def fully_masked_row_identity() -> Evidence:
    """Call one module in eval() with x, x, x and with copies, and with batch_first=False."""
    case = _case()
    x, hidden = to_tensor(case.query, "float64", "x"), torch.from_numpy(_blind_row())
    state = {name: to_tensor(array, "float64", name) for name, array in case.state.items()}
    answers = {}
    for batch_first in (True, False):
        module = nn.MultiheadAttention(
            x.shape[-1], HEADS, batch_first=batch_first, dtype=torch.float64
        )
        module.load_state_dict(state)
        rows = x if batch_first else x.transpose(0, 1)
        for copied in (False, True):
            key = rows.clone() if copied else rows
            with torch.inference_mode():
                output, _ = module.eval()(rows, key, key, attn_mask=hidden, need_weights=False)
            blind = output[:, BLIND] if batch_first else output[BLIND]
            answers[batch_first, copied] = to_array(blind)
    numbers = {
        "f(x, x, x): share of NaN": nan_share(answers[True, False]),
        "f(x, x.clone(), ...): share of NaN": nan_share(answers[True, True]),
        "batch_first=False: share of NaN": nan_share(answers[False, False]),
    }
    return Evidence(len(set(numbers.values())) > 1, numbers)


def fully_masked_row_gradient() -> Evidence:
    """Hide all of sample 1 and differentiate a loss of sample 0 alone."""
    case = _case()
    padding = np.array([[False] * LENGTH, [True] * LENGTH])
    cotangent = np.zeros(case.query.shape)
    cotangent[0] = 1
    shares = {
        path: nan_share(
            gradients(
                *case.arrays, cotangent, num_heads=HEADS, key_padding_mask=padding, path=path
            )["in_proj_weight"]
        )
        for path in (Path.WEIGHTS, Path.NO_WEIGHTS)
    }
    numbers = {f"{path}: share of NaN in in_proj_weight": share for path, share in shares.items()}
    return Evidence(shares[Path.WEIGHTS] != shares[Path.NO_WEIGHTS], numbers)


def sentinel_row() -> Evidence:
    """Hide a whole row with -1e9 and with -inf, in float32 and in float64, on the pinned path.

    A common shift changes nothing in exact arithmetic. In float32 the logits of order 1 vanish in
    1e9, whose neighbours are 64 away.
    """
    uniform = _sentinel_weights(-1e9, "float32") - 1 / LENGTH
    unmasked = _sentinel_weights(-1e9, "float64") - _sentinel_weights(0.0, "float64")
    numbers = {
        "-1e9, float32: distance from uniform weights": largest(uniform),
        "-1e9, float64: distance from the row without mask": largest(unmasked),
        "-inf: share of NaN": nan_share(_sentinel_weights(-np.inf, "float64")),
    }
    return Evidence(numbers["-inf: share of NaN"] == 1 and not np.isnan(uniform).any(), numbers)


def _sentinel_weights(fill: float, dtype: str) -> Array:
    case = _case()
    rows = case.query.astype(dtype)
    state = {name: array.astype(dtype) for name, array in case.state.items()}
    mask = np.where(_blind_row(), fill, 0.0)
    _, weights = multihead_attention(
        rows, rows, rows, state, num_heads=HEADS, attn_mask=mask, dtype=dtype
    )
    return np.asarray(weights)[:, :, BLIND]


def boolean_meaning() -> Evidence:
    """Hand one boolean mask to the module and to F.scaled_dot_product_attention."""
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((3, 1, LENGTH, HEADS))
    mask = np.triu(np.ones((LENGTH, LENGTH), dtype=bool), k=1)
    query, key, value = inputs
    module, _ = multihead_attention(query, key, value, {}, num_heads=1, attn_mask=mask)
    heads = inputs[:, :, None]
    same, inverted = (
        scaled_dot_product_attention(*heads, attn_mask=given)[:, 0] for given in (mask, ~mask)
    )
    numbers = {
        "same mask: difference": largest_difference(module, same),
        "inverted mask: difference": largest_difference(module, inverted),
    }
    return Evidence(not numbers["same mask: difference"] < 1e-12, numbers)


def mask_kinds() -> Evidence:
    """Give a float attn_mask with a boolean key_padding_mask, and an integer mask."""
    module = nn.MultiheadAttention(6, 2)
    x, added = torch.ones(LENGTH, 1, 6), torch.zeros(LENGTH, LENGTH)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        module(x, x, x, attn_mask=added, key_padding_mask=torch.zeros(1, LENGTH).bool())
    refused = 0
    for dtype in (torch.int64, torch.uint8):
        try:
            module(x, x, x, attn_mask=added.to(dtype))
        except (AssertionError, RuntimeError, TypeError):
            refused += 1
    warned = sum("mismatched" in str(warning.message) for warning in said)
    numbers = {"float with bool: warnings": warned, "int64, uint8: refused": refused}
    return Evidence(warned > 0, numbers)


def empty_with_mask() -> Evidence:
    """Attend to no keys at all, once with an (empty) padding mask and once without."""
    x, nothing = torch.ones(2, LENGTH, 6), torch.ones(2, 0, 6)
    module = nn.MultiheadAttention(6, 2, batch_first=True)
    raised = {}
    for need_weights in (True, False):
        try:
            module(
                x,
                nothing,
                nothing,
                key_padding_mask=torch.zeros(2, 0).bool(),
                need_weights=need_weights,
            )
            raised[need_weights] = 0
        except RuntimeError:
            raised[need_weights] = 1
    numbers = {"weights: raised": raised[True], "no-weights: raised": raised[False]}
    return Evidence(raised[True] != raised[False], numbers)


def hint_contradicts_mask() -> Evidence:
    """Give is_causal=True with a mask that is not causal."""
    case, hidden = _case(), np.zeros((LENGTH, LENGTH), dtype=bool)
    hidden[1:, 0] = True
    answers = {
        path: multihead_attention(
            *case.arrays, num_heads=HEADS, attn_mask=hidden, is_causal=True, path=path
        )[0]
        for path in (Path.WEIGHTS, Path.NO_WEIGHTS, Path.FAST)
    }
    padded, _ = multihead_attention(
        *case.arrays,
        num_heads=HEADS,
        attn_mask=hidden,
        is_causal=True,
        path=Path.NO_WEIGHTS,
        key_padding_mask=np.zeros((2, LENGTH), dtype=bool),
    )
    pinned = answers[Path.WEIGHTS]
    numbers = {
        "no-weights: difference": largest_difference(pinned, answers[Path.NO_WEIGHTS]),
        "no-weights, padding mask all False: difference": largest_difference(pinned, padded),
        "fast: difference": largest_difference(pinned, answers[Path.FAST]),
    }
    return Evidence(numbers["no-weights: difference"] > 1e-6, numbers)


def hint_hides_appended_key() -> Evidence:
    """Give is_causal=True to a module with add_bias_kv, and to one with add_zero_attn."""
    numbers = {}
    for name, zero in (("add_bias_kv", False), ("add_zero_attn", True)):
        case = example(1, queries=LENGTH, bias_kv=not zero)
        pinned, hinted = (
            multihead_attention(
                *case.arrays, num_heads=3, is_causal=True, add_zero_attn=zero, path=path
            )[0]
            for path in (Path.WEIGHTS, Path.NO_WEIGHTS)
        )
        numbers[f"{name}: difference in row 0"] = largest_difference(pinned[:, 0], hinted[:, 0])
    return Evidence(max(numbers.values()) > 1e-6, numbers)


def hint_without_mask() -> Evidence:
    """Give is_causal=True and no mask to the module and to F.scaled_dot_product_attention."""
    module, x = nn.MultiheadAttention(6, 2), torch.ones(LENGTH, 1, 6)
    raised = {}
    for need_weights in (True, False):
        try:
            module(x, x, x, is_causal=True, need_weights=need_weights)
            raised[need_weights] = 0
        except RuntimeError:
            raised[need_weights] = 1
    heads = np.ones((1, 2, LENGTH, 3))
    causal = to_array(~_masks.causal(LENGTH, LENGTH))
    sdpa = largest_difference(
        scaled_dot_product_attention(heads, heads, heads, is_causal=True),
        scaled_dot_product_attention(heads, heads, heads, attn_mask=causal),
    )
    numbers = {
        "weights: raised": raised[True],
        "no-weights: raised": raised[False],
        "SDPA: difference from the explicit mask": sdpa,
    }
    return Evidence(raised[True] + raised[False] > 0, numbers)
