"""The plain attention as a layer of NumPy that is asked like any other: with dropout, with modes.

A wrong layer is a subclass with one step changed. It is bound by the real convention and watched by
the real watch over conduct, whose findings are what sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mha_parity.case import Case
from mha_parity.orders import ORDERS, Prepared
from mha_parity.problem import Problem
from mha_parity.pullback import Pull
from mha_parity.wrong.gradients import backwards
from mha_parity.wrong.plain import Attention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.candidate import Answer
    from mha_parity.orders import Order
    from mha_parity.values import Array

Result = tuple["Array", "Array | None"]


class Dropping(Attention):
    """The right attention with dropout: ``dropped`` is what the weights are multiplied with."""

    def __init__(self, problem: Problem, rate: float, chance: np.random.Generator) -> None:
        """Draw what is dropped; 1 everywhere without dropout."""
        super().__init__(problem)
        self.rate = rate
        self.dropped = np.ones((), dtype=self.work)
        if rate:
            self.dropped = self.draw(chance.random(problem.weights_shape)).astype(self.work)

    def draw(self, numbers: Array) -> Array:
        """Return 0 or 1/(1 - p), from even numbers in [0, 1)."""
        return self.kept(numbers) * self.factor()

    def kept(self, numbers: Array) -> Array:
        """Return which weights are kept."""
        return np.asarray(numbers >= self.rate)

    def factor(self) -> float:
        """Return what kept weights are multiplied with; with p = 1 there are none."""
        return 1 / (1 - self.rate) if self.rate < 1 else 0.0

    def softmax(self, scores: Array) -> Array:
        """Drop weights behind the softmax."""
        return super().softmax(scores) * self.dropped


class DroppingPull(Pull):
    """The way back through what was dropped."""

    def __init__(self, prepared: Prepared, order: Order, dropped: Array) -> None:
        """Take the way forth, with the weights as they met the values."""
        super().__init__(prepared, order)
        self.clean, self.dropped = self.p, dropped
        self.p = self.clean * dropped
        self.heads = self._product(self.p, self.v)

    def back(self) -> Array:
        """Return what the gradient of the weights is multiplied with."""
        return self.dropped

    def _scores(self, d_heads: Array) -> Array:
        d_p = self._product(d_heads, self.v.swapaxes(-1, -2)) * self.back()
        level = (self.clean * d_p).sum(axis=-1, keepdims=True)
        return np.asarray(self.clean * (d_p - level))


class Layer:
    """torch's constructor, state dict, call and modes; ``vjp`` returns the way back as well."""

    attention: ClassVar[type[Dropping]] = Dropping
    pull: ClassVar[type[DroppingPull]] = DroppingPull

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
        """Switch dropout on, or off."""
        self.training = mode

    def eval(self) -> None:
        """Switch dropout off."""
        self.training = False

    def state_dict(self) -> dict[str, Array]:
        """Return the weights."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Take all weights over."""
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
    ) -> Result:
        """Return output and weights, laid out as the inputs are."""
        asked = _asked(need_weights, average_attn_weights)
        return self._forth(query, key, value, key_padding_mask, attn_mask, asked)[0]

    def vjp(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
    ) -> tuple[Result, Callable[[Array], dict[str, Array]]]:
        """Return what the call returns, and the function from its cotangent to the gradients."""
        asked = _asked(need_weights, average_attn_weights)
        result, attention = self._forth(query, key, value, key_padding_mask, attn_mask, asked)
        turn, back = self._layout(query)

        def pulled(cotangent: Array) -> dict[str, Array]:
            pull = self.pull(Prepared(attention.problem), ORDERS[0], attention.dropped)
            found = pull.gradients(turn(cotangent))
            rows = {name: back(found[name]) for name in ("query", "key", "value")}
            return {name: array.astype(self.dtype) for name, array in (found | rows).items()}

        return result, pulled

    def _forth(
        self,
        query: Array,
        key: Array,
        value: Array,
        padding: Array | None,
        attn_mask: Array | None,
        asked: str,
    ) -> tuple[Result, Dropping]:
        turn, back = self._layout(query)
        rows = self.checked(*(turn(array) for array in (query, key, value)))
        if padding is not None and padding.ndim == 1:
            padding = padding[None]
        problem = self._problem(rows, padding, attn_mask, asked)
        attention = self.attention(problem, self.dropout if self.training else 0.0, self.rng)
        answer = attention.answer()
        weights = answer.weights
        if weights is not None and query.ndim == 2:
            weights = weights[0]
        return (back(self.finished(query, answer.output)), weights), attention

    def checked(self, *rows: Array) -> tuple[Array, ...]:
        """Return query, key and value as floats; refuse keys and values of unlike length."""
        if rows[1].shape[1] != rows[2].shape[1]:
            raise ValueError(f"got {rows[1].shape[1]} keys, but {rows[2].shape[1]} values.")
        return tuple(np.asarray(array, self.dtype) for array in rows)

    def finished(self, query: Array, output: Array) -> Array:
        """Return the output as the caller gets it."""
        del query
        return output

    def _layout(self, query: Array) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """Return how rows become (N, T, E), and how they become as they came."""
        if query.ndim == 2:
            return (lambda rows: rows[None]), (lambda rows: rows[0])
        if self.batch_first:
            return (lambda rows: rows), (lambda rows: rows)
        return (lambda rows: rows.swapaxes(0, 1)), (lambda rows: rows.swapaxes(0, 1))

    def _problem(
        self, rows: tuple[Array, ...], padding: Array | None, attn_mask: Array | None, asked: str
    ) -> Problem:
        query, key, value = rows
        heads = self.num_heads
        packed = "in_proj_weight" in self._state
        case = Case(
            seed=0, batch=len(query), queries=query.shape[1], keys=key.shape[1],
            heads_count=heads, head_dim=query.shape[2] // heads, inputs="distinct",
            projection="packed" if packed else "separate", weights=asked,
            zero_attn="yes" if self.add_zero_attn else "no",
        )  # fmt: skip
        return Problem(
            case=case, query=query, key=key, value=value, key_padding_mask=padding,
            attn_mask=attn_mask, **_parameters(self._state),
        )  # fmt: skip


def watched(kind: type[Layer]) -> Callable[[], Callable[[Problem], Answer]]:
    """Return what binds a layer and watches it; what is no whole layer's is answered rightly."""

    def make() -> Callable[[Problem], Answer]:
        from mha_parity.conduct import Watched
        from mha_parity.conventions import bind

        candidate = Watched(bind(kind, "torch-module", probe=False))
        plain = backwards(Pull)()

        def function(problem: Problem) -> Answer:
            empty = 0 in (*problem.output_shape, problem.key.shape[1])
            whole = problem.case.form == "mha" and not empty
            return candidate(problem) if whole else plain(problem)

        return function

    return make


def _asked(need_weights: bool, average: bool) -> str:
    return ("averaged" if average else "per_head") if need_weights else "none"


def _shapes(width: int, kdim: int | None, vdim: int | None) -> dict[str, tuple[int, ...]]:
    """Return torch's names and shapes."""
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
