"""Build the call on projected heads that is timed: NumPy's attention, or one of torch's kernels.

Heads are (N, H, L, D), as both libraries take them; masks are those of
torch.nn.functional.scaled_dot_product_attention, True = keep.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.bench.workload import Workload, causal_mask
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.candidate import Answer

if TYPE_CHECKING:
    from mha_parity.bench.contenders import Contender
    from mha_parity.bench.task_arrays import TaskArrays
    from mha_parity.core.arrays import Array

INPUTS = ("query", "key", "value")


def numpy_kernel(_: Contender, task_arrays: TaskArrays) -> Workload:
    """Return the workload of NumPy's attention, with its backward pass where the task has one."""
    import mha_numpy

    q, k, v = _heads(task_arrays)
    options = _options(task_arrays)
    if not task_arrays.task.backward:
        return Workload(lambda: mha_numpy.scaled_dot_product_attention(q, k, v, **options), _answer)
    cotangent = _split(task_arrays, task_arrays.cotangent)

    def call() -> Any:
        output, pull = mha_numpy.scaled_dot_product_attention_vjp(q, k, v, **options)
        return output, pull(cotangent)

    return Workload(call, lambda result: _answer(result[0], [result[1][name] for name in INPUTS]))


def torch_kernel(contender: Contender, task_arrays: TaskArrays) -> Workload:
    """Return the workload of torch's function, by its own choice of a kernel or by a given one."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def chosen() -> AbstractContextManager[None]:
        name = contender.kernel
        return sdpa_kernel(getattr(SDPBackend, name)) if name else nullcontext()

    heads = q, k, v = [torch.from_numpy(each) for each in _heads(task_arrays)]
    options: dict[str, Any] = {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in _options(task_arrays).items()
    }
    attend = torch.nn.functional.scaled_dot_product_attention
    if not task_arrays.task.backward:

        def forward() -> Any:
            with torch.inference_mode(), chosen():
                return attend(q, k, v, **options)

        return Workload(forward, lambda output: _answer(output.numpy()))
    cotangent = torch.from_numpy(_split(task_arrays, task_arrays.cotangent))
    for each in heads:
        each.requires_grad_()

    def backward() -> Any:
        with chosen():
            output = attend(q, k, v, **options)
            return output.detach(), torch.autograd.grad(output, heads, cotangent)

    return Workload(
        backward,
        lambda result: _answer(result[0].numpy(), [each.numpy() for each in result[1]]),
    )


def _heads(task_arrays: TaskArrays) -> list[Array]:
    return [_split(task_arrays, rows) for rows in task_arrays.rows]


def _split(task_arrays: TaskArrays, rows: Array | None) -> Array:
    """Return rows (N, L, E) as heads (N, H, L, D), each in one piece of memory."""
    assert rows is not None  # noqa: S101  (a task with a backward pass has a cotangent)
    return np.ascontiguousarray(split_heads(rows, task_arrays.task.size.num_heads))


def _options(task_arrays: TaskArrays) -> dict[str, Any]:
    """Return the masks of the call: torch takes is_causal or attn_mask, not both."""
    task, padding = task_arrays.task, task_arrays.key_padding_mask
    if padding is None:
        return {"is_causal": True} if task.causal else {}
    keep = ~padding[:, None, None, :]
    return {"attn_mask": keep & ~causal_mask(task.size.length) if task.causal else keep}


def _answer(output: Array, gradients: list[Array] | None = None) -> Answer:
    """Return the answer to heads, with its gradients if there are any."""
    merged = None
    if gradients is not None:
        merged = {n: merge_heads(each) for n, each in zip(INPUTS, gradients, strict=True)}
    return Answer(output=merge_heads(output), gradients=merged)
