"""An exported model as a target: ``path/to/model.onnx``, computed by onnxruntime on one thread."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np

from mha_parity.core.candidate import TargetError
from mha_parity.core.parameters import Role
from mha_parity.targets import parameters
from mha_parity.targets.backends.numpy_arrays import NumpyArrays
from mha_parity.targets.conventions.signatures import by_letter

SUFFIX = ".onnx"
ROWS = ("query", "key", "value")
# The axes of q, k and v by their rank.
AXES = {
    4: ("batch", "heads_count", "length", "head_dim"),
    3: ("batch", "length", "head_dim"),
    2: ("length", "head_dim"),
}
SERVED = frozenset({"heads_count", "head_dim"})
# What onnxruntime calls the types that NumPy has too.
FLOATS = {"tensor(double)": "float64", "tensor(float)": "float32", "tensor(float16)": "float16"}
MASKS = FLOATS | {"tensor(bool)": "bool", "tensor(int64)": "int64", "tensor(int32)": "int32"}


class OfOneDtype(NumpyArrays):
    """NumPy's arrays of the one floating-point type that a graph declares."""

    memory: tuple[str, ...] = ("c",)

    def __init__(self, dtype: str) -> None:
        self.dtypes: tuple[str, ...] = (dtype,)


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a graph; ``shape`` has None where a size is dynamic."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class OnnxModel:
    """A model, called with the inputs of its graph in the order of ``rows``, then of the rest."""

    def __init__(self, text: str) -> None:
        """Load the model.

        Raises
        ------
        TargetError
            onnxruntime is not installed or cannot load it, or its inputs are no attention's.

        """
        self.__name__ = self.__qualname__ = text
        self._session = session(text)
        given = [_input(text, each) for each in self._session.get_inputs()]
        floats = [each for each in given if each.dtype in FLOATS.values() and not _is_mask(each)]
        kinds = {(len(each.shape), each.dtype) for each in floats}
        if len(floats) != len(ROWS) or len(kinds) != 1 or not {rank for rank, _ in kinds} & {*AXES}:
            listed = ", ".join(f"{each.name} {each.dtype} {_shown(each)}" for each in given)
            raise TargetError(
                f"got {text} with the inputs {listed or 'none'}, but should have q, k and v of one "
                "rank and dtype, and masks besides."
            )
        roles = by_letter([each.name for each in floats])
        self.rows = tuple(floats[roles.index(role)] for role in range(len(ROWS)))
        self.masks = tuple(each for each in given if each not in floats)
        self.library = OfOneDtype(floats[0].dtype)
        self.num_heads = 0 if len(floats[0].shape) == 4 else _num_heads(text, len(floats[0].shape))
        self.inputs = {re.sub(r"\W", "_", each.name): each for each in (*self.rows, *self.masks)}
        self.__signature__ = Signature(
            [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in self.inputs]
        )

    def sizes(self) -> dict[str, int]:
        """Return the fields of a case that the graph leaves no choice of: heads and their width.

        Raises
        ------
        TargetError
            Samples, queries or keys are static, or q, k and v differ.

        """
        found = {"heads_count": self.num_heads} if self.num_heads else {}
        for each in self.rows:
            names = AXES[len(each.shape)]
            for name, size in zip(names, each.shape, strict=True):
                if size is None:
                    continue
                whole = name == "head_dim" and self.num_heads
                width, rest = divmod(size, self.num_heads) if whole else (size, 0)
                if name not in SERVED or rest or found.setdefault(name, width) != width:
                    raise TargetError(
                        f"got {self.__name__} with {each.name} {_shown(each)}, but numbers of "
                        "samples, queries and keys should be dynamic, and heads and widths be "
                        "those of q; export it with dynamic axes."
                    )
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the first output, and the second where there is one."""
        bound = self.__signature__.bind(*args, **kwargs).arguments
        outputs = self._session.run(None, {self.inputs[n].name: a for n, a in bound.items()})
        return outputs[0] if len(outputs) == 1 else tuple(outputs[:2])


def session(text: str) -> Any:
    """Return onnxruntime's session of a model, on one thread."""
    if find_spec("onnxruntime") is None:
        raise TargetError(
            f"got {text}, which onnxruntime computes, but it is not installed; pip install "
            "'mha-parity[onnx]'."
        )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = Path(text).expanduser()
    if not path.is_file():
        raise TargetError(f"got the target {text!r}, but there is no file {path}; check the path.")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  (its exceptions have no base class of their own)
        said = str(error).partition("\n")[0].rstrip(".")
        raise TargetError(f"got the target {text!r}, but onnxruntime says: {said}.") from None


def _num_heads(text: str, rank: int) -> int:
    """Return into how many heads a graph reshapes rows of this rank by a constant; 1 if none."""
    import onnx

    graph = onnx.load(text, load_external_data=False).graph
    constants = {each.name: each for each in graph.initializer}
    made = {output: node for node in graph.node for output in node.output}

    def numbers(name: str) -> list[int]:
        """Return the numbers of a shape, 0 for each that is computed."""
        node = made.get(name)
        if name in constants:
            return [int(n) for n in onnx.numpy_helper.to_array(constants[name]).reshape(-1)]
        if node is not None and node.op_type == "Constant":
            given = onnx.helper.get_attribute_value(node.attribute[0])
            array = onnx.numpy_helper.to_array(given) if hasattr(given, "dims") else given
            return [int(n) for n in np.reshape(array, -1)]
        if node is not None and node.op_type == "Concat":
            return [n for each in node.input for n in numbers(each)]
        return [0]

    shapes = (numbers(node.input[1]) for node in graph.node if node.op_type == "Reshape")
    return next((s[-2] for s in shapes if len(s) == rank + 1 and s[-2] > 1), 1)


def _input(text: str, given: Any) -> Input:
    """Return an input of a session."""
    if given.type not in MASKS:
        raise TargetError(
            f"got {text} with the input {given.name} of type {given.type}, but should be one of "
            f"{', '.join(MASKS)}."
        )
    shape = tuple(size if isinstance(size, int) else None for size in given.shape)
    return Input(given.name, MASKS[given.type], shape)


def _is_mask(given: Input) -> bool:
    return parameters.role(given.name, "call") in {Role.MASK, Role.SCORE_BIAS, Role.LENGTHS}


def _shown(given: Input) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in given.shape)})"
