"""``keras.layers.MultiHeadAttention``: kernels with an axis of heads, masks of what to keep."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import cotangent
from mha_parity.core.features import make_offer
from mha_parity.core.problem import INPUTS
from mha_parity.targets.calls.canonical_layout import lay_rows
from mha_parity.targets.calls.target_call import Arguments, Call, target_errors
from mha_parity.targets.calls.vjp import arrays_pulled, as_state_dict, differentiated
from mha_parity.targets.convention_base.convention import PLAIN_LAYER, Convention, FeatureProbe
from mha_parity.targets.conventions.sdpa import joined_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem


PARTS = ("q", "k", "v", "out")  # as a Keras layer lists its weights


class KerasLayer(Convention):
    """``C(num_heads, key_dim, ...)``, called (query, value, key), weights by ``set_weights``."""

    name = "keras-layer"
    own_masks = frozenset({"attention_mask", "use_causal_mask"})
    call = "C(num_heads, key_dim, ...), set_weights, (query, value, key, ...) as Keras has it"

    def claims(self) -> Offer:
        """Everything but float masks, masks per head and appended keys."""
        return make_offer(
            inputs=("self", "cross", "distinct"),
            projection=("packed", "separate"),
            bias=("no", "yes"),
            out_proj=("identity", "general"),
            padding=("none", "bool", "lengths"),
            attn=("none", "bool2d", "causal"),
            masked_rows=("none", "some"),
            weights=("none", "per_head"),
            size=("small", "medium", "equal", "ones"),
            memory=self.library.memory,
        )

    def plain_case(self) -> Case:
        """Two samples, two heads of width 3."""
        return PLAIN_LAYER

    def probes(self) -> Iterator[FeatureProbe]:
        """Empty axes, and gradients of the library that Keras computes with."""
        cross = PLAIN_LAYER.replace(inputs="cross")
        empty = (PLAIN_LAYER.replace(batch=0), cross.replace(queries=0), cross.replace(keys=0))
        yield FeatureProbe("size", "empty", empty)
        most = {"bias": "yes", "out_proj": "general", "gradients": "yes"}
        yield FeatureProbe("gradients", "yes", (cross.replace(**most),))

    def prepare(self, problem: Problem) -> Call:
        """Build a layer with the problem's weights and pass (query, value, key)."""
        arguments = Arguments(problem, self.library)
        return self._layer_call(self._built(problem), arguments)

    def call_after_loading(
        self, problem: Problem, earlier: Problem, ask: Callable[[Call], object] = Call.make
    ) -> Call | None:
        """Return the call of a layer that answered ``earlier`` before it got its weights."""
        layer = self._built(earlier)
        ask(self._layer_call(layer, Arguments(earlier, self.library)))
        with target_errors():
            layer.set_weights(to_keras(problem.state(), problem))
        return self._layer_call(layer, Arguments(problem, self.library))

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls of one layer, ``training`` or not.

        Keras returns the weights before dropout, and says so: ``drops_as_torch`` is False.
        """
        layer = self._built(problem, dropout=p)
        return lambda training: self._layer_call(layer, Arguments(problem, self.library), training)

    def _built(self, problem: Problem, dropout: float = 0.0) -> Any:
        shapes = [getattr(problem, name).shape for name in ("query", "value", "key")]
        with target_errors():
            layer = self.construct(
                num_heads=problem.num_heads,
                key_dim=problem.head_dim,
                use_bias=problem.case.bias == "yes",
                dropout=dropout,
                dtype=problem.case.dtype,
            )
            layer.build(*shapes)
            layer.set_weights(to_keras(problem.state(), problem))
        return layer

    def _layer_call(self, layer: Any, arguments: Arguments, training: bool = False) -> Call:
        problem = arguments.problem
        query, key, value = arguments.rows(lay_rows(problem))
        masked = problem.key_padding_mask is not None or problem.attn_mask is not None
        options: dict[str, Any] = {"training": training}
        if problem.case.weights != "none":
            options["return_attention_scores"] = True
        if problem.is_causal and not masked:
            options["use_causal_mask"] = True
        elif masked:
            options["attention_mask"] = arguments.array("attention_mask", self._mask(problem))
        call = Call(layer, (query, value, key), options, tuple(arguments.given))
        return _with_gradients(call, arguments)

    def _mask(self, problem: Problem) -> Array:
        """Return what to keep, (N, L, S)."""
        mask = ~joined_mask(problem)
        shape = (problem.case.batch, *mask.shape[-2:])
        return np.broadcast_to(mask if mask.ndim == 2 else mask[:, 0], shape)


class _WithWeights:
    """A layer that is called with weights of its own among the arguments: they have gradients."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def __call__(self, *rows: Any, weights: list[Any], **options: Any) -> Any:
        scope = sys.modules["keras"].StatelessScope
        # Not assigned, which copies: gradients lead through the layer to them.
        with scope([*zip(self._layer.weights, weights, strict=True)]):
            return self._layer(*rows, **options)


def _with_gradients(call: Call, arguments: Arguments) -> Call:
    """Return the call of a layer with the way to its gradients, where its case asks for them."""
    problem = arguments.problem
    if problem.case.gradients == "no":
        return call
    listed = to_keras(problem.state(), problem)
    named = {
        f"weight {at}": arguments.array(f"weight {at}", each) for at, each in enumerate(listed)
    }
    given = arguments.library.from_numpy(lay_rows(problem)(cotangent(problem)))
    options = {**call.kwargs, "weights": [*named.values()]}
    called = replace(call, function=_WithWeights(call.function), kwargs=options)
    called, pull = differentiated(called, arguments, given, arguments.leaves | named)

    def back(found: dict[str, Array]) -> dict[str, Array]:
        rows = {name: found[name] for name in INPUTS if name in found}
        return rows | from_keras([found.get(name) for name in named], problem)

    return replace(called, pull=arrays_pulled(pull, back))


def from_keras(listed: Sequence[Array | None], problem: Problem) -> dict[str, Array]:
    """Return gradients in the order of a Keras layer's weights under the names of torch's.

    Those that are missing, and those of what a problem has no array of, an output projection say,
    are left out.
    """
    step = 1 + (problem.b_q is not None)
    weights = dict(zip(PARTS, listed[::step], strict=True))
    biases = dict(zip(PARTS, listed[1::2], strict=True)) if step > 1 else {}
    matrices = {
        part: each.reshape(-1, each.shape[-1]).T if part == "out" else each.reshape(len(each), -1).T
        for part, each in weights.items()
        if each is not None
    }
    rows = {part: each.reshape(-1) for part, each in biases.items() if each is not None}
    for own, found in ((problem.w_out, matrices), (problem.b_out, rows)):
        if own is None:
            found.pop("out", None)
    return as_state_dict(problem, matrices, rows)


def to_keras(state: Mapping[str, Array], problem: Problem) -> list[Array]:
    """Return torch's state dict as the weights of a Keras layer, in the order of ``get_weights``.

    torch keeps (out, in) and the heads packed in out; Keras keeps (in, H, D) and (H, D, out).
    """
    heads, width, dim = problem.num_heads, problem.query.shape[-1], problem.head_dim
    packed = state.get("in_proj_weight")
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    weights = [state[n] for n in names] if packed is None else np.split(packed, 3)
    biases = np.split(state["in_proj_bias"], 3) if "in_proj_bias" in state else [None] * 3
    listed: list[Array] = []
    for weight, bias in zip(weights, biases, strict=True):
        listed.append(weight.T.reshape(weight.shape[1], heads, dim))
        listed += [] if bias is None else [bias.reshape(heads, dim)]
    out = state.get("out_proj.weight", np.eye(width, dtype=problem.dtype))
    listed.append(out.T.reshape(heads, dim, width))
    if "in_proj_bias" in state:
        listed.append(state.get("out_proj.bias", np.zeros(width, dtype=problem.dtype)))
    return listed
