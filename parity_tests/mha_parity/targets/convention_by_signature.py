"""Which convention a subject follows, from its parameters' order and kind and a small call."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import ADAPTER, TargetError
from mha_parity.targets.conventions.functions import QKVHeads, XWeights
from mha_parity.targets.conventions.projections import ProjectionFunction
from mha_parity.targets.conventions.varlen import Varlen, packed_input_parameters
from mha_parity.targets.features_offered.probe_features import accepts
from mha_parity.targets.interpretations.call_inputs import inputs_of_call, switches_rule
from mha_parity.targets.libraries.first_call_weights import HoldsParameters
from mha_parity.targets.onnx.attention import OnnxAttention
from mha_parity.targets.onnx.layer import OnnxLayer
from mha_parity.targets.onnx.model import OnnxModel
from mha_parity.targets.programs.command import Command
from mha_parity.targets.programs.exec_protocol import ExecProtocol
from mha_parity.targets.static.argument_meanings import counts_kv_heads
from mha_parity.targets.static.documented_layout import (
    documents_heads_before_rows,
    documents_heads_first,
)
from mha_parity.targets.static.signatures import constructor, forward, signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.static.signatures import Signature

SDPA_KEYWORDS = frozenset({"attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"})
LAYER_KEYWORDS = frozenset({"key_padding_mask", "attn_mask", "need_weights"})
BY_COUNT = {3: "qkv", 5: "x-weights-heads", 6: "x-weights-out-heads"}
TORCH_STATE = frozenset({"in_proj_weight", "q_proj_weight", "out_proj.weight"})
ROWS = 3  # query, key and value
_OF_TILES = re.compile(r"block|tile|chunk|split|slice|worker")
PACKED_STATE = frozenset({"in_proj_weight", "q_proj_weight"})
# Conventions whose names leave nothing to experiments.
MASK_AXES = 4  # of the masks of JAX's function
SELF_EVIDENT = frozenset({"keras-layer", "jax-attention", "projections", "varlen"})
FOUR: tuple[type[Convention], ...] = (QKVHeads, XWeights, ProjectionFunction)


def recognise(subject: Any, libraries: Iterable[Library], *, call: bool = True) -> str:
    """Return the name of the convention that ``subject`` follows; without ``call``, uncalled.

    Raises
    ------
    TargetError
        None or several fit; the sentence says what was seen and which conventions would do.

    """
    if isinstance(subject, Command):
        return ExecProtocol.name
    if isinstance(subject, OnnxModel):
        return OnnxLayer.name if subject.graph.layer else OnnxAttention.name
    if isinstance(subject, type):
        return _of_class(subject, call=call)
    return _of_function(subject, libraries if call else ())


def computes_attention(bound: Convention) -> bool:
    """Return whether a small call gives torch's attention up to rounding, or what ends as one."""
    from mha_parity.cases.generate import make_problem
    from mha_parity.core.candidate import CandidateError
    from mha_parity.targets.interpretations.try_interpretations import (
        attention_in_float64,
        is_rounding,
    )

    # Others have some of sdpa's keywords too, and heads behind the rows.
    evident = bound.convention in SELF_EVIDENT or (
        bound.convention == "sdpa" and not bound.parameters
    )
    if evident or _has_packed_names(bound):
        return True
    dtype = "float64" if "float64" in bound.library.dtypes else "float32"
    problem = make_problem(bound.plain_case().replace(dtype=dtype))
    try:
        output = bound(problem).output
    except CandidateError:
        return False
    if output.shape != problem.output_shape:
        return False
    return any(is_rounding(output, attention_in_float64(problem, causal=c)) for c in (False, True))


def _has_packed_names(bound: Convention) -> bool:
    """Return whether a layer names its input projection as torch's does: then torch's rows too."""
    from mha_parity.core.candidate import CandidateError
    from mha_parity.targets.calls.target_call import target_errors

    if bound.convention != "torch-module" or not isinstance(bound.subject, type):
        return False
    if len(inputs_of_call(forward(bound.subject), skip_self=True)) < ROWS:
        return False  # one input, or two: a mask is none
    try:
        with target_errors():
            kept = set(getattr(bound.subject(6, 2), "state_dict", dict)())
    except CandidateError:
        return False
    return bool(PACKED_STATE & kept) and "out_proj.weight" in kept


def _of_class(kind: type, *, call: bool) -> str:
    from mha_parity.targets import backends

    is_own = issubclass(kind, HoldsParameters)  # a layer of its author's, not Keras's attention
    if not is_own and "keras" in backends.likely_libraries(kind):
        return "keras-layer"
    made, called = constructor(kind), signature(forward(kind))
    if made is None or called is None:
        raise _unsure(kind, called, "torch-module, module-valid-lens, module-mask")
    loads = hasattr(kind, "load_state_dict")
    if call and loads and not _is_like_torch(kind):
        raise _unsure(kind, called, "fitted")
    required, everything = _counts(called, bound=True)
    if loads or (required <= 3 <= everything and LAYER_KEYWORDS & called.named):
        return "torch-module"
    if required in {3, 4} and everything >= 3:
        return "module-valid-lens"
    if required in {1, 2} and everything <= 2 and not switches_rule(forward(kind)):
        return "module-mask"
    raise _unsure(kind, called, "torch-module, module-valid-lens, module-mask")


def _is_like_torch(kind: type) -> bool:
    """Return whether a small one, built as torch's layer is, keeps its weights under torch's names.

    What cannot be built so, or has no state before it is loaded, is taken at its word.
    """
    from mha_parity.core.candidate import CandidateError
    from mha_parity.targets.calls.target_call import target_errors

    try:
        with target_errors():
            names = set(getattr(kind(6, 2), "state_dict", dict)())
    except CandidateError:
        return False
    return not names or bool(TORCH_STATE & names)


def _counts(called: Signature, *, bound: bool) -> tuple[int, int]:
    """Return how many parameters are required and how many there are, ``self`` left out."""
    required = len(called.required) - bound
    return required, required + len(called.optional)


def _of_function(function: Any, libraries: Iterable[Library]) -> str:
    called = signature(function)
    if called is None:
        if getattr(function, "__name__", "") == "scaled_dot_product_attention":
            return "sdpa"
        raise _unsure(function, None, "all of `mha-parity list conventions`")
    if packed_input_parameters(called.required):
        return Varlen.name
    if _is_like_jax(function, called):
        return "jax-attention"
    by_name = len(called.required) == ROWS and SDPA_KEYWORDS & called.named
    if by_name and not documents_heads_first(function):  # torch's samples are first
        return "sdpa"
    groups = any(map(counts_kv_heads, (*called.required, *called.optional)))
    # With a number of key heads, a call of four or more is one of those that experiments show.
    count = 0 if groups else len(called.required) + _optional_count(function, called)
    if count == 4:
        return _of_four(function, called, libraries)
    if count in BY_COUNT:
        last = (*called.required, *called.optional)[count - 1]
        if count < 6 or _counts_heads(last):  # a sixth might be anything
            return BY_COUNT[count]
    raise _unsure(function, called, "qkv, qkv-heads, x-weights, projections, x-weights-heads, sdpa")


def _is_like_jax(function: Any, called: Signature) -> bool:
    """Return whether the parameters are those of JAX's, and the mask is none of fewer axes.

    Not where heads are documented before rows: JAX's are behind them.
    """
    from mha_parity.targets.masks.documented_shapes import documented_shapes

    if not ({"bias", "mask"} <= called.named and _are_qkv(called.required)):
        return False
    if documents_heads_before_rows(function):
        return False
    shapes = documented_shapes(function, function, "mask")
    return not shapes or any(len(each) == MASK_AXES for each in shapes)


def _are_qkv(names: Sequence[str]) -> bool:
    """Return whether three names are those of query, key and value by their first or last words."""
    words = [name.lower().split("_") for name in names]
    return ["q", "k", "v"] in ([each[0][:1] for each in words], [each[-1][:1] for each in words])


def _optional_count(function: Any, called: Signature) -> int:
    """Return 1 where the next parameter defaults to a number, which must be that of heads.

    Unless it is a number or size of tiles by its name, behind query, key and value.
    """
    fourth = len(called.required) == ROWS
    if not called.optional or (fourth and _OF_TILES.search(called.optional[0].lower())):
        return 0
    default = inspect.signature(function).parameters[called.optional[0]].default
    return int(isinstance(default, int) and not isinstance(default, bool))


def _of_four(function: Any, called: Signature, libraries: Iterable[Library]) -> str:
    """Tell ``(Q, K, V, n_heads)`` from ``(X, Wq, Wk, Wv)``: by annotation, then by calling it."""
    last = (*called.required, *called.optional)[3]
    if "mask" in last.lower():
        return "qkv"
    if len(called.required) == 3 or dict(called.annotations).get(last) in {int, "int"}:
        return "qkv-heads"
    said = []
    for library in libraries:
        shown = {
            kind.name: accepts(bound, bound.plain_case())
            for kind in FOUR
            for bound in (kind(function, library=library),)
        }
        fitting = [name for name, each in shown.items() if each.offered]
        if len(fitting) == 1:
            return fitting[0]
        said = [f"{name}: {each.reason or 'fits'}" for name, each in shown.items()]
    # Spelling has the last word only: a function that raises on every call shows nothing else.
    weighed = any(name.lower().startswith("w") for name in called.required)
    if _counts_heads(last) and not weighed:
        return "qkv-heads"
    raise _unsure(function, called, "; ".join(said))


def _counts_heads(name: str) -> bool:
    return "head" in name.lower() or name.lower() == "h"


def _unsure(subject: Any, called: Signature | None, fitting: str) -> TargetError:
    if not callable(subject):
        return TargetError(
            f"got {subject!r:.60} of type {type(subject).__qualname__}, but should be a function "
            "or a class: pass the attention itself, or the text that names it."
        )
    name = getattr(subject, "__qualname__", type(subject).__qualname__)
    seen = f"{name}{called}" if called else f"{name} without a readable signature"
    tried = f"; these would fit or were tried ({fitting})" if fitting else ""
    return TargetError(
        f"got {seen}, but should be recognisable as one convention{tried}: name it with "
        f"--convention NAME, or {ADAPTER}."
    )
