"""Attention as a function of arrays: of projected Q, K, V, or of X and its weights (X @ W)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mha_parity.core.case import Case
from mha_parity.core.features import make_offer
from mha_parity.targets.calls import vjp
from mha_parity.targets.calls.canonical_layout import lay_rows
from mha_parity.targets.calls.problem_weights import array_or_neutral
from mha_parity.targets.calls.target_call import Arguments, Call
from mha_parity.targets.convention_base.always_causal import take_as_causal
from mha_parity.targets.convention_base.convention import Convention, FeatureProbe
from mha_parity.targets.convention_base.returned_weights import weight_probes
from mha_parity.targets.static.signatures import by_letter, signature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

MANY = Case(
    seed=7, batch=1, queries=5, keys=5, heads_count=2, head_dim=3, layout="unbatched",
    form="qkv", projection="none",
)  # fmt: skip
ONE = MANY.replace(heads_count=1)


def layout_probes(case: Case) -> Iterator[FeatureProbe]:
    """Yield the trials of a function written for one sample: several of them, and none."""
    batched = case.replace(layout="batch_first", batch=2)
    yield FeatureProbe("layout", "batch_first", (batched,))
    yield FeatureProbe("size", "empty", (case.replace(queries=0, keys=0),))


class QKVHeads(Convention):
    """``f(Q, K, V, n_heads)``: inputs are projected already, (T, D) each."""

    name = "qkv-heads"
    call = "f(Q, K, V, n_heads) -> (T, D), or (out, weights)"

    def claims(self) -> Offer:
        """One sample of self-attention on projected inputs."""
        called = signature(self.subject)
        taken = () if called is None else (*called.required, *called.optional)
        self._order = by_letter(taken[:3])
        return make_offer(
            form="qkv", projection="none", layout="unbatched", size=_NOT_EMPTY,
            memory=self.library.memory,
        )  # fmt: skip

    def plain_case(self) -> Case:
        """Two heads of width 3; causal where the function hides the future by itself."""
        return MANY.replace(attn=self.plain_attn)

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; batches, other keys, wider values, weights, gradients."""
        take_as_causal(self)
        case = self.trial_case()
        yield from layout_probes(case)
        yield from weight_probes(case)
        if not self.hides_future:
            yield FeatureProbe("inputs", "cross", (case.replace(inputs="cross", keys=7),))
        yield FeatureProbe("v_dim", "other", (case.replace(v_head_dim=4),))
        yield FeatureProbe("gradients", "yes", (case.replace(gradients="yes"),))

    def prepare(self, problem: Problem) -> Call:
        """Pass Q, K, V and the number of heads by position."""
        arguments = Arguments(problem, self.library)
        lay = lay_rows(problem)
        rows = arguments.rows(lay)
        args = (*(rows[place] for place in self._order), *self.extra_arguments(problem))
        given = tuple(arguments.given)
        call = Call(self.subject, args, given=given, compiles=arguments.of_jax)
        call = self.with_masks(call, arguments)
        return vjp.with_function_gradients(call, arguments, lay)

    def extra_arguments(self, problem: Problem) -> tuple[Any, ...]:
        """Return what is passed behind the arrays."""
        return (problem.num_heads,)


class QKV(QKVHeads):
    """``f(Q, K, V)``: one head on projected inputs. A mask may mean anything, and gets None."""

    name = "qkv"
    call = "f(Q, K, V) or f(Q, K, V, mask) -> out, or (out, weights); one head"

    def claims(self) -> Offer:
        """As several heads, but one."""
        return super().claims() | {"heads": ("one",)}

    def plain_case(self) -> Case:
        """One head of width 3; causal where the function hides the future by itself."""
        return ONE.replace(attn=self.plain_attn)

    def extra_arguments(self, problem: Problem) -> tuple[Any, ...]:
        """Return None for a mask that has no default."""
        del problem
        called = signature(self.subject)
        return (None,) * (len(called.required) - len("qkv") if called else 0)


class XWeightsHeads(Convention):
    """``f(X, Wq, Wk, Wv, H)``: weights are applied as X @ W, heads are blocks of its columns."""

    name = "x-weights-heads"
    call = "f(X, Wq, Wk, Wv, H) -> out, or (out, weights); weights applied as X @ W"

    def claims(self) -> Offer:
        """One sample of self-attention without biases and masks."""
        return make_offer(layout="unbatched", size=_NOT_EMPTY, memory=self.library.memory)

    def plain_case(self) -> Case:
        """Two heads of width 3; causal where the function hides the future by itself."""
        return MANY.replace(form="mha", projection="packed", attn=self.plain_attn)

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; batches and weights."""
        take_as_causal(self)
        yield from layout_probes(self.trial_case())
        yield from weight_probes(self.trial_case())
        yield FeatureProbe("gradients", "yes", (self.trial_case().replace(gradients="yes"),))

    def prepare(self, problem: Problem) -> Call:
        """Pass X, the weights transposed to (in, out), and the number of heads by position."""
        arguments = Arguments(problem, self.library)
        x, _, _ = arguments.rows(lay_rows(problem))
        weights = [arguments.array(name, w.T) for name, w in self.weights(problem).items()]
        args = (x, *weights, *self.extra_arguments(problem))
        given = tuple(arguments.given)
        call = Call(self.subject, args, given=given, compiles=arguments.of_jax)
        call = self.with_masks(call, arguments)
        return vjp.with_function_gradients(
            call, arguments, lay_rows(problem), partial(vjp.weight_gradients, problem)
        )

    def weights(self, problem: Problem) -> dict[str, Array]:
        """Return the weights as problems have them, (out, in), in the order of the call."""
        named = {name: getattr(problem, name) for name in ("w_q", "w_k", "w_v")}
        return {name: weight for name, weight in named.items() if weight is not None}

    def extra_arguments(self, problem: Problem) -> tuple[Any, ...]:
        """Return what is passed behind the arrays."""
        return (problem.num_heads,)


class XWeightsOutHeads(XWeightsHeads):
    """``f(X, Wq, Wk, Wv, Wo, H)``: what the heads give is multiplied by one matrix more."""

    name = "x-weights-out-heads"
    call = "f(X, Wq, Wk, Wv, Wo, H) -> out, or (out, weights); weights applied as X @ W"

    def claims(self) -> Offer:
        """As without it, and any output projection."""
        return super().claims() | {"out_proj": ("identity", "general")}

    def weights(self, problem: Problem) -> dict[str, Array]:
        """Return the weights as problems have them; no output projection is the identity."""
        return super().weights(problem) | {"w_out": array_or_neutral(problem, "w_out")}


class XWeights(XWeightsHeads):
    """``f(X, Wq, Wk, Wv)``: one head."""

    name = "x-weights"
    call = "f(X, Wq, Wk, Wv) -> out, or (out, weights); one head, weights applied as X @ W"

    def claims(self) -> Offer:
        """As several heads, but one."""
        return super().claims() | {"heads": ("one",)}

    def plain_case(self) -> Case:
        """One head of width 3; causal where the function hides the future by itself."""
        return ONE.replace(form="mha", projection="packed", attn=self.plain_attn)

    def extra_arguments(self, problem: Problem) -> tuple[Any, ...]:
        """Nothing."""
        del problem
        return ()


_NOT_EMPTY = ("small", "medium", "equal", "ones")
