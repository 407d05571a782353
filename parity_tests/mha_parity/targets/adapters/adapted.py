"""Adapters: functions of one ``AttentionCall`` that call an attention as it is called."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.features import make_offer
from mha_parity.targets.adapters.attention_call import AttentionCall
from mha_parity.targets.calls import vjp
from mha_parity.targets.calls.problem_weights import at_first_heads
from mha_parity.targets.calls.target_call import Arguments, Call
from mha_parity.targets.convention_base.always_causal import take_as_causal
from mha_parity.targets.convention_base.convention import PLAIN_LAYER, Convention, FeatureProbe
from mha_parity.targets.convention_base.returned_weights import weight_probes
from mha_parity.targets.features_offered.probe_features import accepts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem

WEIGHTS = frozenset({"w_q", "w_k", "w_v"})
NO_MASKS = "the adapter reads no mask and no `is_causal`: masks were not judged."
# What has to be read of a call for the masks of a case to be judged.
BOOLS = ("hidden", "added")
ATTN = {
    "bool2d": ("attn_mask", *BOOLS), "bool3d": ("attn_mask", *BOOLS), "float2d": ("attn_mask",
    "added"), "float3d": ("attn_mask", "added"), "causal": ("is_causal", *BOOLS, "lengths"),
}  # fmt: skip
PADDING = {
    "bool": ("key_padding_mask", *BOOLS), "float": ("key_padding_mask", "added"),
    "lengths": ("key_padding_mask", *BOOLS, "lengths"),
}  # fmt: skip


class Adapted(Convention):
    """``f(call)``: what it reads of the call is what it is judged on."""

    name = "adapter"
    call = "f(call: mha_parity.AttentionCall) -> output (N, L, E), or (output, weights)"

    def claims(self) -> Offer:
        """Return inputs and projections as far as one call reads them; the probes show the rest."""
        self.read: frozenset[str] = frozenset()
        return make_offer(size=("small", "medium", "equal", "ones"), memory=self.library.memory)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """None: what an adapter does not read is listed as not offered."""
        return ()

    def plain_case(self) -> Case:
        """Two samples and two heads, or one; causal where the target hides the future by itself."""
        heads, width = (2, 3) if "many" in self.offer["heads"] else (1, 6)
        return PLAIN_LAYER.replace(
            attn=self.offer["attn"][0], form=self.offer["form"][0], heads_count=heads,
            projection=self.offer["projection"][0], head_dim=width,
        )  # fmt: skip

    def probes(self) -> Iterator[FeatureProbe]:
        """Offer what a call that has it reads, and answers."""
        if not accepts(self, PLAIN_LAYER).offered:
            return
        if not self.read & WEIGHTS:
            self.offer |= {"form": ("qkv",), "projection": ("none",)}
        if not self.read & {"heads", "num_kv_heads"}:
            self.offer |= {"heads": ("one",)}
            self.reasons["heads", "many"] = "the adapter does not read `num_heads`"
        take_as_causal(self)
        case = self.trial_case()
        yield from self._inputs(case)
        if case.form == "mha":
            yield from self._projections(case)
        grouped = case.replace(heads_count=4, kv_heads_count=2)
        yield from self._reading("kv_heads", "fewer", ("num_kv_heads",), grouped)
        if case.form != "mha":
            yield FeatureProbe("v_dim", "other", (case.replace(v_head_dim=4),))
        yield from self._masks(case)
        yield from self._reading("scale", "given", ("scale",), case.replace(scale="given"))
        empty = (case.replace(batch=0), case.replace(queries=0, keys=0))
        yield FeatureProbe("size", "empty", empty)
        yield from weight_probes(case)
        yield FeatureProbe("gradients", "yes", (case.replace(gradients="yes"),))
        if {*self.offer["attn"], *self.offer["padding"]} == {"none"}:
            self.remarks = (*self.remarks, NO_MASKS)

    def _inputs(self, case: Case) -> Iterator[FeatureProbe]:
        if self.hides_future:
            return
        cross = case.replace(inputs="cross", keys=7)
        yield from self._reading("inputs", "cross", ("key",), cross)
        if case.form == "mha":
            distinct = cross.replace(inputs="distinct")
            yield from self._reading("inputs", "distinct", ("value",), distinct)

    def _projections(self, case: Case) -> Iterator[FeatureProbe]:
        yield from self._reading(
            "out_proj", "general", ("w_out",), case.replace(out_proj="general")
        )
        biased = case.replace(bias="yes")
        for name in ["b_q", "b_v"] + ["b_out"] * ("general" in self.offer["out_proj"]):
            if not self._reads(biased, (name,)):
                self.reasons["bias", "yes"] = f"the adapter does not read `{_shown(name)}`"
                return
        yield FeatureProbe("bias", "yes", (biased,))

    def _masks(self, case: Case) -> Iterator[FeatureProbe]:
        for value, names in ATTN.items():
            if value not in self.offer["attn"]:
                yield from self._reading("attn", value, names, case.replace(attn=value))
        for value, names in PADDING.items():
            cases = [case.replace(attn=each, padding=value) for each in self.offer["attn"]]
            yield from self._reading("padding", value, names, *cases)
        masks = [(axis, self.offer[axis][-1]) for axis in ("attn", "padding")]
        some = {axis: value for axis, value in masks if value not in {"none", "causal"}}
        if some:
            rows = case.replace(**some, masked_rows="some")
            yield FeatureProbe("masked_rows", "some", (rows,))

    def _reading(
        self, axis: str, value: str, names: tuple[str, ...], *cases: Case
    ) -> Iterator[FeatureProbe]:
        """Yield the trial of a feature, if the call of the first case reads one of these."""
        if self._reads(cases[0], names):
            yield FeatureProbe(axis, value, cases)
            return
        said = " or ".join(f"`{_shown(name)}`" for name in names)
        self.reasons[axis, value] = f"the adapter does not read {said}"

    def _reads(self, case: Case, names: tuple[str, ...]) -> bool:
        """Return whether a call reads one of these; one that raises is left to the trial."""
        with suppress(CandidateError):
            self(make_problem(case))
        return bool(self.read & {*names})

    def prepare(self, problem: Problem) -> Call:
        """Pass the one argument."""
        arguments = Arguments(problem, self.library)
        asked = AttentionCall(arguments)
        given = tuple(arguments.given)

        def called(call: AttentionCall) -> Any:
            try:
                return self.subject(call)
            finally:
                self.read = call.read

        call = Call(called, (asked,), given=given)
        return vjp.with_function_gradients(call, arguments, _as_it_is, partial(_gradients, problem))

    def record(self, call: Call) -> None:
        """Nothing: an adapter has one parameter."""


def _gradients(problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
    """Return the gradients of what the case has under torch's names.

    Raises
    ------
    CandidateError
        A weight has none.

    """
    held = {n: a for n, a in found.items() if n[:2] not in {"w_", "b_"}}
    parts: dict[str, dict[str, Array]] = {"w": {}, "b": {}}
    for kind, arrays in parts.items():
        for part in ("q", "k", "v", "out"):
            array = getattr(problem, f"{kind}_{part}")
            if array is None:
                continue
            if f"{kind}_{part}" not in found and (kind, part) != ("b", "k"):
                name = _shown(f"{kind}_{part}")
                message = f"`{name}` has no gradient: the adapter copies it into a layer"
                raise CandidateError("structure", message)
            # A key's bias shifts all scores of a row alike.
            gradient = found.get(f"{kind}_{part}", np.zeros_like(array))
            if gradient.shape != array.shape:  # of fewer heads of keys and values
                gradient = at_first_heads(gradient, problem.case)
            arrays[part] = gradient
    state = vjp.as_state_dict(problem, parts["w"], parts["b"])
    return held | {name: problem.sum_shared_heads(name, array) for name, array in state.items()}


def _as_it_is(rows: Array) -> Array:
    return rows


def _shown(name: str) -> str:
    kind, _, part = name.partition("_")
    words = {"w": f"{part}_proj_weight", "b": f"{part}_proj_bias"}
    return words.get(kind, name)
