"""Refusals after trials: their sentences, and three further experiments."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import ADAPTER, CandidateError, TargetError
from mha_parity.core.parameters import Role
from mha_parity.targets.calls.target_call import Arguments
from mha_parity.targets.interpretations.placeholder_arguments import filler_text
from mha_parity.targets.interpretations.try_interpretations import (
    MIN_CORRELATION,
    SMALL,
    Search,
    attention_in_float64,
    is_rounding,
    trial_problem,
)
from mha_parity.targets.layers.build_layer import is_module
from mha_parity.targets.layers.removed_parts import parts_taken_out
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.signatures import forward, signature
from mha_parity.targets.static.without_counterpart import lacks_counterpart
from mha_parity.targets.trials.linear_attention import has_separate_kernels, separate_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.convention_base.interpreted import InterpretedCalls
    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.try_interpretations import Ask, InterpretationResult
    from mha_parity.targets.trials.layer_candidates import Layers

FEW = 8  # interpretations that are tried at other lengths
NO_FORWARD = "_forward_unimplemented"  # what torch.nn.Module has until a class defines one
# A library, or a part of one that its installed release does not have.
_NOT_INSTALLED = re.compile(r"but (\w+) is not installed")
_LACKING = re.compile(r" is not installed|module '[\w.]+' has no attribute")


def refuse_output_unapplied(convention: InterpretedCalls, ask: Ask, dtype: str) -> None:
    """Refuse a layer whose output projection, judged as the identity, is not applied as such.

    Raises
    ------
    TargetError
        Filled with another matrix, the output is not what it was times that, plus the bias.

    """
    name, how = convention.name, convention.how
    problem = trial_problem(how, "self", dtype)
    width, rng = problem.query.shape[-1], np.random.default_rng(SMALL.seed)
    w_out = rng.standard_normal((width, width)).astype(problem.dtype)
    b_out = rng.standard_normal(width).astype(problem.dtype)
    try:
        mixed = ask(how, problem).output.astype(np.float64)
        output = ask(how, problem.replace(w_out=w_out, b_out=b_out)).output
    except CandidateError:
        return  # the run says what it raised
    b_out = b_out * any(slot.bias for slot in how.slots)
    path = how.slots[0].path
    # The identity does not tell X @ W from X @ W.T, which a Linear computes.
    ways = (w_out.T,) if path.endswith(".weight") else (w_out.T, w_out)
    if not any(is_rounding(output, mixed @ way + b_out) for way in ways):
        shared = _names_of_one(convention, problem, path.rpartition(".")[0])
        raise TargetError(
            f"got {name}, but {', '.join(shared)} are one module, so that q, k, v and out have the "
            "same weights; make each its own, as copy.deepcopy does."
            if shared
            else f"got {name}, but the output is not that of its heads times `{path}`, as "
            f"torch's out_proj.weight; apply it so, or {ADAPTER}."
        )


def _names_of_one(convention: InterpretedCalls, problem: Problem, path: str) -> list[str]:
    """Return the paths at which a layer holds the module of one, if these are four or more."""
    layer = convention.build(problem, Arguments(problem, convention.library))
    if not is_module(layer):
        return []
    module = layer.get_submodule(path)
    every = layer.named_modules(remove_duplicate=False)
    same = [f"`{found}`" for found, each in every if each is module]
    return same if len(same) >= len((*names.ROWS, "out")) else []


def refuse_around_unapplied(convention: InterpretedCalls, dtype: str, *, causal: bool) -> None:
    """Refuse a layer whose Linears around an attention of torch are no factors of its projections.

    They are judged as the identity, by which one that stands in another's place would pass.

    Raises
    ------
    TargetError
        With other weights in them, the output is not that of the products.

    """
    import torch

    how, rng = convention.how, np.random.default_rng(SMALL.seed)
    problem = trial_problem(how, ("self", "cross", "distinct")[len(how.roles.rows) - 1], dtype)
    arguments = Arguments(problem, convention.library)
    layer, factors = convention.build(problem, arguments), {}
    for path in how.around:
        width = problem.case.embed_dim
        factor = (rng.standard_normal((width, width)) / width**0.5).astype(dtype)
        linear = torch.nn.Linear(width, width, bias=False)
        linear.weight.data = torch.from_numpy(factor)
        layer.set_submodule(path, linear)
        factors["".join(names.parts(path)) or "out"] = factor
    try:
        output = convention.answer(problem, convention.layer_call(layer, arguments).make()).output
    except CandidateError:
        return  # the run says what it raised
    known = set(factors) <= {*names.ROWS, "out"} and len(factors) == len(how.around)
    expected = attention_in_float64(_multiplied(problem, factors), causal=causal) if known else None
    if expected is None or not is_rounding(output, expected):
        raise TargetError(
            refusal_without_counterpart(convention.name, how.around, name_of_torch_attention(how))
        )


def _multiplied(problem: Problem, factors: Mapping[str, Array]) -> Problem:
    """Return the problem whose projections are multiplied with the factor of each."""
    inner = {f"w_{part}": getattr(problem, f"w_{part}") @ factors[part]
             for part in names.ROWS if part in factors}  # fmt: skip
    outer = {}
    if (last := factors.get("out")) is not None and problem.w_out is not None:
        bias = None if problem.b_out is None else last @ problem.b_out
        outer = {"w_out": last @ problem.w_out, "b_out": bias}
    return problem.replace(**inner, **outer)


def name_of_torch_attention(how: Interpretation) -> str:
    """Return what to call the attention of torch that a layer of this interpretation holds."""
    return f"`{how.slots[0].path.rpartition('.')[0]}`, an attention of torch"


def refuse_own_heads(
    ask: Ask, name: str, trials: Sequence[InterpretationResult], dtype: str, layers: Layers
) -> None:
    """Refuse a layer that computes attention with a number of heads that cannot be set.

    Raises
    ------
    TargetError
        That is so of one of the nearest; the sentence has the number.

    """
    of_one = [each for each in trials if _knows_no_heads(each.interpretation, layers)]
    nearest = sorted(of_one, key=lambda each: -each.correlation)[:FEW]
    several = [replace(each.interpretation, many_heads=True) for each in nearest]
    width = SMALL.embed_dim
    for heads in (n for n in range(2, width) if width % n == 0):
        base = SMALL.replace(heads_count=heads, head_dim=width // heads)
        found = Search(ask, dtype, base=base).run(several)
        if found is not None and found.exact:
            raise TargetError(
                f"got {name}, but it has {heads} heads, and no parameter that sets their number "
                f"was found; name it num_heads, as torch does, or {ADAPTER}."
            )


def refuse_separate_kernels(bound: Convention) -> None:
    """Refuse what multiplies a function of the queries by one of the keys.

    Raises
    ------
    TargetError
        Its weights show that.

    """
    if has_separate_kernels(bound):
        raise TargetError(separate_kernels(bound.name))


def _knows_no_heads(how: Interpretation, layers: Layers) -> bool:
    """Return whether a layer was built by its width alone, and judged as a single head."""
    made = how.construction
    if made is not None and made.config:
        return not layers.asks_for(made, "heads", "head_dim")
    return made is not None and not made.has("heads", "head_dim") and not how.many_heads


_SIZES = frozenset({Role.SIZE, Role.HEADS, Role.SCALE, Role.DROPOUT})


def why_refused(
    name: str,
    layers: Layers | None,
    best: InterpretationResult | None,
    trials: Sequence[InterpretationResult],
    subject: Any,
) -> str:
    """Return why nothing fits a class (``layers``), or a function (None), ``best`` the nearest."""
    offenders = () if layers is None else layers.offenders
    if layers is not None and offenders:
        parts = _parts_of_positions(layers.kind, offenders)
        return refusal_without_counterpart(name, offenders, layers.inner, parts)
    if best is not None and (around := best.interpretation.around):
        return refusal_without_counterpart(
            name, around, name_of_torch_attention(best.interpretation)
        )
    if best is not None and may_be_another(best):
        return refusal_of_unnamed_roles(name, best.correlation, best.interpretation.unnamed)
    if trials:
        return refusal_nothing_fits(name, trials)
    why = _unreadable(subject) if layers is None else f", but {_obstacle(layers)}"
    return f"got {name}{why}; {_installed(why) or ADAPTER}."


def _unreadable(function: Any) -> str:
    """Return why no call of a function was made."""
    if signature(function) is None:
        return " without a readable signature"
    named = call_parameters.of_callable(function)
    said = ", ".join(f"`{each.name}`" for each in named)
    if named and all(_is_a_size(each) for each in named):
        makes = f", but {said} are sizes and no inputs, so that it may make an attention"
        return f"{makes}; call it in the file and name what it returns"
    return f", but {said} do not say which is what" if said else ", but it takes no arguments"


def _is_a_size(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter of a function is a size, a scale or a dtype by its name."""
    role = call_parameters.role(parameter.name, "call", parameter.default)
    return role in _SIZES or parameter.name in {"dtype", "device", "bias"}


def _obstacle(layers: Layers) -> str:
    """Return why no call of a class was made."""
    if layers.obstacles:
        return layers.obstacles[0]
    call = forward(layers.kind)
    if call is layers.kind or getattr(call, "__name__", "") == NO_FORWARD:
        return "it has no `forward` and no `__call__`; name the method that computes, Class.method"
    if not layers.is_built:
        return "no way to build it was found"
    said = ", ".join(f"`{p.name}`" for p in call_parameters.of_callable(call, skip_self=True))
    return f"none of {said} is known to be its rows" if said else "its call takes no rows"


def may_be_another(trial: InterpretationResult) -> bool:
    """Return whether an output only comes near attention, by weights whose names say nothing."""
    inexact = trial.correlation >= MIN_CORRELATION and not trial.exact
    return inexact and bool(trial.interpretation.unnamed)


def _with_others(how: Interpretation) -> str:
    """Say what required parameters got that are neither inputs nor weights."""
    if not how.roles.none:
        return ""
    names = " and ".join(f"`{each}`" for each in how.roles.none)
    return f", with {filler_text(how.roles.filler)} for {names},"


def refusal_of_unnamed_roles(
    name: str, correlation: float, unnamed: Sequence[tuple[str, tuple[str, ...]]]
) -> str:
    """Return the refusal of what may be meant as another kind of attention."""
    taken = ", ".join(f"`{path}` for {' and '.join(parts)}" for path, parts in unnamed)
    return (
        f"got {name}, whose output correlates with attention by {correlation:.2f} with {taken}, "
        "but these names do not say so, and it may be meant as something else; to have it judged, "
        f"name them after what they project, as q_proj, k_proj, v_proj or qkv, or {ADAPTER}."
    )


def _parts_of_positions(kind: type, offenders: Sequence[str]) -> tuple[str, ...]:
    """Return the functions that a call names which rotate, where its positions alone offend."""
    call = forward(kind)
    named = call_parameters.of_callable(call, skip_self=True)
    positions = {p.name for p in named if call_parameters.role(p.name, "call") is Role.POSITIONS}
    code = getattr(inspect.unwrap(call), "__code__", None)
    if code is None or not positions.issuperset(offenders):
        return ()
    return tuple(each for each in code.co_names if lacks_counterpart(each))


NO_COUNTERPART = "no counterpart in torch's layer"


def refusal_without_counterpart(
    name: str, offenders: Sequence[str], inner: str = "", parts: Sequence[str] = ()
) -> str:
    """Return the refusal of what torch's layer has no counterpart for.

    ``inner`` names the part of a target that is an attention without that; ``parts`` are those of
    which it is one where they return what they are given.
    """
    said = ", ".join(f"`{each}`" for each in offenders)
    verb = "has" if len(offenders) == 1 else "have"
    remedy = f"judge its {inner}, alone" if inner else "judge it without"
    if parts:
        remedy = f"--without {','.join((*parts_taken_out(), *parts))} judges the rest"
    return f"got {name}, but {said} {verb} {NO_COUNTERPART}; {remedy}, or {ADAPTER}."


# What attentions are called that have no softmax of scaled products of queries and keys.
_OTHER_KINDS = re.compile(
    r"(linear|performer|linformer|nystrom|cosine|additive|bahdanau|sigmoid|fourier)_?(\w*_)?att"
    r"|^(performer|linformer|nystromformer|fnet)"
)


def refuse_other_kind(name: str) -> None:
    """Refuse what departs from attention, and is called another kind of it.

    Raises
    ------
    TargetError
        The name says so.

    """
    if found := _OTHER_KINDS.search(names.snake_case(name.rpartition(":")[2])):
        kind = found[1] or found[3]
        raise TargetError(
            f"got {name}, which does not compute attention and is called {kind}: that kind of it "
            f"has {NO_COUNTERPART}; take softmax(q k^T / sqrt(head_dim)), or "
            f"{ADAPTER}."
        )


def refusal_nothing_fits(name: str, trials: Sequence[InterpretationResult]) -> str:
    """Return the refusal that says what the two nearest interpretations missed.

    Or what every call raised.
    """
    said = {each.missed.rstrip(".") for each in trials}
    if len(said) == 1 and min(said).startswith("raised "):
        raised = said.pop()
        # A key that no call has is no mistake of a function that is given its weights by name.
        remedy = ADAPTER if raised.startswith("raised KeyError") else f"mend that, or {ADAPTER}"
        return (
            f"got {name}, but every call that was tried {raised}; {_installed(raised) or remedy}."
        )
    # Of what raised, the reason that an installation mends says most.
    nearest = sorted(
        trials, key=lambda each: (-each.correlation, _LACKING.search(each.missed) is None)
    )[:2]
    calls: dict[str, list[str]] = {}
    for each in nearest:
        how = f"{each.interpretation}{_with_others(each.interpretation)}".rstrip(",")
        calls.setdefault(each.missed.rstrip("."), []).append(how)
    missed = "; ".join(f"{_alternatives(how)}: {what}" for what, how in calls.items())
    remedy = _installed(missed) or f"{ADAPTER}, or name a convention with --convention NAME"
    return (
        f"got {name}, but no way to call it computes attention; nearest tried: {missed}; {remedy}."
    )


def _installed(why: str) -> str:
    """Return the remedy where a library is not installed; "" where that is not the reason."""
    missing = _NOT_INSTALLED.search(why)
    return f"install {missing[1]}" if missing else ""


def _alternatives(calls: Sequence[str]) -> str:
    """Return one or two interpretations; what both have in common is said once."""
    first, *others = (call.split("; ") for call in calls)
    (other,) = others or [first]
    shared = next((n for n, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), 0)
    endings = [", ".join(parts[shared:]) for parts in (first, other)]
    return ", ".join([*first[:shared], " or ".join(dict.fromkeys(endings))])
