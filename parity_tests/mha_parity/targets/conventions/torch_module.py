"""Layers that look like torch.nn.MultiheadAttention: constructor, ``load_state_dict``, call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.case import Case
from mha_parity.core.features import make_offer
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls import vjp
from mha_parity.targets.calls.canonical_layout import lay_rows, only_sample
from mha_parity.targets.calls.layer_modes import has_modes, set_mode
from mha_parity.targets.calls.target_call import Arguments, Call, owner_of, target_errors
from mha_parity.targets.convention_base.always_causal import take_as_causal
from mha_parity.targets.convention_base.convention import FeatureProbe
from mha_parity.targets.convention_base.dropout_argument import generator_argument
from mha_parity.targets.convention_base.instance_calls import InstanceCalls
from mha_parity.targets.convention_base.sequence_axis import BATCH_FIRST, mixes_samples
from mha_parity.targets.static.differences_from_torch import departures, second_value
from mha_parity.targets.static.signatures import (
    ANY,
    Signature,
    constructor,
    forward,
    signature,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

PACKED = "in_proj_weight"
PLAIN = Case(
    seed=7, batch=2, queries=5, keys=5, heads_count=2, head_dim=3, layout="sequence_first"
)  # fmt: skip


class TorchModule(InstanceCalls):
    """``C(embed_dim, num_heads, ...)``, ``load_state_dict``, ``(query, key, value, ...)``.

    Each problem gets a module of its own, in train() mode with dropout 0 unless ``path`` (a
    ``mha_torch.Path``) says otherwise: torch's fast path is another computation.
    """

    name = "torch-module"
    drops_as_torch = True
    own_masks = frozenset({"attn_mask", "key_padding_mask", "is_causal"})
    call = "C(embed_dim, num_heads, ...), load_state_dict, (query, key, value, ...) as torch has it"

    def claims(self) -> Offer:
        """Return what constructor and call take by name, and the state dict has entries for."""
        made = constructor(self.subject)
        self._made = ANY if made is None else made
        self._called, state = self._look_at_instance()
        self.remarks = tuple(departures(*self._named))
        takes, called = self._made.takes, self._called.takes
        both = ("no", "yes")
        causal = ("causal",) if called("attn_mask") or called("is_causal") else ()
        masks = ("none", *_MASKS, *causal) if called("attn_mask") else ("none", *causal)
        weights: tuple[str, ...] = ("none", "averaged") if called("need_weights") else ("none",)
        weights += ("per_head",) if called("average_attn_weights") else ()
        padding = ("none", "bool", "float", "lengths") if called("key_padding_mask") else ("none",)
        has_bias = takes("bias") or "in_proj_bias" in state
        offered = make_offer(
            layout=("batch_first", "sequence_first", "unbatched")
            if takes("batch_first")
            else ("sequence_first", "unbatched"),
            inputs=("self", "cross", "distinct"),
            projection=("packed", "separate") if takes("kdim") and takes("vdim") else ("packed",),
            bias=both if has_bias else ("no",),
            bias_kv=both if takes("add_bias_kv") else ("no",),
            zero_attn=both if takes("add_zero_attn") else ("no",),
            out_proj=("identity", "general"),
            padding=padding,
            attn=masks,
            masked_rows=("none", "some") if called("attn_mask") or len(padding) > 1 else "none",
            weights=weights,
            size=("small", "medium", "equal", "ones"),
            memory=self.library.memory,
        )
        return self._along_path(offered)

    def entry(self) -> Any:
        """Return what the call of a layer comes down to, also of one that a function builds."""
        return super().entry() if isinstance(self.subject, type) else self._entry

    def _look_at_instance(self) -> tuple[Signature, frozenset[str]]:
        """Build a small one; return the parameters of its call and the names of its state."""
        self._entry = None
        try:
            with target_errors():
                instance = self.subject(6, 2)
                self._entry = forward(instance)
                names = frozenset(getattr(instance, "state_dict", dict)())
        except CandidateError:
            return ANY, frozenset()
        called = signature(self._entry)
        return ANY if called is None else called, names

    def _along_path(self, offered: Offer) -> Offer:
        """Narrow the offer to what the path computes."""
        if self.path is None:
            return offered
        from mha_parity.targets.conventions import torch_kernel_paths

        return offered | torch_kernel_paths.path_offer(self.path)

    def plain_case(self) -> Case:
        """Two heads of width 3, two samples, torch's default layout."""
        return PLAIN.replace(layout=self.offer["layout"][0], attn=self.plain_attn)

    def probes(self) -> Iterator[FeatureProbe]:
        """Which axis it attends along; empty axes, gradients, and weights that come unasked.

        A layer that has no mask, and hides the future by itself, is causal.
        """
        self._look_at_layout()
        if self.offer["attn"] == ("none",):
            take_as_causal(self)
        case = self.trial_case()
        cross = case.replace(inputs="cross")
        empty = [case.replace(batch=0)]
        if self.hides_future:
            empty.append(case.replace(queries=0, keys=0))
        else:
            empty += [cross.replace(queries=0), cross.replace(keys=0)]
        yield FeatureProbe("size", "empty", tuple(empty))
        if self.path is None:
            yield FeatureProbe("gradients", "yes", (case.replace(gradients="yes"),))
        if "averaged" not in self.offer["weights"] and self.path is None:
            yield FeatureProbe("weights", "averaged", (case.replace(weights="averaged"),))

    def _look_at_layout(self) -> None:
        """Take a layer without ``batch_first`` batch first where it attends along that axis."""
        if "batch_first" in self.offer["layout"] or self.path is not None:
            return
        with suppress(CandidateError):
            if self.attends_along_samples(make_problem(self.trial_case())):
                self.offer = self.offer | {"layout": ("batch_first", "unbatched")}
                self.reasons["layout", "sequence_first"] = "it attends along the second axis"
                self.remarks = (*self.remarks, BATCH_FIRST)

    def attends_along_samples(self, problem: Problem) -> bool:
        """Return whether the layer attends along the axis that is taken for that of the samples."""
        return mixes_samples(self, problem)

    def prepare(self, problem: Problem) -> Call:
        """Build a module with the problem's weights and pass torch's own arguments."""
        arguments = Arguments(problem, self.library)
        return self.layer_call(self.build(problem, arguments), arguments)

    def layer_call(self, layer: Any, arguments: Arguments) -> Call:
        """Return the call of a layer on the problem of ``arguments``."""
        problem = arguments.problem
        rows = arguments.rows(lay_rows(problem))
        options = {k: v for k, v in self._options(problem, arguments) if self._called.takes(k)}
        if self.path is not None:
            from mha_parity.targets.conventions import torch_kernel_paths

            layer = torch_kernel_paths.on_path(self.path, layer)
        function = layer if callable(layer) else forward(layer)
        call = self.with_masks(Call(function, rows, options, tuple(arguments.given)), arguments)
        return vjp.with_layer_gradients(call, layer, arguments)

    def answered(self, problem: Problem, call: Call, result: Any) -> Answer:
        """Return the answer, with a remark where a layer like torch's answers in another form."""
        answer = super().answered(problem, call, result)
        unasked = call.kwargs.get("need_weights") is False
        said = second_value(result) if unasked else ""
        return replace(answer, remarks=(*answer.remarks, said)) if said else answer

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Return output and weights; what comes behind them is no part of torch's answer."""
        return super().answer(problem, result[:2] if isinstance(result, tuple) else result)

    def not_saved(self, problem: Problem, call: Call) -> str:
        """Name an entry of the state dict that differs from what was loaded; "" if none does."""
        layer = owner_of(call.function)
        saves = getattr(layer, "state_dict", None)
        if self.path is not None or not callable(saves):
            return ""
        with target_errors():
            saved = {name: to_numpy(array, f"`{name}`") for name, array in saves().items()}
        loaded = self._filled(problem, set(saved))
        unlike = (
            name
            for name, array in loaded.items()
            if name not in saved or not np.array_equal(array.astype(saved[name].dtype), saved[name])
        )
        return next(unlike, "")

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls of one module in train() and in eval() mode.

        torch's own paths fix the mode and are not asked. Of a layer that is built already it is a
        copy, in which dropout above 0 is ``p``.
        """
        if self.path is not None:
            return None
        module = self.dropping(problem, p)
        if module is None or not has_modes(module):
            return None

        def asked(training: bool) -> Call:
            call = self.layer_call(set_mode(module, training), Arguments(problem, self.library))
            more = generator_argument(self, self._called.named, problem)
            return replace(call, kwargs={**call.kwargs, **more})

        return asked

    @property
    def takes_dropout(self) -> bool:
        """Whether the constructor takes a probability of dropout."""
        return self._made.takes("dropout")

    def build(self, problem: Problem, arguments: Arguments, *, dropout: float = 0.0) -> Any:
        """Return a new module that holds the problem's weights, or the one that has them."""
        if (module := self.of_instance(arguments)) is not None:
            return module
        options = {k: v for k, v in self._shape(problem, dropout) if self._made.takes(k)}
        if dropout:
            options |= generator_argument(self, self._made.named, problem)
        with target_errors():
            module = self.construct(problem.query.shape[-1], problem.num_heads, **options)
            if self.library.name == "torch" and not {"dtype", "device"} <= set(options):
                module = self._moved(module, problem)
            self.load(module, problem, arguments)
        return module

    def _moved(self, module: Any, problem: Problem) -> Any:
        """Return the module in the case's dtype, where the arrays lie."""
        device = getattr(self.library, "device", "cpu")
        with target_errors():
            return module.to(device=device, dtype=_torch_dtype(problem.case.dtype))

    def load(self, module: Any, problem: Problem, arguments: Arguments) -> None:
        """Load the problem's weights into ``module``; an absent out_proj is the identity."""
        named = getattr(module, "state_dict", None)
        names = set(named()) if callable(named) else None
        state = self._filled(problem, names)
        loaded = {name: arguments.array(name, a) for name, a in state.items()}
        # What a layer that is built already has besides weights stays.
        kept = {} if self.instance is None else dict(module.state_dict())
        module.load_state_dict({**kept, **loaded})

    def _shape(self, problem: Problem, dropout: float) -> Iterator[tuple[str, Any]]:
        """Yield the keywords of the constructor."""
        case = problem.case
        yield "dropout", dropout
        yield "bias", case.bias == "yes"
        yield "add_bias_kv", case.bias_kv == "yes"
        yield "add_zero_attn", problem.add_zero_attn
        if case.projection == "separate":
            yield "kdim", problem.key.shape[-1]
            yield "vdim", problem.value.shape[-1]
        yield "batch_first", case.layout != "sequence_first"
        torch = self.library.name == "torch"
        yield "dtype", _torch_dtype(case.dtype) if torch else problem.dtype
        if torch:
            yield "device", getattr(self.library, "device", "cpu")

    def _filled(self, problem: Problem, names: set[str] | None) -> dict[str, Array]:
        """Return the state dict, what the problem has none of written out."""
        width = problem.query.shape[-1]
        plain: dict[str, Array] = {"out_proj.weight": np.eye(width, dtype=problem.dtype)}
        if names is None:
            names = {"out_proj.weight"}
            names |= {"in_proj_bias", "out_proj.bias"} if problem.b_q is not None else set()
        zeros = np.zeros(3 * width, dtype=problem.dtype)
        plain |= {"in_proj_bias": zeros, "out_proj.bias": zeros[:width]}
        held = {name: array for name, array in plain.items() if name in names}
        return held | _under(names, problem.state())

    def _options(self, problem: Problem, arguments: Arguments) -> Iterator[tuple[str, Any]]:
        """Yield the keywords of the call."""
        case = problem.case
        per_head = case.weights == "per_head"
        yield "need_weights", case.weights != "none" or self.path in {"weights", "eval"}
        if case.weights != "none":
            yield "average_attn_weights", not per_head
        padding = problem.key_padding_mask
        if padding is None and "key_padding_mask" in self._called.required:
            padding = np.zeros((case.batch, case.keys), dtype=bool)
        if padding is not None:
            padding = only_sample(padding) if case.layout == "unbatched" else padding
            yield "key_padding_mask", arguments.array("key_padding_mask", padding)
        mask = problem.attn_mask
        if problem.is_causal:
            mask = np.triu(np.ones((case.queries, case.keys), dtype=bool), k=1)
            # Without weights torch drops the mask for the hint, and hides appended keys by it.
            if not problem.appended or self.path is not None:
                yield "is_causal", True
        if mask is None and "attn_mask" in self._called.required:
            mask = np.zeros((case.queries, case.keys), dtype=bool)
        if mask is not None:
            yield "attn_mask", arguments.array("attn_mask", mask)


def _under(names: set[str], state: dict[str, Array]) -> dict[str, Array]:
    """Return weights as a layer has them: in three matrices for equal widths, too, or in one."""
    separate = [f"{part}_proj_weight" for part in "qkv"]
    if PACKED not in state or PACKED in names or not names.issuperset(separate):
        return state
    rest = {name: array for name, array in state.items() if name != PACKED}
    return rest | dict(zip(separate, np.split(state[PACKED], 3), strict=True))


_MASKS = ("bool2d", "float2d", "bool3d", "float3d")


def _torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)
