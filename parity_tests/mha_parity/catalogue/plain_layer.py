"""The plain attention as a NumPy layer with torch's constructor, state dict, dropout and modes.

A wrong layer is a subclass with one step changed. The convention torch-module binds it like any
layer of a user, so that the checks of conduct and dropout apply to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mha_parity.catalogue.gradients import with_gradients
from mha_parity.catalogue.plain_attention import Attention
from mha_parity.catalogue.registry import Bug, enter, feature_values
from mha_parity.core.case import Case
from mha_parity.core.problem import Problem
from mha_parity.oracle.eval_orders import EVAL_ORDERS, Prepared
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.oracle.eval_orders import EvalOrder
    from mha_parity.targets.convention_base.convention import Convention

LayerResult = tuple["Array", "Array | None"]


class DropoutAttention(Attention):
    """The right attention with dropout: ``multiplier`` is the factor on each weight."""

    def __init__(self, problem: Problem, rate: float, rng: np.random.Generator) -> None:
        """Draw the multiplier; 1 everywhere without dropout."""
        super().__init__(problem)
        self.rate = rate
        self.multiplier = np.ones((), dtype=self.work_dtype)
        if rate:
            uniform = rng.random(problem.weights_shape)
            self.multiplier = self.draw(uniform).astype(self.work_dtype)

    def draw(self, uniform: Array) -> Array:
        """Return 0 or 1/(1 - p), from uniform numbers in [0, 1)."""
        return self.kept(uniform) * self.factor()

    def kept(self, uniform: Array) -> Array:
        """Return which weights are kept."""
        return np.asarray(uniform >= self.rate)

    def factor(self) -> float:
        """Return the factor on kept weights; with p = 1 none is kept."""
        return 1 / (1 - self.rate) if self.rate < 1 else 0.0

    def softmax(self, scores: Array) -> Array:
        """Drop weights after the softmax."""
        return super().softmax(scores) * self.multiplier


class DropoutVJP(VJP):
    """The backward pass of a call in training, with its multiplier."""

    def __init__(self, prepared: Prepared, order: EvalOrder, multiplier: Array) -> None:
        """Repeat the forward pass with the dropped weights."""
        super().__init__(prepared, order)
        self.clean, self.multiplier = self.p, multiplier
        self.p = self.clean * multiplier
        self.heads = self._product(self.p, self.v)

    def factor(self) -> Array:
        """Return the factor on the gradient of each weight."""
        return self.multiplier

    def score_gradient(self, d_heads: Array) -> Array:
        """Return the gradient of the logits through the kept weights."""
        d_p = self._product(d_heads, self.v.swapaxes(-1, -2)) * self.factor()
        level = (self.clean * d_p).sum(axis=-1, keepdims=True)
        return np.asarray(self.clean * (d_p - level))


class Layer:
    """torch's constructor, state dict, call and modes; ``vjp`` gives the gradients as well."""

    attention: ClassVar[type[DropoutAttention]] = DropoutAttention
    backward: ClassVar[type[DropoutVJP]] = DropoutVJP

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: Any = np.float64,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.num_heads, self.dropout = num_heads, dropout
        self.add_zero_attn, self.batch_first = add_zero_attn, batch_first
        self.dtype = np.dtype(dtype)
        self.rng = np.random.default_rng() if rng is None else rng
        self.training = True
        self._state = {
            name: np.zeros(shape, self.dtype)
            for name, shape in _shapes(embed_dim, kdim, vdim).items()
            if (bias or not name.endswith("bias")) and (add_bias_kv or "bias_" not in name)
        }

    def train(self, mode: bool = True) -> None:
        """Switch to training mode, or to eval mode."""
        self.training = mode

    def eval(self) -> None:
        """Switch to eval mode: no dropout."""
        self.training = False

    def state_dict(self) -> dict[str, Array]:
        """Return the weights."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Copy all weights."""
        if set(state) != set(self._state):
            raise KeyError(f"got {sorted(state)}, but should be {sorted(self._state)}.")
        self._state = {name: np.array(array, self.dtype) for name, array in state.items()}

    def __call__(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
    ) -> LayerResult:
        """Return output and weights, in the layout of the inputs."""
        mode = _weights_mode(need_weights, average_attn_weights)
        return self._forward(query, key, value, key_padding_mask, attn_mask, mode)[0]

    def vjp(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
    ) -> tuple[LayerResult, Callable[[Array], dict[str, Array]]]:
        """Return the result of the call, and the function from its cotangent to the gradients."""
        mode = _weights_mode(need_weights, average_attn_weights)
        result, attention = self._forward(query, key, value, key_padding_mask, attn_mask, mode)
        batch_first, original = self._layouts(query)

        def gradients(cotangent: Array) -> dict[str, Array]:
            prepared = Prepared(attention.problem)
            backward = self.backward(prepared, EVAL_ORDERS[0], attention.multiplier)
            found = backward.gradients(batch_first(cotangent))
            inputs = {name: original(found[name]) for name in ("query", "key", "value")}
            return {name: array.astype(self.dtype) for name, array in (found | inputs).items()}

        return result, gradients

    def _forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        padding: Array | None,
        attn_mask: Array | None,
        mode: str,
    ) -> tuple[LayerResult, DropoutAttention]:
        batch_first, original = self._layouts(query)
        inputs = self.inputs(*(batch_first(array) for array in (query, key, value)))
        if padding is not None and padding.ndim == 1:
            padding = padding[None]
        problem = self._problem(inputs, padding, attn_mask, mode)
        attention = self.attention(problem, self.rate(), self.rng)
        answer = attention.answer()
        weights = answer.weights
        if weights is not None and query.ndim == 2:
            weights = weights[0]
        return (original(self.output(query, answer.output)), weights), attention

    def rate(self) -> float:
        """Return the dropout of a call in the current mode."""
        return self.dropout if self.training else 0.0

    def inputs(self, *given: Array) -> tuple[Array, ...]:
        """Return query, key and value as floats; refuse keys and values of different lengths."""
        if given[1].shape[1] != given[2].shape[1]:
            raise ValueError(f"got {given[1].shape[1]} keys, but {given[2].shape[1]} values.")
        return tuple(np.asarray(array, self.dtype) for array in given)

    def output(self, query: Array, output: Array) -> Array:
        """Return the output as the caller gets it; ``query`` is the caller's array."""
        del query
        return output

    def _layouts(self, query: Array) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """Return the functions from the caller's layout to (N, T, E), and back."""
        if query.ndim == 2:
            return (lambda rows: rows[None]), (lambda rows: rows[0])
        if self.batch_first:
            return (lambda rows: rows), (lambda rows: rows)
        return (lambda rows: rows.swapaxes(0, 1)), (lambda rows: rows.swapaxes(0, 1))

    def _problem(
        self, inputs: tuple[Array, ...], padding: Array | None, attn_mask: Array | None, mode: str
    ) -> Problem:
        query, key, value = inputs
        heads = self.num_heads
        packed = "in_proj_weight" in self._state
        case = Case(
            seed=0, batch=len(query), queries=query.shape[1], keys=key.shape[1],
            heads_count=heads, head_dim=query.shape[2] // heads, inputs="distinct",
            projection="packed" if packed else "separate", weights=mode,
            zero_attn="yes" if self.add_zero_attn else "no",
        )  # fmt: skip
        return Problem(
            case=case, query=query, key=key, value=value, key_padding_mask=padding,
            attn_mask=attn_mask, **_parameters(self._state),
        )  # fmt: skip


def bound_layer(kind: type[Layer]) -> Convention:
    """Return a layer as the convention torch-module binds it."""
    from mha_parity.targets.bind import bind
    from mha_parity.targets.caches.cache_search import use_cache_of

    bound = bind(kind, "torch-module", probe=False)
    use_cache_of(bound)
    return bound


def with_right_fallback(candidate: Callable[[Problem], Answer]) -> Callable[[Problem], Answer]:
    """Return a candidate for all problems: the right attention answers what no layer takes."""
    right = with_gradients(VJP)()

    def answer(problem: Problem) -> Answer:
        case, empty = problem.case, 0 in (*problem.output_shape, problem.key.shape[1])
        # torch's layer has biases of all projections, or none.
        taken = case.form == "mha" and case.bias in {"no", "yes"} and not empty
        return candidate(problem) if taken else right(problem)

    return answer


def register_layer(
    layer: type[Layer] | Callable[[], type[Layer]],
    bug_id: str,
    family: int,
    title: str,
    *,
    forbid: str = "",
    sources: str = "",
    needs: str = "form=mha",
    **texts: str,
) -> None:
    """Enter a wrong layer, or a function that makes its class, under its id."""

    def make() -> type[Layer]:
        return layer if isinstance(layer, type) else layer()

    enter(
        Bug(
            id=bug_id, family=family, title=title, sources=tuple(sources.split()),
            needs=feature_values(needs), plain=False, layer=make, forbid=tuple(forbid.split()),
            make=lambda: with_right_fallback(bound_layer(make())), **texts,  # type: ignore[arg-type]  # the texts of a bug
        )
    )  # fmt: skip


def _weights_mode(need_weights: bool, average: bool) -> str:
    return ("averaged" if average else "per_head") if need_weights else "none"


def _shapes(width: int, kdim: int | None, vdim: int | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights under torch's names."""
    separate = kdim is not None or vdim is not None
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    widths = [(width, each or width) for each in (width, kdim, vdim)]
    weights: dict[str, tuple[int, ...]] = dict(zip(names, widths, strict=True))
    if not separate:
        weights = {"in_proj_weight": (3 * width, width)}
    return weights | {
        "in_proj_bias": (3 * width,), "bias_k": (1, 1, width), "bias_v": (1, 1, width),
        "out_proj.weight": (width, width), "out_proj.bias": (width,),
    }  # fmt: skip


def _parameters(state: Mapping[str, Array]) -> dict[str, Any]:
    """Return a state dict as the fields of a problem."""
    packed = state.get("in_proj_weight")
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    weights = [state[name] for name in names] if packed is None else np.split(packed, 3)
    bias = state.get("in_proj_bias")
    biases = [None] * 3 if bias is None else np.split(bias, 3)
    rows = {f"bias_{which}": state.get(f"bias_{which}") for which in "kv"}
    return {
        **{f"w_{which}": w for which, w in zip("qkv", weights, strict=True)},
        **{f"b_{which}": b for which, b in zip("qkv", biases, strict=True)},
        **{name: None if row is None else row.reshape(-1) for name, row in rows.items()},
        "w_out": state["out_proj.weight"], "b_out": state.get("out_proj.bias"),
    }  # fmt: skip
