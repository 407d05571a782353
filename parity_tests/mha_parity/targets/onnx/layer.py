"""A layer in a graph of ONNX: its weights are initialisers, its rows and masks inputs."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import NOT_ASKED, CandidateError, TargetError
from mha_parity.core.features import make_offer
from mha_parity.targets.calls.canonical_layout import lay_rows
from mha_parity.targets.calls.problem_weights import array_or_neutral
from mha_parity.targets.calls.target_call import Arguments, Call
from mha_parity.targets.convention_base.convention import PLAIN_LAYER, Convention
from mha_parity.targets.convention_base.returned_weights import weight_probes
from mha_parity.targets.instances.instance import own_weights
from mha_parity.targets.onnx.closeness import (
    graph_fit,
    refuse_unlike,
    settle_causal,
)
from mha_parity.targets.onnx.model import OnnxModel
from mha_parity.targets.static.projection_names import ROWS, parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.convention_base.convention import FeatureProbe

INPUTS = {1: ("self",), 2: ("self", "cross"), 3: ("self", "cross", "distinct")}
ORDERS = ("parts", "heads", "columns")  # of packed rows, as in ``packing``


class OnnxLayer(Convention):
    """A graph on x, or q, k and v, of rank 3 or 2, with W_q, W_k, W_v among its initialisers.

    Problems with its own weights go to the model as it is, others of its sizes to one whose
    initialisers are inputs. How rows and packed weights lie is what comes nearest to attention.
    """

    name = "onnx-layer"
    call = "FILE.onnx with the inputs x, or q, k, v, and masks, and the weights in the graph"

    def __init__(
        self, subject: Any, *, library: Library | None = None, path: str | None = None
    ) -> None:
        del library
        if not isinstance(subject, OnnxModel) or not subject.graph.layer:
            raise TargetError(
                "got no model with weights, but the convention onnx-layer asks one; name FILE.onnx."
            )
        super().__init__(subject, library=subject.library, path=path)
        self.filled = frozenset([*subject.inputs][: len(subject.rows)])
        self.own_weights = self._own
        self._looked = False

    def claims(self) -> Offer:
        """Return what the inputs and the weights say."""
        self._single = len(self.subject.rows[0].shape) == 2
        self._linears = self.subject.graph.layer
        self._own = self._read()
        plain = self.plain_case()
        biased = any(each.bias for each in self._linears)
        projected = "w_out" in self._own.arrays
        return make_offer(
            layout=plain.layout,
            inputs=INPUTS[len(self.subject.rows)],
            heads=plain.heads,
            projection=self._own.features["projection"],
            bias=("no", "yes") if biased else "no",
            out_proj=("identity", "general") if projected else "identity",
            size=("small", "medium", "equal", "ones"),
            memory="c",
        )

    def _read(self) -> OwnWeights:
        graph, heads = self.subject.graph, self.subject.num_heads
        held = [part for each in graph.layer for part in each.slot.parts]
        if len({*held}) < len(held):
            listed = ", ".join(each.slot.name for each in graph.layer)
            raise TargetError(
                f"got {self.name} with the weights {listed}, but should have those of one layer of "
                "attention; export that alone."
            )
        names = [n for each in graph.layer for n in (each.slot.name, each.bias) if n]
        if len({*names}) < len(names):
            raise TargetError(
                f"got {self.name}, in which projections share one of {', '.join(names)}, but each "
                "should have initialisers of its own; export it without merging equal ones."
            )
        state = {n: a for n, a in graph.arrays.items() if a.dtype.kind == "f" and a.ndim}
        return own_weights(graph.entries(heads), state, heads, self.name)

    def plain_case(self) -> Case:
        """Two samples in the layer's sizes, without biases."""
        projection = self._own.features["projection"]
        offered = vars(self).get("offer", {"layout": ("batch_first",)})
        return PLAIN_LAYER.replace(
            attn=self.plain_attn,
            dtype=self.library.dtypes[0],
            layout="unbatched" if self._single else offered["layout"][0],
            batch=1 if self._single else 2,
            projection=projection,
            inputs="distinct" if projection == "separate" else "self",
            **self._own.sizes,
        )

    def probes(self) -> Iterator[FeatureProbe]:
        """Look how rows lie and what it hides, and yield the trial of the weights."""
        self._look()
        yield from weight_probes(self.plain_case())

    def _look(self) -> None:
        """Find the layout and the order of packed rows under which it is nearest to attention."""
        self._looked = True
        layouts = ("unbatched",) if self._single else ("batch_first", "sequence_first")
        packed = [each.slot.name for each in self._linears if len(each.slot.parts) > 1]
        torchs = all(name.rpartition(".")[2] == "in_proj_weight" for name in packed)
        orders = ORDERS[:1] if torchs else ORDERS  # torch's name says the order
        given, fits = self._linears, []
        for layout, order in product(layouts, orders):
            self._linears = tuple(each.with_packing(order) for each in given)
            problem = make_problem(self.plain_case().replace(layout=layout))
            with suppress(CandidateError):  # the trials say what it raised
                fits.append((graph_fit(self, problem), layout, order))
        fit, layout, order = max(
            fits, key=lambda each: each[0][:2], default=(None, layouts[0], ORDERS[0])
        )
        self.offer = self.offer | {"layout": (layout,)}
        self._linears = self.subject.graph.layer = tuple(each.with_packing(order) for each in given)
        self._own = self.own_weights = self._read()
        if order != ORDERS[0]:
            lie = {"heads": "head by head", "columns": "column by column"}[order]
            self.remarks = tuple(
                f"the rows of {name} lie {lie}, and were read so." for name in packed
            )
        if fit is not None:
            settle_causal(self, make_problem(self.plain_case()), fit)
            named = {part for each in given for part in parts(each.slot.name)} >= {*ROWS}
            arrays = self.subject.graph.arrays
            more = [name for name in self._own.left_over if arrays[name].size > 1]
            refuse_unlike(self, fit, named=named, left_over=more)

    def prepare(self, problem: Problem) -> Call:
        """Pass rows by position, and weights where they are not the layer's own."""
        # Without probes it is the first problem that asks, once masks can be passed.
        if not self._looked and (self.masks is not None or not self.subject.masks):
            self._look()
        sizes = self._own.sizes
        if any(getattr(problem.case, name) != size for name, size in sizes.items()):
            raise CandidateError("inconclusive", f"{NOT_ASKED}: the graph has sizes of its own")
        arguments = Arguments(problem, self.library)
        rows = arguments.rows(lay_rows(problem))[: len(self.subject.rows)]
        weights = None if self._own.are_of(problem) else self._weights(problem)
        call = Call(self.subject, rows, {"weights": weights}, tuple(arguments.given))
        return self.with_masks(call, arguments)

    def _weights(self, problem: Problem) -> dict[str, Array]:
        """Return the problem's weights as the initialisers hold them; identity and 0 for none."""
        found: dict[str, Array] = {}
        for each in self._linears:
            for kind, name in (("w", each.slot.name), ("b", each.bias)):
                if name:
                    held = {p: array_or_neutral(problem, f"{kind}_{p}") for p in each.slot.parts}
                    joined = each.slot.pack(held, problem.num_heads)
                    found[name] = np.ascontiguousarray(
                        joined.reshape(self.subject.graph.arrays[name].shape)
                    )
        return found
