"""The weights of a layer in the initialisers of a graph: which of them is which projection.

Their names decide where they tell all of q, k and v, as in a state dict. Elsewhere it is decided by
where they are used: in the product that the softmax takes, in that with its output, or after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.layers.weight_packing import ROWS, ProjectionSlot, names_output, unpack
from mha_parity.targets.static.projection_names import parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.targets.instances.instance import Entry


# Attributes of the operators that are attention as a whole.
HEADS = ("q_num_heads", "num_heads")


@dataclass(frozen=True, slots=True)
class OnnxLinear:
    """A product with an initialiser of two axes, and the bias that is added; "" for none.

    ``slot.transposed``: the weight is (in, out).
    """

    slot: ProjectionSlot
    bias: str = ""

    def of(self, *held: str) -> OnnxLinear:
        """Return it as that of these projections."""
        return replace(self, slot=replace(self.slot, parts=held))

    def with_packing(self, packing: str) -> OnnxLinear:
        """Return it with packed rows that lie so."""
        return (
            replace(self, slot=replace(self.slot, packing=packing))
            if len(self.slot.parts) > 1
            else self
        )


class Graph:
    """The nodes of a graph by what they make, and its initialisers as arrays."""

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self._model, graph = model, model.graph
        _own_initialisers(graph)
        self.nodes = list(graph.node)
        self.made = {output: node for node in graph.node for output in node.output}
        self.arrays: dict[str, Array] = {
            each.name: numpy_helper.to_array(each) for each in graph.initializer
        }
        self.linears = {
            each.output[0]: found for each in self.nodes if (found := self._linear(each))
        }

    def with_inputs(self, names: Iterable[str]) -> bytes:
        """Return the model with these initialisers as inputs, so that others can be given."""
        from onnx import ModelProto, helper

        opened = ModelProto()
        opened.CopyFrom(self._model)
        for name in names:
            kind = helper.np_dtype_to_tensor_dtype(self.arrays[name].dtype)
            shape = self.arrays[name].shape
            opened.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        return bytes(opened.SerializeToString())

    @cached_property
    def layer(self) -> tuple[OnnxLinear, ...]:
        """The Linears of q, k, v and perhaps the output; () where there are none."""
        found = tuple(self._by_names())
        held = {part for each in found for part in each.slot.parts}
        return found if {*ROWS} <= held else tuple(self._by_use())

    def entries(self, heads: int) -> Iterator[Entry]:
        """Yield which weights the initialisers of the layer hold."""
        for each in self.layer:
            slot = each.slot
            held = unpack(slot, self.arrays[slot.name], heads)
            yield slot.name, {f"w_{part}": array for part, array in held.items()}
            if each.bias:
                held = unpack(slot, self.arrays[each.bias].reshape(-1), heads)
                yield each.bias, {f"b_{part}": array for part, array in held.items()}

    def num_heads(self, width: int, rank: int) -> int:
        """Return into how many heads an attribute or a Reshape parts rows of this width.

        1 where nothing parts the rows of the one softmax, 0 where nothing says it. Of a width that
        is not known (0), only a Reshape that makes one axis more counts.
        """
        stated = [a.i for n in self.nodes for a in n.attribute if a.name in HEADS]
        if stated:
            return int(stated[0])
        shapes = [self._numbers(n.input[1]) for n in self.nodes if n.op_type == "Reshape"]
        for shape in (each for each in shapes if len(each) > 2):
            heads, last = shape[-2:]
            whole = len(shape) == rank + 1 if not width else heads * last in {width, 3 * width}
            if heads > 1 and last != width and (whole or (last < 1 and width % heads == 0)):
                return heads
        for last in (each[-1] for each in shapes if len(each) > 2):
            if 0 < last < width and width % last == 0:
                return width // last
        kinds = [each.op_type for each in self.nodes]
        return 1 if kinds.count("Softmax") == 1 and not {*kinds} & {"Reshape", "Split"} else 0

    def _numbers(self, name: str) -> list[int]:
        """Return the numbers of a shape, 0 for each that is computed."""
        from onnx import helper, numpy_helper

        node = self.made.get(name)
        if name in self.arrays:
            return [int(n) for n in self.arrays[name].reshape(-1)]
        if node is not None and node.op_type == "Constant":
            given = helper.get_attribute_value(node.attribute[0])
            array = numpy_helper.to_array(given) if hasattr(given, "dims") else given
            return [int(n) for n in np.reshape(array, -1)]
        if node is not None and node.op_type == "Concat":
            return [n for each in node.input for n in self._numbers(each)]
        return [0]

    def _by_names(self) -> Iterator[OnnxLinear]:
        for each in self.linears.values():
            name = each.slot.name
            held = parts(name) or (("out",) if names_output(name) else ())
            if held:
                yield each.of(*held)

    def _by_use(self) -> Iterator[OnnxLinear]:
        """Yield the Linears around the softmax."""
        softmax = next((each for each in self.nodes if each.op_type == "Softmax"), None)
        if softmax is None:
            return
        scores = self._product(softmax.input[0])
        mixed = next(
            (each for each in self.nodes if each.op_type == "MatMul"
             and self._reaches(each.input[0], softmax.output[0])), None,
        )  # fmt: skip
        if scores is None or mixed is None:
            return
        ends = [self._before(name) for name in (*scores.input, mixed.input[1])]
        if None in ends:
            return
        packed = len({*ends}) == 1
        for end, part in ((ends[0], ROWS),) if packed else zip(ends, ROWS, strict=True):
            yield self.linears[str(end)].of(*part)
        for end, each in self.linears.items():
            if end not in ends and self._reaches(end, softmax.output[0]):
                yield each.of("out")
                return

    def _product(self, name: str) -> Any:
        """Return the product of two computed arrays that a value comes from."""
        node = self.made.get(name)
        while node is not None and node.op_type != "MatMul":
            computed = [each for each in node.input if each in self.made]
            data = [each for each in computed if self._is_product(each)]
            node = self.made.get((data or computed or [""])[0])
        return node

    def _is_product(self, name: str) -> bool:
        return any(node.op_type == "MatMul" for node in self._ancestors(name))

    def _before(self, name: str) -> str | None:
        """Return the output of the nearest Linear that a value comes from, by breadth."""
        made = (each for node in self._ancestors(name) for each in node.output)
        return next((each for each in made if each in self.linears), None)

    def _reaches(self, name: str, source: str) -> bool:
        return any(source in node.output for node in self._ancestors(name))

    def _ancestors(self, name: str) -> Iterator[Any]:
        names = [name]
        for each in names:
            node = self.made.get(each)
            if node is not None:
                yield node
                names += [n for n in node.input if n not in names]

    def _linear(self, node: Any) -> OnnxLinear | None:
        """Return what a product with an initialiser is."""
        scaled = any(each.name in {"alpha", "beta"} and each.f != 1 for each in node.attribute)
        if node.op_type not in {"MatMul", "Gemm"} or scaled:
            return None
        name, transposed = node.input[1], True
        before = self.made.get(name)
        if before is not None and before.op_type == "Transpose":
            name, transposed = before.input[0], False
        if any(each.name == "transB" and each.i for each in node.attribute):
            transposed = not transposed
        if name not in self.arrays or self.arrays[name].ndim != 2:
            return None
        width = self.arrays[name].shape[1 if transposed else 0]
        bias = node.input[2] if len(node.input) > 2 else self._added(node.output[0], width)
        return OnnxLinear(ProjectionSlot(name, (), transposed=transposed), bias)

    def _added(self, name: str, width: int) -> str:
        """Return the initialiser, ``width`` numbers in its last axis, that is added to a value."""
        for node in self.nodes:
            if node.op_type == "Add" and name in node.input:
                for each in node.input:
                    array = self.arrays.get(each)
                    if array is not None and array.shape[-1:] == (width,) == (array.size,):
                        return str(each)
        return ""


def _own_initialisers(graph: Any) -> None:
    """Give each Identity of an initialiser one of its own: exporters let equal ones be shared."""
    arrays = {each.name: each for each in graph.initializer}
    for node in [each for each in graph.node if each.op_type == "Identity"]:
        if node.input[0] in arrays:
            own = graph.initializer.add()
            own.CopyFrom(arrays[node.input[0]])
            own.name = node.output[0]
            graph.node.remove(node)
