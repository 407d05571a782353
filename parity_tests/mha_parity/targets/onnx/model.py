"""An exported model as a target: ``path/to/model.onnx``, computed by onnxruntime on one thread."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import TargetError
from mha_parity.core.parameters import Role
from mha_parity.targets.backends.numpy_arrays import NumpyArrays
from mha_parity.targets.onnx.weights import Graph
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.signatures import by_letter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array

SUFFIX = ".onnx"
# The axes of q, k and v by their rank.
AXES = {
    4: ("batch", "heads_count", "length", "head_dim"),
    3: ("batch", "length", "head_dim"),
    2: ("length", "head_dim"),
}
DYNAMIC = frozenset({"batch", "length"})
# What onnxruntime calls the types that NumPy has too.
FLOATS = {"tensor(double)": "float64", "tensor(float)": "float32", "tensor(float16)": "float16"}
MASKS = FLOATS | {"tensor(bool)": "bool", "tensor(int64)": "int64", "tensor(int32)": "int32"}


class SingleDtypeArrays(NumpyArrays):
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
        self.graph = _graph(text)
        self._opened: Any = None
        given = [_input(text, each) for each in self._session.get_inputs()]
        floats = [each for each in given if each.dtype in FLOATS.values() and not _is_mask(each)]
        counts = (1, 2, 3) if self.graph.layer else (3,)
        kinds = {(len(each.shape), each.dtype) for each in floats}
        ranks = {2, 3} if self.graph.layer else {*AXES}
        if len(floats) not in counts or len(kinds) != 1 or not {rank for rank, _ in kinds} & ranks:
            listed = ", ".join(f"{each.name} {each.dtype} {_shown(each)}" for each in given)
            raise TargetError(
                f"got {text} with the inputs {listed or 'none'}, but should have q, k and v of one "
                "rank and dtype, and masks besides, or rows of a layer with weights in the graph."
            )
        roles = by_letter([each.name for each in floats]) if len(floats) == 3 else (0, 1, 2)
        self.rows = tuple(floats[roles.index(role)] for role in range(len(floats)))
        for each in self.rows:
            leading = zip(AXES[len(each.shape)], each.shape, strict=True)
            if any(size is not None for name, size in leading if name in DYNAMIC):
                raise TargetError(
                    f"got {text} with {each.name} {_shown(each)}, but the numbers of samples, "
                    "queries and keys should be dynamic; export it with dynamic axes."
                )
        self.masks = tuple(each for each in given if each not in floats)
        self.library = SingleDtypeArrays(floats[0].dtype)
        self.num_heads = 0  # of rank 4 they are an axis
        self.inputs = {re.sub(r"\W", "_", each.name): each for each in (*self.rows, *self.masks)}
        self.__signature__ = Signature(
            [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in self.inputs]
        )

    def find_num_heads(self, given: int | None) -> int:
        """Return the number of heads: what is given, or what the graph says; 0 if it is an axis.

        Raises
        ------
        TargetError
            The graph does not say it.

        """
        shape = self.rows[0].shape
        if len(shape) == 4:
            return 0
        found = given or self.graph.num_heads(shape[-1] or 0, len(shape))
        if not found:
            raise TargetError(
                f"got {self.__name__}, but no attribute and no constant of a Reshape says how many "
                "heads it has; pass --num-heads N."
            )
        return found

    def sizes(self) -> dict[str, int]:
        """Return the fields of a case that the graph leaves no choice of: heads and their width.

        Raises
        ------
        TargetError
            q, k and v differ.

        """
        found = {"heads_count": self.num_heads} if self.num_heads else {}
        for each in self.rows:
            names = AXES[len(each.shape)]
            for name, size in zip(names, each.shape, strict=True):
                if size is None:
                    continue
                whole = name == "head_dim" and self.num_heads
                width, rest = divmod(size, self.num_heads) if whole else (size, 0)
                if rest or found.setdefault(name, width) != width:
                    raise TargetError(
                        f"got {self.__name__} with {each.name} {_shown(each)}, but should have the "
                        f"{name} {found.get(name)} of q, and {self.num_heads or 1} heads."
                    )
        return found

    def __call__(
        self, *args: Any, weights: Mapping[str, Array] | None = None, **kwargs: Any
    ) -> Any:
        """Return the first output, and the second where there is one.

        ``weights`` stand in for initialisers of these names; without them the model is as it is.
        """
        bound = self.__signature__.bind(*args, **kwargs).arguments
        fed = {self.inputs[name].name: array for name, array in bound.items()}
        if weights and self._opened is None:
            self._opened = session(self.__name__, self.graph.with_inputs(weights))
        asked = self._opened if weights else self._session
        outputs = asked.run(None, fed | dict(weights or {}))
        return outputs[0] if len(outputs) == 1 else tuple(outputs[:2])


def _graph(text: str) -> Graph:
    import onnx

    return Graph(onnx.load(Path(text).expanduser()))


def session(text: str, model: bytes | None = None) -> Any:
    """Return onnxruntime's session of a file, or of the bytes of a model, on one thread."""
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        raise TargetError(
            f"got {text}, but onnx and onnxruntime are not both installed; pip install "
            "'mha-parity[onnx]'."
        )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails raises as well
    path = Path(text).expanduser()
    if not path.is_file():
        raise TargetError(f"got the target {text!r}, but there is no file {path}; check the path.")
    try:
        return onnxruntime.InferenceSession(
            model or path, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # noqa: BLE001  (its exceptions have no base class of their own)
        said = str(error).partition("\n")[0].rstrip(".")
        raise TargetError(f"got the target {text!r}, but onnxruntime says: {said}.") from None


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
    return call_parameters.role(given.name, "call") in {
        Role.MASK,
        Role.SCORE_BIAS,
        Role.LENGTHS,
    }


def _shown(given: Input) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in given.shape)})"
