"""``scaled_dot_product_attention`` as torch has it: heads are an axis of the arrays."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import Answer
from mha_parity.core.features import make_offer
from mha_parity.core.parameters import ESSENTIAL, Role
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls import vjp
from mha_parity.targets.calls.canonical_layout import (
    canonical_weights,
    merge_output,
    only_sample,
    split_result,
    swap_axes,
)
from mha_parity.targets.calls.target_call import Arguments, Call
from mha_parity.targets.convention_base.always_causal import take_as_causal
from mha_parity.targets.convention_base.convention import PLAIN_CORE, Convention, FeatureProbe
from mha_parity.targets.convention_base.dropout_argument import with_sources
from mha_parity.targets.convention_base.grouped_heads import grouped, groups_heads
from mha_parity.targets.convention_base.returned_weights import weight_probes, weights_switches
from mha_parity.targets.masks.documented_meaning import documented_added
from mha_parity.targets.static.documented_layout import documentation
from mha_parity.targets.static.signatures import Signature, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

# torch's own function is written in C and has no signature that Python could read.
TORCH = Signature(
    ("query", "key", "value"), (),
    frozenset({"attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"}), open=False,
)  # fmt: skip


ADDS = (
    "its documentation says that `attn_mask` is added, and nothing of booleans: boolean masks were "
    "passed as 0 and -inf."
)


class SDPA(Convention):
    """``f(query, key, value, attn_mask=, is_causal=, scale=, enable_gqa=)``, (..., L, D) arrays.

    A boolean mask is True where a key takes part, as in torch and unlike in its module.
    """

    name = "sdpa"
    drops_as_torch = True
    own_masks = frozenset({"attn_mask", "is_causal"})
    # The axes of (N, L, H, D) whose exchange makes its arrays.
    swaps: tuple[tuple[int, int], ...] = ((1, 2),)
    call = "f(query, key, value, attn_mask=, is_causal=, scale=, enable_gqa=), (..., L, d) arrays"

    def claims(self) -> Offer:
        """Return what the keywords say."""
        self._called = signature(self.subject) or TORCH
        takes = self._called.takes
        masks = (p for p in self.parameters if p.role in ESSENTIAL - {Role.KEYWORDS})
        more = {p.name for p in masks} - self.own_masks
        # Where the future is hidden by default the names are torch's and the calls are not.
        more |= {
            p.name for p in self.call_parameters if p.name == "is_causal" and p.default is True
        }
        masked = takes("attn_mask") and not more
        self._adds = masked and documented_added(self.subject, "attn_mask")
        if self._adds:
            self.remarks = (*self.remarks, ADDS)
        self._broadcasts = "broadcast" in documentation(self.subject)
        causal = ("causal",) if masked or (takes("is_causal") and not more) else ()
        if not causal:  # masks of other names are searched for, and torch's next to them
            self.own_masks = frozenset()
        return make_offer(
            form="qkv", projection="none", inputs=("self", "cross"),
            layout=("batch_first", "unbatched"), size=("small", "medium", "equal", "ones"),
            padding=("none", "bool", "float", "lengths") if masked else "none",
            attn=("none", "bool2d", "float2d", "bool3d", "float3d", *causal)
            if masked else ("none", *causal),
            masked_rows=("none", "some") if masked else "none",
            scale=("default", "given") if takes("scale") else "default",
            kv_heads=("equal", "fewer") if takes("enable_gqa") else "equal",
            memory=self.library.memory,
        )  # fmt: skip

    def plain_case(self) -> Case:
        """Two samples, two heads of width 3; causal where the target hides the future by itself."""
        return PLAIN_CORE.replace(attn=self.offer["attn"][0])

    def probes(self) -> Iterator[FeatureProbe]:
        """Look what it hides by itself; wider values, empty axes, weights, fewer key heads."""
        if self.offer["attn"] == ("none",):
            take_as_causal(self)
        case = self.trial_case()
        cross = case.replace(inputs="cross")
        yield FeatureProbe("v_dim", "other", (case.replace(v_head_dim=4),))
        yield FeatureProbe("gradients", "yes", (case.replace(gradients="yes"),))
        yield from weight_probes(case)
        empty = [case.replace(batch=0)]
        if self.hides_future:
            empty.append(case.replace(queries=0, keys=0))
        else:
            empty += [cross.replace(queries=0), cross.replace(keys=0)]
        yield FeatureProbe("size", "empty", tuple(empty))
        if not self._called.takes("enable_gqa") and groups_heads(self, case):
            yield FeatureProbe("kv_heads", "fewer", (grouped(case),))

    def prepare(self, problem: Problem) -> Call:
        """Pass heads as an axis, masks joined to one, and the rest by keyword."""
        arguments = Arguments(problem, self.library)
        rows = [
            arguments.array(name, self._heads(problem, getattr(problem, name), heads))
            for name, heads in _ROWS(problem)
        ]
        options = dict(self._options(problem, arguments))
        given = tuple(arguments.given)
        call = Call(self.subject, tuple(rows), options, given, compiles=arguments.of_jax)
        call = self.with_masks(call, arguments)
        heads = partial(self._heads, problem, heads=problem.num_heads)
        return vjp.with_function_gradients(
            call, arguments, heads, partial(self._gradients, problem)
        )

    def _gradients(self, problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
        """Return the gradients of arrays with an axis of heads as canonical ones."""
        return vjp.head_gradients(problem, found)

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls with ``dropout_p``, 0 in evaluation."""
        if not self._called.takes("dropout_p"):
            return None

        def asked(training: bool) -> Call:
            call = with_sources(self, problem, self.prepare(problem))
            more = self.modes(training=training) | {"dropout_p": p * training}
            return replace(call, kwargs={**call.kwargs, **more})

        return asked

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Merge the heads of the output."""
        output, weights = split_result(result)
        array = self._merged(problem, to_numpy(output, "the output"))
        wants = problem.case.weights != "none"
        return Answer(output=array, weights=canonical_weights(problem, weights) if wants else None)

    def _heads(self, problem: Problem, rows: Array, heads: int) -> Array:
        """Return (N, L, H D) with the axes of the function, without the first if unbatched."""
        split_rows = rows.reshape(*rows.shape[:2], heads, rows.shape[2] // heads)
        split_rows = swap_axes(split_rows, self.swaps)
        return only_sample(split_rows) if problem.case.layout == "unbatched" else split_rows

    def _merged(self, problem: Problem, output: Array) -> Array:
        """Return an output by head as (N, L, H Dv)."""
        return merge_output(problem, output, self.swaps)

    def _options(self, problem: Problem, arguments: Arguments) -> Iterator[tuple[str, Any]]:
        """Yield the keywords that the problem needs."""
        masked = problem.key_padding_mask is not None or problem.attn_mask is not None
        by_rule = problem.is_causal and not masked and self._called.takes("is_causal")
        if not self.own_masks:
            pass  # they are passed as small calls showed
        elif by_rule:
            yield "is_causal", True
        elif (masked or problem.is_causal) and self._called.takes("attn_mask"):
            yield "attn_mask", arguments.array("attn_mask", self._mask(problem))
        offered = self.offer.get("weights", ())
        yield from weights_switches(self.call_parameters, problem.case, offered).items()
        if problem.given_scale is not None:
            yield "scale", problem.given_scale
        grouped_heads = problem.num_kv_heads != problem.num_heads
        if grouped_heads and self._called.takes("enable_gqa"):
            yield "enable_gqa", True

    def _mask(self, problem: Problem) -> Array:
        """Return one mask of all: (L, S) where it is that alone, else (N, H or 1, L or 1, S)."""
        mask = joined_mask(problem)
        alike = problem.attn_mask is None and not problem.is_causal
        # Of a mask that may be broadcast one row is enough, where all are alike: asked of each
        # second case.
        if alike and self._broadcasts and mask.dtype == np.bool_ and problem.case.seed % 2:
            mask = mask[..., :1, :]
        if mask.dtype == np.bool_ and self._adds:
            mask = np.where(mask, -np.inf, 0).astype(problem.dtype)
        elif mask.dtype == np.bool_:
            mask = ~mask
        return only_sample(mask) if problem.case.layout == "unbatched" and mask.ndim == 4 else mask


def _ROWS(problem: Problem) -> tuple[tuple[str, int], ...]:  # noqa: N802  (H and Hkv of q, k, v)
    kv_heads = problem.num_kv_heads
    return ("query", problem.num_heads), ("key", kv_heads), ("value", kv_heads)


def joined_mask(problem: Problem) -> Array:
    """Return all masks as one: boolean (True = hidden) if all are, else added numbers."""
    case = problem.case
    masks: list[Array] = []
    if problem.key_padding_mask is not None:
        masks.append(problem.key_padding_mask[:, None, None, :])
    if problem.attn_mask is not None:
        mask = problem.attn_mask
        masks.append(mask if mask.ndim == 2 else mask.reshape(case.batch, -1, *mask.shape[1:]))
    if problem.is_causal:
        masks.append(np.triu(np.ones((case.queries, case.keys), dtype=bool), k=1))
    if all(mask.dtype == np.bool_ for mask in masks):
        joined = masks[0]
        for mask in masks[1:]:
            joined = joined | mask
        return _whole(joined, problem)
    zero, low = problem.dtype.type(0), problem.dtype.type(-np.inf)
    added = [np.where(mask, low, zero) if mask.dtype == np.bool_ else mask for mask in masks]
    total = added[0]
    for mask in added[1:]:
        total = (total + mask).astype(problem.dtype)
    return _whole(total, problem)


def _whole(mask: Array, problem: Problem) -> Array:
    """Return the mask with its query axis written out: torch does not repeat a single row of it."""
    rows = problem.case.queries
    return np.broadcast_to(mask, (*mask.shape[:-2], rows, mask.shape[-1]))
