"""Build the call that is timed: a layer that holds the task's weights, and its arguments."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.bench.kernel_calls import numpy_kernel, torch_kernel
from mha_parity.bench.workload import Workload, causal_mask
from mha_parity.core.candidate import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.bench.contenders import Contender
    from mha_parity.bench.task_arrays import TaskArrays
    from mha_parity.targets.convention_base.convention import Convention


def build_workload(
    contender: Contender, task_arrays: TaskArrays, bound: Convention | None = None
) -> Workload:
    """Return the contender's workload for one task.

    Raises
    ------
    NotImplementedError
        The contender cannot do this, for the reason given.

    """
    if bound is not None:
        return _target(bound, task_arrays)
    if contender.form == "qkv":
        kernel = numpy_kernel if contender.library == "numpy" else torch_kernel
        return kernel(contender, task_arrays)
    layer = _numpy if contender.library == "numpy" else _torch
    return layer(contender, task_arrays)


def _options(contender: Contender, task_arrays: TaskArrays) -> dict[str, Any]:
    """Return the keywords of the call, masks as NumPy's arrays."""
    options: dict[str, Any] = {"need_weights": contender.weights}
    if task_arrays.task.causal:
        mask = causal_mask(task_arrays.task.size.length)
        options |= {"attn_mask": mask, "is_causal": True}
    if task_arrays.key_padding_mask is not None:
        options["key_padding_mask"] = task_arrays.key_padding_mask
    return options


def _numpy(contender: Contender, task_arrays: TaskArrays) -> Workload:
    import mha_numpy

    size, x = task_arrays.task.size, task_arrays.x
    layer = mha_numpy.MultiheadAttention(
        size.embed_dim,
        size.num_heads,
        bias=task_arrays.case.bias == "yes",
        batch_first=True,
        dtype=task_arrays.task.dtype,
    )
    layer.eval()
    # Assigned, where load_state_dict would copy: the largest layer takes gigabytes.
    layer.in_proj_weight = task_arrays.state["in_proj_weight"]
    layer.in_proj_bias = task_arrays.state.get("in_proj_bias")
    layer.out_proj = type(layer.out_proj)(
        task_arrays.state["out_proj.weight"], task_arrays.state.get("out_proj.bias")
    )
    options = _options(contender, task_arrays)
    if task_arrays.task.backward:
        return _numpy_backward(layer, task_arrays, options)
    if contender.name == "numpy-prepared":
        prepared = layer.prepare()
        del options["need_weights"], layer
        return Workload(lambda: prepared(x, x, x, **options), lambda output: Answer(output=output))
    return Workload(
        lambda: layer(x, x, x, **options), lambda pair: Answer(output=pair[0], weights=pair[1])
    )


def _numpy_backward(layer: Any, task_arrays: TaskArrays, options: dict[str, Any]) -> Workload:
    x = task_arrays.x

    def call() -> Any:
        (output, weights), pull = layer.vjp(x, x, x, **options)
        return output, weights, pull(task_arrays.cotangent)

    return Workload(
        call, lambda result: Answer(output=result[0], weights=result[1], gradients=result[2])
    )


def _torch(contender: Contender, task_arrays: TaskArrays) -> Workload:
    import torch

    assert contender.path is not None  # noqa: S101  (torch's contenders all have one)
    size = task_arrays.task.size
    module = torch.nn.MultiheadAttention(
        size.embed_dim,
        size.num_heads,
        bias=task_arrays.case.bias == "yes",
        batch_first=True,
        device="meta",
        dtype=getattr(torch, task_arrays.task.dtype),
    )
    state = {name: torch.from_numpy(array) for name, array in task_arrays.state.items()}
    module.load_state_dict(state, assign=True)
    module.train(contender.path.training)
    x = torch.from_numpy(task_arrays.x)
    options = {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in _options(contender, task_arrays).items()
    }
    if task_arrays.task.backward:
        return _torch_backward(module, x, torch.from_numpy(task_arrays.cotangent), options)

    def call() -> Any:
        with torch.inference_mode():
            return module(x, x, x, **options)

    return Workload(call, _torch_answer)


def _torch_backward(module: Any, x: Any, cotangent: Any, options: dict[str, Any]) -> Workload:
    import torch

    asked = {"query": x.requires_grad_()}
    asked |= {name: each.requires_grad_() for name, each in module.named_parameters()}

    def call() -> Any:
        output, weights = module(x, x, x, **options)
        gradients = torch.autograd.grad(output, tuple(asked.values()), cotangent)
        return output.detach(), None if weights is None else weights.detach(), gradients

    def answer(result: Any) -> Answer:
        gradients = {name: each.numpy() for name, each in zip(asked, result[2], strict=True)}
        return replace(_torch_answer(result[:2]), gradients=gradients)

    return Workload(call, answer)


def _torch_answer(pair: tuple[Any, Any]) -> Answer:
    output, weights = pair
    return Answer(output=output.numpy(), weights=None if weights is None else weights.numpy())


def _target(bound: Convention, task_arrays: TaskArrays) -> Workload:
    """Return the call by the target's convention; of torch, without a record for gradients."""
    if task_arrays.task.backward:
        raise NotImplementedError("is timed forward alone")
    problem = task_arrays.problem()
    made = bound.prepare(problem)
    quiet: Callable[[], Any] = nullcontext
    if bound.library.name == "torch":
        import torch

        quiet = torch.no_grad

    def call() -> Any:
        args, kwargs = made.passed
        with quiet():
            return made.function(*args, **kwargs)

    return Workload(call, lambda result: bound.answer(problem, result))
