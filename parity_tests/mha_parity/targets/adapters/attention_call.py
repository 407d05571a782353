"""``adapter``: a function of one ``AttentionCall`` that calls an attention as it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.mask_contents import mask_contents
from mha_parity.targets.calls.mask_format import MaskArgument, MaskContent, reduce_axes
from mha_parity.targets.calls.problem_weights import arrays_of, with_grouped_heads

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.targets.calls.mask_format import Axes
    from mha_parity.targets.calls.target_call import Arguments

_MARK = "__mha_parity_adapter__"
_AXES = {"N", "H", "L", "S", "1", "NH"}
Function = TypeVar("Function", bound="Callable[[AttentionCall], Any]")


def adapter(function: Function) -> Function:
    """Mark a function of one ``AttentionCall`` as an adapter: a target that calls another one.

    It returns the output (N, L, E), or the output and the attention weights, averaged (N, L, S) or
    of each head (N, H, L, S). The attributes of the call that it reads are what it is judged on:
    an adapter that never reads ``attn_mask`` gets no cases with one, and the report says so.

    Parameters
    ----------
    function
        A function of one ``AttentionCall``.

    Examples
    --------
    >>> import mha_parity
    >>> import numpy as np
    >>> @mha_parity.adapter
    ... def one_head(call: mha_parity.AttentionCall):
    ...     q = call.query @ call.q_proj_weight.T
    ...     k = call.key @ call.k_proj_weight.T
    ...     v = call.value @ call.v_proj_weight.T
    ...     return q @ k.swapaxes(1, 2) @ v
    >>> mha_parity.judge(one_head, cases=20).holds
    False

    """
    setattr(function, _MARK, True)
    return function


def is_adapter(subject: object) -> bool:
    """Return whether a target was marked by ``adapter``."""
    return bool(getattr(subject, _MARK, False))


def _weight(name: str, doc: str) -> property:
    """Return the property of a call that is one of its weights, and notes that it was read."""

    def read(call: AttentionCall) -> Any:
        call._seen.add(name)  # noqa: SLF001  (a method of that class)
        return call._weights[name]  # noqa: SLF001

    return property(read, doc=doc)


class AttentionCall:
    """One call of attention in the terms of torch.nn.MultiheadAttention, batch first.

    N samples, L queries, S keys, H heads of width D, E = H D. Arrays are of the library that the
    adapter computes with, in the dtype of the case: NumPy's, torch's tensors, or JAX's. Weights and
    biases are there in every call: the identity and zeros where the case has none.
    """

    def __init__(self, arguments: Arguments) -> None:
        """Lay out inputs and weights; masks are made when they are read."""
        self._problem = problem = arguments.problem
        self._arguments = arguments
        self._seen: set[str] = set()
        self._rows = arguments.rows(lambda rows: rows)
        self._weights = dict[str, Any]()
        for kind in "wb":
            held = arrays_of(problem, bias=kind == "b")
            if problem.case.form == "mha":  # else keys are projected already, by no weights
                held = with_grouped_heads(held, problem.case)
            for part, array in held.items():
                self._weights[f"{kind}_{part}"] = arguments.array(f"{kind}_{part}", array)

    @property
    def read(self) -> frozenset[str]:
        """The names of weights, masks and options that were read of this call."""
        return frozenset(self._seen)

    @property
    def embed_dim(self) -> int:
        """E, the width of queries and of the output."""
        return int(self._problem.query.shape[-1])

    @property
    def num_heads(self) -> int:
        """H."""
        self._seen.add("heads")
        return self._problem.num_heads

    @property
    def head_dim(self) -> int:
        """D = E / H."""
        self._seen.add("heads")
        return self._problem.head_dim

    @property
    def num_kv_heads(self) -> int:
        """G, how many heads key and value have: H, or fewer (grouped queries) if this is read.

        ``key`` and ``value`` are (N, S, G D) then where no weights are read. Where they are,
        ``k_proj_weight`` and ``v_proj_weight`` are (G D, E), and their biases (G D,).
        """
        self._seen.add("num_kv_heads")
        return self._problem.case.kv_heads_count or self._problem.num_heads

    @property
    def scale(self) -> float:
        """The factor on q k^T: 1/sqrt(D), or any other if this is read."""
        self._seen.add("scale")
        return self._problem.scale

    @property
    def query(self) -> Any:
        """Queries, (N, L, E)."""
        return self._rows[0]

    @property
    def key(self) -> Any:
        """Keys, (N, S, E); the same object as ``query`` in self-attention."""
        self._seen.add("key")
        return self._rows[1]

    @property
    def value(self) -> Any:
        """Values, (N, S, E); the same object as ``key`` unless both differ."""
        self._seen.add("value")
        return self._rows[2]

    q_proj_weight = _weight(
        "w_q", "W_q, (E, E): q = query W_q^T + b_q, the rows of head h are h D to h D + D."
    )
    k_proj_weight = _weight("w_k", "W_k, (E, E), or (G D, E) of G heads of keys.")
    v_proj_weight = _weight("w_v", "W_v, (E, E), or (G D, E) of G heads of values.")
    out_proj_weight = _weight("w_out", "W_out, (E, E): output = heads W_out^T + b_out.")
    q_proj_bias = _weight("b_q", "b_q, (E,).")
    k_proj_bias = _weight("b_k", "b_k, (E,).")
    v_proj_bias = _weight("b_v", "b_v, (E,).")
    out_proj_bias = _weight("b_out", "b_out, (E,).")

    @property
    def is_causal(self) -> bool:
        """Whether query i sees keys j <= i only; this is not in ``attn_mask``."""
        self._seen.add("is_causal")
        return self._problem.is_causal

    @property
    def attn_mask(self) -> Any:
        """None, or (L, S) or (N H, L, S): booleans, True hides, or floats that are added."""
        return self._mask("attn_mask")

    @property
    def key_padding_mask(self) -> Any:
        """None, or (N, S): booleans, True hides, or floats that are added."""
        return self._mask("key_padding_mask")

    @property
    def need_weights(self) -> bool:
        """Whether the attention weights are asked for; they may be returned in any case."""
        return self._problem.case.weights != "none"

    def hidden(self, axes: str, *, causal: bool = True) -> Any:
        """Return all masks as one of booleans, True where a key is hidden.

        Parameters
        ----------
        axes
            The shape: "N H L S", "N 1 L S", "N 1 1 S", "NH L S", "L S", "N S", ...
        causal
            False leaves the causal mask out, of a target that hides the future by itself.

        Raises
        ------
        CandidateError
            The masks of this case cannot be said in that shape; such cases are not offered.

        """
        content = self._joined(causal=causal)
        if content.added is not None:
            raise _unsaid("float masks", "booleans")
        return self._shaped("hidden", content.hidden, axes)

    def added(self, axes: str, *, causal: bool = True) -> Any:
        """Return all masks as one of floats that are added to the scores, -inf where hidden.

        Parameters
        ----------
        axes
            The shape, as of ``hidden``.
        causal
            False leaves the causal mask out, of a target that hides the future by itself.

        Raises
        ------
        CandidateError
            The masks of this case cannot be said in that shape; such cases are not offered.

        """
        content = self._joined(causal=causal)
        zero_or_hidden = np.where(content.hidden, -np.inf, 0.0)
        whole = zero_or_hidden if content.added is None else content.added
        return self._shaped("added", whole.astype(self._problem.dtype), axes, content.masks)

    def lengths(self, axes: str = "N", *, causal: bool = True) -> Any:
        """Return the number of visible keys, which are the first ones, as "N", "N L", "L" or "".

        "" is a single number, of one sample without its axis.

        Raises
        ------
        CandidateError
            The masks of this case are no lengths; such cases are not offered.

        """
        content = self._joined(causal=causal)
        visible = (~content.hidden).sum(axis=-1, keepdims=True)
        places = np.arange(content.hidden.shape[-1])
        if content.added is not None or not np.array_equal(places >= visible, content.hidden):
            raise _unsaid("masks", "lengths")
        counts = self._reduced("lengths", visible, f"{axes} 1")
        if not axes:
            return int(counts[0])
        return self._arguments.array("lengths", counts[..., 0].astype(np.int64))

    def _mask(self, name: str) -> Any:
        self._seen.add(name)
        mask = getattr(self._problem, name)
        return None if mask is None else self._handed(name, mask, (), (name,))

    def _handed(self, name: str, array: Array, axes: Axes, masks: tuple[str, ...]) -> Any:
        """Return a mask in the adapter's library, with a gradient where the case asks for it."""
        if axes:
            handed = self._arguments.mask(name, MaskArgument(array, axes, masks))
        else:
            handed = self._arguments.array(name, array)
        if self._problem.case.gradients == "yes" and name in self._arguments.leaves:
            handed.requires_grad_()
        return handed

    def _joined(self, *, causal: bool) -> MaskContent:
        parts = mask_contents(self._problem, causal_inside=not causal)
        nothing = MaskContent(np.zeros(self._problem.weights_shape, dtype=bool))
        for part in parts:
            nothing = nothing.joined(part)
        return nothing

    def _shaped(self, name: str, array: Array, axes: str, masks: tuple[str, ...] = ()) -> Any:
        found = self._reduced(name, array, axes)
        return self._handed(name, found, tuple(axes.split()), masks)

    def _reduced(self, name: str, array: Array, axes: str) -> Array:
        self._seen.add(name)
        named = tuple(axes.split())
        if not named or not set(named) <= _AXES:
            raise ValueError(f"got a mask of axes {axes!r}, but should be like 'N 1 L S'.")
        found = reduce_axes(array, named)
        if found is None:
            raise _unsaid("masks", f"one of shape ({', '.join(named)})")
        return np.ascontiguousarray(found)


def _unsaid(what: str, how: str) -> CandidateError:
    return CandidateError("inconclusive", f"the {what} of this case cannot be said as {how}")
