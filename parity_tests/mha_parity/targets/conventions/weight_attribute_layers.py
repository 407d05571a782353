"""Textbook layers: a class whose weights are attributes, applied as X @ W."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.case import Case
from mha_parity.core.features import make_offer
from mha_parity.targets.calls.canonical_layout import lay_rows
from mha_parity.targets.calls.layer_modes import has_modes, set_mode
from mha_parity.targets.calls.problem_weights import array_or_neutral
from mha_parity.targets.calls.target_call import Arguments, Call, target_errors
from mha_parity.targets.calls.weights_from_torch import take_torch, torch_taker
from mha_parity.targets.convention_base.always_causal import take_as_causal
from mha_parity.targets.convention_base.convention import Convention, FeatureProbe
from mha_parity.targets.convention_base.returned_weights import weight_probes
from mha_parity.targets.conventions.functions import layout_probes
from mha_parity.targets.conventions.sdpa import joined_mask
from mha_parity.targets.layers.build_layer import assign
from mha_parity.targets.static.signatures import by_letter, constructor, forward, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

PLAIN = Case(seed=7, batch=2, queries=5, keys=7, heads_count=2, head_dim=3, inputs="cross")
SELF = Case(seed=7, batch=1, queries=5, keys=5, heads_count=2, head_dim=3, layout="unbatched")
DROPOUT = 2  # its place among the arguments of a constructor by position
# What the attributes stand for in a problem: the names below in any case, with or without "_".
ATTRIBUTES = {
    "w_q": ("wq", "wquery"),
    "w_k": ("wk", "wkey"),
    "w_v": ("wv", "wvalue"),
    "w_out": ("wo", "wout", "woutput"),
    "b_q": ("bq", "bquery"),
    "b_k": ("bk", "bkey"),
    "b_v": ("bv", "bvalue"),
    "b_out": ("bo", "bout", "boutput"),
}


class AttributeModule(Convention):
    """A layer built from sizes alone; W_q, W_k, W_v, W_o and b_q ... are set from outside."""

    def entry(self) -> Any:
        """Return the call of the class; of a function that builds layers it is not known."""
        return super().entry() if isinstance(self.subject, type) else None

    @abstractmethod
    def sizes(self, problem: Problem) -> tuple[Any, ...]:
        """Return the constructor's arguments, in order."""

    def build(self, problem: Problem, arguments: Arguments) -> Any:
        """Return a new layer that holds the problem's weights."""
        with target_errors():
            layer = self.construct(*self.sizes(problem), **self.switches(problem))
        self.load(layer, problem, arguments)
        return layer

    def prepare(self, problem: Problem) -> Call:
        """Return the call of a new layer that holds the problem's weights."""
        arguments = Arguments(problem, self.library)
        return self.layer_call(self.build(problem, arguments), arguments)

    @abstractmethod
    def layer_call(self, layer: Any, arguments: Arguments) -> Call:
        """Return the call of ``layer`` on the problem of ``arguments``."""

    def call_after_loading(
        self, problem: Problem, earlier: Problem, ask: Callable[[Call], object] = Call.make
    ) -> Call | None:
        """Return the call of a layer that answered ``earlier`` before it got its weights."""
        before, arguments = (Arguments(each, self.library) for each in (earlier, problem))
        layer = self.build(earlier, before)
        ask(self.layer_call(layer, before))
        self.load(layer, problem, arguments)
        return self.layer_call(layer, arguments)

    def load(self, layer: Any, problem: Problem, arguments: Arguments) -> None:
        """Set the attributes of ``layer`` to the problem's weights.

        Raises
        ------
        CandidateError
            The layer has no attribute for a weight that the problem has.

        """
        if take := torch_taker(self.subject):
            take_torch(take, layer, problem, self.library)
            return
        found = {_plain(name): name for name in dir(layer) if not name.startswith("__")}
        for part, spellings in ATTRIBUTES.items():
            name = next((found[spelling] for spelling in spellings if spelling in found), None)
            if name is not None:
                assign(layer, name, arguments.array(part, _applied(problem, part)))
            elif getattr(problem, part) is not None:
                wanted = f"W_{part[2:]}" if part.startswith("w") else part
                message = f"the layer has no attribute like {wanted}, but should keep it there."
                raise CandidateError("structure", message)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _applied(problem: Problem, part: str) -> Array:
    """Return one weight or bias as the layer applies it: X @ W, so (in, out)."""
    array = array_or_neutral(problem, part)
    return array.T if part.startswith("w") else array


class ModuleValidLens(AttributeModule):
    """``C(num_hiddens, num_heads, dropout, bias)``, ``forward(queries, keys, values, valid_lens)``.

    Keys at and behind a sample's valid length are hidden; dropout is 0. A fourth argument that is
    not called after lengths, a mask say, is left alone, and may be missing.
    """

    name = "module-valid-lens"
    call = "C(num_hiddens, num_heads, dropout, bias).forward(queries, keys, values, valid_lens)"

    def claims(self) -> Offer:
        """Batches with lengths; biases where the constructor asks for them."""
        made = constructor(self.subject)
        self._count = 4 if made is None else min(4, len(made.required) + len(made.optional))
        kind = self.subject if isinstance(self.subject, type) else None
        called = None if kind is None else signature(forward(kind))
        taken = () if called is None else (*called.required, *called.optional)  # self, q, k, v
        self._order = by_letter(taken[1:4])
        fourth = "valid_lens" if called is None else "".join(taken[4:5]).lower()
        # A fourth that is a mask may mean anything by True: it is left alone.
        self._lengths = "len" in fourth or "valid" in fourth
        self.own_masks = frozenset(taken[4:5]) if self._lengths else frozenset()
        self._more = max(len(called.required) - 4, 0) if called is not None else 1
        return make_offer(
            inputs=("self", "cross", "distinct"),
            bias=("no", "yes") if self._count == 4 else "no",
            out_proj=("identity", "general"),
            padding=("none", "lengths") if self._lengths else "none",
            masked_rows=("none", "some") if self._lengths else "none",
            size=("small", "medium", "equal", "ones"),
            memory=self.library.memory,
        )

    def plain_case(self) -> Case:
        """Two samples, two heads of width 3, 7 keys; causal where the layer is by itself."""
        return PLAIN.replace(inputs="self", keys=5, attn="causal") if self.hides_future else PLAIN

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; empty axes, and weights returned with the output."""
        take_as_causal(self)
        case = self.trial_case()
        one_by_one = (case.replace(queries=0), case.replace(keys=0))
        both = (case.replace(queries=0, keys=0),)
        empty = (case.replace(batch=0), *(both if self.hides_future else one_by_one))
        yield FeatureProbe("size", "empty", empty)
        yield from weight_probes(case)

    def sizes(self, problem: Problem, dropout: float = 0.0) -> tuple[Any, ...]:
        """Return num_hiddens, num_heads, dropout, bias, as many as are taken."""
        width = problem.query.shape[-1]
        return (width, problem.num_heads, dropout, problem.case.bias == "yes")[: self._count]

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls of one layer in train() and in eval() mode."""
        with target_errors():
            layer = self.construct(*self.sizes(problem, p))
        if self._count <= DROPOUT or not has_modes(layer):
            return None
        self.load(layer, problem, Arguments(problem, self.library))
        return lambda training: self.layer_call(
            set_mode(layer, training), Arguments(problem, self.library)
        )

    def layer_call(self, layer: Any, arguments: Arguments) -> Call:
        """Pass queries, keys, values and the lengths or None."""
        problem = arguments.problem
        given = arguments.rows(lay_rows(problem))
        rows = [given[place] for place in self._order]
        lengths = problem.lengths
        if not self._lengths:
            more: tuple[Any, ...] = (None,) * self._more
        else:
            more = (None if lengths is None else arguments.array("valid_lens", lengths),)
        call = Call(forward(layer), (*rows, *more), given=tuple(arguments.given))
        return self.with_masks(call, arguments)


class ModuleMask(AttributeModule):
    """``C(d_model, num_heads)``, ``forward(X, mask)`` -> (out, weights); mask 0 = hidden."""

    name = "module-mask"
    call = "C(d_model, num_heads).forward(X, mask) or (X) -> (out, weights); mask 0 = hidden"

    def claims(self) -> Offer:
        """One sample of self-attention with a matrix of masks."""
        called = signature(forward(self.subject)) if isinstance(self.subject, type) else None
        taken = () if called is None else (*called.required, *called.optional)
        self.own_masks = frozenset(taken[2:3])
        self._masks = called is None or len(called.required) + len(called.optional) > 2  # self, x
        return make_offer(
            layout="unbatched", out_proj=("identity", "general"),
            attn=("none", "bool2d", "causal") if self._masks else "none",
            masked_rows=("none", "some") if self._masks else "none",
            size=("small", "medium", "equal", "ones"), memory=self.library.memory,
        )  # fmt: skip

    def plain_case(self) -> Case:
        """Two heads of width 3; causal where the layer hides the future by itself."""
        return SELF.replace(attn=self.plain_attn)

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; batches and weights."""
        take_as_causal(self)
        if self.hides_future:
            self.own_masks = frozenset()  # what a mask hides besides is searched for
        yield from layout_probes(self.trial_case())
        yield from weight_probes(self.trial_case())

    def sizes(self, problem: Problem) -> tuple[Any, ...]:
        """Return d_model and num_heads."""
        return (problem.query.shape[-1], problem.num_heads)

    def layer_call(self, layer: Any, arguments: Arguments) -> Call:
        """Pass X and the mask, 1 where a key takes part, or None."""
        problem = arguments.problem
        x, _, _ = arguments.rows(lay_rows(problem))
        masked = problem.attn_mask is not None or problem.is_causal
        masked = masked and not self.hides_future
        if not self._masks:
            call = Call(forward(layer), (x,), given=tuple(arguments.given))
            return self.with_masks(call, arguments)  # one by name alone
        mask = None
        if masked:
            # Numbers and not booleans: 1 - mask and mask == 0 both work on them.
            mask = arguments.array("mask", (~joined_mask(problem)).astype(np.int64))
        call = Call(forward(layer), (x, mask), given=tuple(arguments.given))
        return self.with_masks(call, arguments)
