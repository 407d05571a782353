"""Reproducers: NaN, precision, dropout, lengths, and relatives of the module."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as torch_sdpa

from mha_torch import _kernels
from mha_torch._arrays import DTYPES, numpy_dtype
from mha_torch._evidence import Evidence, largest, largest_difference, nan_share
from mha_torch._forward import multihead_attention
from mha_torch._paths import Path
from mha_torch.example import example

HEADS = 4
SLOW = (Path.WEIGHTS, Path.NO_WEIGHTS, Path.SDPA_MATH, Path.SDPA_FLASH)


def nan_query() -> Evidence:
    """Put one NaN into one query, and look from how many keys on the answer is NaN.

    The flash kernel takes the maximum of a row by vector registers, where NaN stays, and what is
    left over by comparisons, where NaN is lost.
    """
    numbers = {f"{path}: NaN from this many keys on": _first_nan(path) for path in SLOW}
    return Evidence(len(set(numbers.values())) > 1, numbers)


def _first_nan(path: Path) -> float:
    """Return the least number of keys, up to 64, that give NaN for a NaN in the query."""
    for keys in range(1, 65):
        case = example(2, keys=keys)
        query = case.query.copy()
        query[1, 3, 2] = np.nan
        output, _ = multihead_attention(
            query, case.key, case.value, case.state, num_heads=case.num_heads, path=path
        )
        if np.isnan(output[1, 3]).all():
            return keys
    return math.inf


def nan_at_masked_key() -> Evidence:
    """Put one NaN into one key and its value, and hide that key from everyone."""
    case = example(3, heads=HEADS, self_attention=True)
    poisoned = case.query.copy()
    poisoned[1, 4, 2] = np.nan
    padding = np.zeros(poisoned.shape[:2], dtype=bool)
    padding[1, 4] = True
    numbers = {}
    for path in Path:
        output, _ = multihead_attention(
            poisoned,
            poisoned,
            poisoned,
            case.state,
            num_heads=HEADS,
            key_padding_mask=padding,
            path=path,
        )
        numbers[f"{path}: share of NaN in the other rows"] = nan_share(output[1, :4])
    return Evidence(max(numbers.values()) > 0, numbers)


def key_value_lengths() -> Evidence:
    """Give the flash and the math kernel twelve keys and eleven values.

    With more values than keys the flash kernel reads past the keys, so that is not tried here.
    """
    rng = np.random.default_rng(4)
    query, key, value = (
        torch.from_numpy(rng.standard_normal((2, 3, length, 7))) for length in (5, 12, 11)
    )
    with _kernels.forced(_kernels.FLASH):
        answered = torch_sdpa(query, key, value)
        shortened = torch_sdpa(query, key[:, :, :11], value)
    try:
        with _kernels.forced(_kernels.MATH):
            torch_sdpa(query, key, value)
        refused = 0
    except RuntimeError:
        refused = 1
    numbers = {
        "flash: difference from using the first 11 keys": largest_difference(
            answered.numpy(), shortened.numpy()
        ),
        "math: raised": refused,
    }
    return Evidence(refused == 1, numbers)


def mask_dtype() -> Evidence:
    """Give rows of float64 and a mask of float32, all 0, to the flash and the math kernel.

    From as many rows on as a vector of the processor holds numbers of float32, 8 with AVX2 and 16
    with AVX-512, the flash kernel answers otherwise than without that mask, and says nothing.
    """
    rng = np.random.default_rng(6)
    numbers = {}
    for rows in (7, 16):
        q, k, v = (torch.from_numpy(rng.standard_normal((1, 2, rows, 8))) for _ in range(3))
        # As float64 it would have twice the bytes: those behind it are numbers, and not chance.
        memory = torch.from_numpy(rng.standard_normal(rows * rows))
        mask = memory.view(torch.float32)[: rows * rows].zero_().view(rows, rows)
        for kernel in (_kernels.FLASH, _kernels.MATH):
            with _kernels.forced(kernel):
                with_mask, without = torch_sdpa(q, k, v, mask), torch_sdpa(q, k, v)
            name = "flash" if kernel is _kernels.FLASH else "math"
            numbers[f"{name}, {rows} rows: difference from no mask"] = largest_difference(
                with_mask.numpy(), without.numpy()
            )
    return Evidence(max(numbers.values()) > 1e-6, numbers)


def dropped_weights() -> Evidence:
    """Ask for the weights in train() with dropout 0.5, and sum the rows."""
    module = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
    x = torch.from_numpy(np.random.default_rng(5).standard_normal((1, 7, 6))).float()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        _, weights = module(x, x, x)
        _, undropped = module.eval()(x, x, x)
    numbers = {
        "train(): largest distance of a row sum from 1": largest(weights.sum(-1).numpy() - 1),
        "eval(): largest distance of a row sum from 1": largest(undropped.sum(-1).numpy() - 1),
    }
    return Evidence(max(numbers.values()) > 1e-3, numbers)


def precision_of_paths() -> Evidence:
    """Compare the paths with each other in each dtype; in units of that dtype's roundoff."""
    case = example(6, heads=HEADS, queries=13, self_attention=True)
    numbers = {}
    for name, dtype in DTYPES.items():
        rows = case.query.astype(numpy_dtype(name))
        state = {key: array.astype(numpy_dtype(name)) for key, array in case.state.items()}
        answers = {
            path: multihead_attention(
                rows, rows, rows, state, num_heads=HEADS, path=path, dtype=name
            )[0]
            for path in Path
        }
        pinned = answers[Path.WEIGHTS]
        farthest = max(largest_difference(pinned, answer) for answer in answers.values())
        numbers[f"{name}: largest difference in eps"] = farthest / torch.finfo(dtype).eps
    return Evidence(max(numbers.values()) > 0, numbers)


def row_independence() -> Evidence:
    """Reorder queries, and keys with values, in float32 with logits of standard deviation 16."""
    case = example(7, heads=HEADS, head_dim=16, queries=33, self_attention=True)
    x = case.query.astype(np.float32)
    state = {name: array.astype(np.float32) for name, array in case.state.items()}
    state["in_proj_weight"][:128] *= 4
    order = np.random.default_rng(7).permutation(33)
    numbers = {}
    for path in (Path.WEIGHTS, Path.NO_WEIGHTS):

        def answer(query: object, key: object, path: Path = path) -> np.ndarray:
            given, keys = np.asarray(query), np.asarray(key)
            return multihead_attention(
                given, keys, keys, state, num_heads=HEADS, path=path, dtype="float32"
            )[0]

        whole = answer(x, x.copy())
        numbers[f"{path}: queries reordered"] = largest_difference(
            whole[:, order], answer(x[:, order], x)
        )
        numbers[f"{path}: queries sliced"] = largest_difference(whole[:, :7], answer(x[:, :7], x))
        numbers[f"{path}: keys reordered"] = largest_difference(whole, answer(x, x[:, order]))
    return Evidence(max(numbers.values()) > 0, numbers)


def quantizable_sibling() -> Evidence:
    """Give torch.ao's quantizable module the weights of the plain one, in both layouts."""
    from torch.ao.nn.quantizable import MultiheadAttention as Quantizable

    numbers = {}
    for batch_first in (True, False):
        plain = nn.MultiheadAttention(6, 3, batch_first=batch_first)
        other = Quantizable(6, 3, batch_first=batch_first)
        for index, linear in enumerate((other.linear_Q, other.linear_K, other.linear_V)):
            rows = slice(6 * index, 6 * index + 6)
            linear.weight = nn.Parameter(plain.in_proj_weight[rows])
            linear.bias = nn.Parameter(plain.in_proj_bias[rows])
        other.out_proj.weight, other.out_proj.bias = plain.out_proj.weight, plain.out_proj.bias
        x = torch.from_numpy(np.random.default_rng(8).standard_normal((4, 5, 6))).float()
        with torch.no_grad():
            difference = largest_difference(plain(x, x, x)[0].numpy(), other(x, x, x)[0].numpy())
        numbers[f"batch_first={batch_first}: difference"] = difference
    return Evidence(max(numbers.values()) > 1e-3, numbers)


def initialisation() -> Evidence:
    """Compare the spread of initial query weights, packed and separate, at one width."""
    width = 64
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        packed = nn.MultiheadAttention(width, 4).in_proj_weight[:width]
        separate = nn.MultiheadAttention(width, 4, kdim=width - 1).q_proj_weight
    numbers = {
        "packed: largest weight": largest(packed.detach().numpy()),
        "separate: largest weight": largest(separate.detach().numpy()),
        "xavier bound of (64, 64)": math.sqrt(6 / (2 * width)),
    }
    ratio = numbers["separate: largest weight"] / numbers["packed: largest weight"]
    # 4096 uniform draws come within 1 % of their bound; the bounds differ by sqrt(2).
    return Evidence(ratio > 1.2, numbers)
