"""The lines of an adapter for a target, from how experiments showed it is called."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.adapters.expressions import Expressions
from mha_parity.targets.adapters.state_expressions import state_expressions
from mha_parity.targets.calls.canonical_layout import one_by_one
from mha_parity.targets.calls.mask_format import ADDED, LENGTHS, SWITCH
from mha_parity.targets.calls.target_call import Arguments, target_errors
from mha_parity.targets.interpretations.interpretation import OF_CONVOLUTIONS, OF_HEADS
from mha_parity.targets.layers import layer_arrays
from mha_parity.targets.layers.build_layer import offline, plain_lists
from mha_parity.targets.layers.config_objects import RecordingConfig, required_of, settable_of
from mha_parity.targets.layers.module_constants import globals_read
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.argument_meanings import LayerSizes
from mha_parity.targets.static.signatures import forward
from mha_parity.targets.static.tile_names import tile_or_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mha_parity.targets.calls.mask_format import MaskFormat
    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.packed_inputs import PackedInput
    from mha_parity.targets.layers.constructor_arguments import Construction, InnerAttention
    from mha_parity.targets.trials.fitted_target import Fitted

SIZES = {
    "width": "call.embed_dim", "heads": "call.num_heads", "head_dim": "call.head_dim",
    "kv_heads": "call.num_heads", "length": "max(128, call.query.shape[1])",
    "window": "2 * max(128, call.query.shape[1])",
    "odd_window": "2 * max(128, call.query.shape[1]) + 1", "bias": "True",
    "random": "np.random.default_rng(0)",
    "root": "call.head_dim**0.5", "inverse_root": "call.head_dim**-0.5",
    "off": "False", "on": "True", "dropout": "0.0", "zero": "0", "device": '"cpu"', "none": "None",
    "matrix": "call.q_proj_weight", "vector": "call.q_proj_bias",
    "packed_rows": "np.zeros((3 * call.embed_dim, call.embed_dim))",
    "packed_columns": "np.zeros((call.embed_dim, 3 * call.embed_dim))",
    "packed_vector": "np.zeros(3 * call.embed_dim)",
    "samples": "len(call.query)", "most_samples": "len(call.query)", "dtype": "call.query.dtype",
}  # fmt: skip
# What the names of heads are for a target of one head: an adapter that reads them is asked several.
OF_ONE_HEAD = {
    "call.num_heads": "1", "call.num_kv_heads": "1", "call.head_dim": "call.embed_dim"
}  # fmt: skip
NAMED_OF_HEADS = re.compile("|".join(map(re.escape, OF_ONE_HEAD)))
# How (N, L, E) gets a further axis, and loses it.
MORE_AXES = {
    **dict.fromkeys(("grid", "second_axis"), ("[:, :, None]", "[:, :, 0]")),
    "stacked": ("[None]", "[0]"),
}
WEIGHTS = "result[1]"
BUILDS = "    layer = Target("


class Skeleton:
    """The lines of the adapter's body, from an interpretation."""

    def __init__(self, fitted: Fitted, loaded: Any) -> None:
        """Take how a target is called, and what is loaded: that is called, or its ``apply``."""
        self._fitted = fitted
        of_function = isinstance(loaded, type) and not isinstance(fitted.subject, type)
        self._target = "Target.apply" if of_function else "Target"
        self._how = fitted.how
        self._write = Expressions(fitted.library.name)

    def lines(self) -> Iterator[str]:
        """Yield the lines: build, load, call, return."""
        one_head = "many" not in self._fitted.offer["heads"]
        yield from map(of_one_head, self._lines()) if one_head else self._lines()

    def _lines(self) -> Iterator[str]:
        target, built = self._target, list[str]()
        if self._how.construction is not None:
            problem = make_problem(self._fitted.trial_case())
            self._layer = self._fitted.build(problem, Arguments(problem, self._fitted.library))
            built = [*self._built(self._how.construction)]
            name = "" if callable(self._layer) else f".{forward(self._layer).__name__}"
            target = f"layer{name}"
        place = self._place()
        call = f"{target}({', '.join(self._arguments())})"
        if self._how.layout == "unbatched":
            yield from self._sample_by_sample(call, place, built)
            return
        yield from built
        output = self._canonical(f"result{place}")
        if output == "result" and not self._how.residual:
            yield f"    return {call}"
            return
        yield f"    result = {call}"
        numbered = place[1:-1].isdigit()
        weights = WEIGHTS if numbered and len(self._fitted.offer["weights"]) > 1 else ""
        output = f"{output} - call.query" if self._how.residual else output
        yield f"    return {output}{', ' * bool(weights)}{weights}"

    def _built(self, construction: Construction) -> Iterator[str]:
        for name, meaning in globals_read(self._fitted.subject).items():
            owner, _, attribute = name.rpartition(".")
            held = f"Target.__init__.__globals__[{json.dumps(owner or name)}]"
            yield f"    {held}{f'.{attribute}' * bool(owner)} = {_said(meaning)}"
        given = [f"{name}={_said(meaning)}" for name, meaning in construction.meanings]
        if construction.config:
            yield from self._configured(construction)
            given.append(f"{construction.config}=config")
        if construction.inner is not None:
            given.append(_inner(construction.inner))
        switches = {each.name for each in self._fitted.configured}
        for name, value in self._masks("constructor").items():
            if name in switches:  # of the configuration
                yield f"    config.{name} = {value}"
            else:
                given.append(f"{name}={value}")
        yield f"{BUILDS}{', '.join(given)})"
        for path in plain_lists(self._layer):
            yield f"    layer.{path} = torch.nn.ModuleList(layer.{path})"
        yield from self._filled()
        for path in (*self._how.norms, *self._how.around):
            yield f"    layer.set_submodule({json.dumps(path)}, torch.nn.Identity())"

    def _filled(self) -> Iterator[str]:
        """Yield the lines that put the weights into the layer."""
        if hasattr(self._layer, "load_state_dict"):
            yield "    layer = layer.to(call.query.dtype).eval()"
            yield "    state_dict = layer.state_dict()"
            form = "state_dict[{}] = {}"
            if self._how.arrangement in OF_CONVOLUTIONS:
                form = "state_dict[{0}] = ({1}).reshape(state_dict[{0}].shape)"
            yield from self._write.assignments(self._how.slots, form)
            yield "    layer.load_state_dict(state_dict)"
        else:
            for slot in self._how.slots:
                place = layer_arrays.path_expression(self._layer, slot.path, "layer")
                yield f"    {place} = {self._write.whole(slot)}"

    def _configured(self, construction: Construction) -> Iterator[str]:
        """Yield the lines that make the configuration that the constructor asks for."""
        rest = construction.arguments(LayerSizes(24, 4))
        config = rest[construction.config]
        if isinstance(config, RecordingConfig):
            with target_errors(), offline():
                self._fitted.construct(**{**rest, construction.config: config})
            # What the call alone asks for; of a configuration within it is the constructor's.
            if not any(isinstance(each, RecordingConfig) for each in config.asked.values()):
                for name in construction.asked:
                    getattr(config, name)
            yield "    from types import SimpleNamespace\n"
            yield f"    config = {_namespace(config)}"
            return
        kind = type(config).__name__
        required = ", ".join(f"{n}={_said(m)}" for n, m in required_of(type(config)).items())
        yield f"    config = Target.__init__.__globals__[{json.dumps(kind)}]({required})"
        for name, meaning in settable_of(config).items():
            yield f"    config.{name} = {_said(meaning)}"
        if hasattr(config, "_attn_implementation"):
            yield '    config._attn_implementation = "eager"'

    def _place(self) -> str:
        """Return the subscript or attribute of the output, "" where nothing else is returned."""
        problem = make_problem(self._fitted.trial_case())
        result = self._fitted.prepare(problem).make()
        several = one_by_one(result)
        place, _ = self._fitted.output_of(problem, several)
        self._of_heads = np.ndim(several[place]) > len(problem.output_shape)
        if isinstance(result, dict):
            return f"[{json.dumps(list(result)[place])}]"
        if is_dataclass(result):
            return f".{fields(result)[place].name}"
        return f"[{place}]" if isinstance(result, tuple | list) else ""

    def _arguments(self) -> Iterator[str]:
        """Yield the arguments in the order of the signature, by keyword behind a gap."""
        roles = self._how.roles
        values = {name: rows_of(self._how, role) for name, role in roles.inputs}
        if roles.packed is not None:
            values[roles.packed.parameter] = self._packed(roles.packed)
        values |= {name: self._write.of_argument(given) for name, given in roles.weights}
        values |= dict.fromkeys(roles.none, "None")
        values |= dict.fromkeys(roles.lengths, "call.query.shape[1]")
        values |= {name: str(tile_or_count(name, roles.tile, 2**20)) for name in roles.tiles}
        values |= dict.fromkeys(roles.ones, "1")
        values |= {name: _said(meaning) for name, meaning in roles.sizes}
        values |= state_expressions(self._fitted, SIZES)
        values |= {roles.heads: "call.num_heads"} if roles.heads else {}
        values |= self._masks("call")
        gap = False
        named = self._fitted.call_parameters
        values |= dict.fromkeys(call_parameters.required_dropouts(named), "lambda rows: rows")
        self._require_all(named, values)
        for each in named:
            if each.name not in values:
                gap = True
            elif gap or each.kind is each.KEYWORD_ONLY:
                yield f"{each.name}={values[each.name]}"
            else:
                yield values[each.name]

    def _require_all(self, named: Sequence[Parameter], values: Mapping[str, str]) -> None:
        """Refuse to write a call that lacks an argument, or passes None for what is a mask.

        Raises
        ------
        CandidateError
            A required argument is filled in by each call's trials alone.

        """
        roles, filled = self._how.roles, {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
        for each in named:
            required = each.default is each.empty and each.kind not in filled
            of_nothing = each.name in roles.none and roles.filler != "none"
            if required and (
                each.name not in values or (of_nothing and values[each.name] == "None")
            ):
                message = (
                    f"what `{each.name}` gets is found by trials, and is no line of an adapter"
                )
                raise CandidateError("structure", message)

    def _packed(self, given: PackedInput) -> str:
        """Return query, key and value as the one argument that holds them."""
        if given.container == "array":
            return self._write.of_inputs(given, batched=self._how.layout != "unbatched")
        held = ", ".join(rows_of(self._how, role) for role in given.roles)
        return f"[{held}]" if given.container == "list" else f"({held})"

    def _canonical(self, output: str) -> str:
        """Return an output of the target as (N, L, E)."""
        if self._how.layout == "sequence_first":
            merged = ".reshape(*call.query.shape[1::-1], -1)"
            more = {"axial": "[:, :, 0]", "rows_of_heads": merged}
            return f"{output}{more.get(self._how.arrangement, '')}.swapaxes(0, 1)"
        if self._how.arrangement in MORE_AXES:
            return f"{output}{MORE_AXES[self._how.arrangement][1]}"
        if self._how.arrangement in OF_CONVOLUTIONS:
            flat = f"{output}[..., 0]" if self._how.arrangement == "map" else output
            return f"{flat}.swapaxes(1, 2)"
        if self._how.arrangement in OF_HEADS and self._of_heads:
            swapped_back = "".join(reversed(_swaps(self._how)))
            return f"{output}{swapped_back}.reshape(*call.query.shape[:2], -1)"
        return output

    def _sample_by_sample(self, call: str, place: str, built: Sequence[str]) -> Iterator[str]:
        """Yield the call of each sample, by an object of its own: a class may keep rows."""
        roles = self._how.roles.rows
        many = ", ".join(f"call.{role}" for role in roles)
        many = many if len(roles) == 1 else f"zip({many}, strict=True)"
        turned = ".T" if self._how.arrangement == "columns" else ""
        loop = f"for {', '.join(roles)} in {many}"
        if not built:
            yield f"    outputs = [{call}{place}{turned} {loop}]"
        else:
            start = next(n for n, line in enumerate(built) if line.startswith(BUILDS))
            yield from (*built[:start], "    outputs = []", f"    {loop}:")
            yield from (f"    {line}" for line in built[start:])
            yield f"        outputs.append({call}{place}{turned})"
        yield f"    return {self._write.stack}(outputs)"

    def _masks(self, of: str) -> dict[str, str]:
        """Return what the mask parameters of the constructor or of the call get."""
        plan = self._fitted.masks
        found = plan.by_layout.get(self._how.layout, ()) if plan is not None else ()
        taken = {each.parameter: each.taken[0] for each in found if each.taken}
        switches = {p: t for p, t in taken.items() if t.kind == SWITCH}
        masks = {p: t for p, t in taken.items() if t.kind != SWITCH}
        without_causal = bool(switches) or self._fitted.hides_future
        values = {p: f"{'' if t.hides else 'not '}call.is_causal" for p, t in switches.items()}
        if len(masks) > 1 and all(p.name in {"attn_mask", "key_padding_mask"} for p in masks):
            values |= {p: f"call.{p.name}" for p in masks}
        else:  # one parameter gets all masks together
            first = list(masks.items())[:1]
            values |= {p: self._mask(t, without_causal=without_causal) for p, t in first}
        return {p.name: value for p, value in values.items() if p.of == of}

    def _mask(self, taken: MaskFormat, *, without_causal: bool) -> str:
        more = ", causal=False" if without_causal else ""
        axes = " ".join(taken.axes)
        if taken.kind == LENGTHS:
            return f'call.lengths("{axes}"{more})'
        if taken.kind == ADDED:
            return f'call.added("{axes}"{more})'
        hidden = f'{"" if taken.hides else "~"}call.hidden("{axes}"{more})'
        if taken.kind == "bool":
            return hidden
        kinds = {"int": "int", "float": "call.query.dtype"}
        if self._fitted.library.name == "torch":
            kinds["int"] = "torch.int64"
        cast = "to" if self._fitted.library.name == "torch" else "astype"
        return f"({hidden}).{cast}({kinds[taken.kind]})"


def rows_of(how: Interpretation, role: str) -> str:
    """Return rows of the call as a target takes them; of one sample, those of its loop."""
    if how.layout == "unbatched":
        return f"{role}.T" if how.arrangement == "columns" else role
    rows = f"call.{role}"
    if how.layout == "sequence_first":
        heads = f".reshape(*{rows}.shape[1::-1], call.num_heads, -1)"
        more = {"axial": "[:, :, None]", "rows_of_heads": heads}
        return f"{rows}.swapaxes(0, 1){more.get(how.arrangement, '')}"
    if how.arrangement in MORE_AXES:
        return f"{rows}{MORE_AXES[how.arrangement][0]}"
    if how.arrangement in OF_CONVOLUTIONS:
        channels = f"{rows}.swapaxes(1, 2)"
        return f"{channels}[..., None]" if how.arrangement == "map" else channels
    if how.arrangement in OF_HEADS:
        shape = f"*{rows}.shape[:2], call.num_heads, -1"
        return f"{rows}.reshape({shape}){''.join(_swaps(how))}"
    return rows


def _swaps(how: Interpretation) -> list[str]:
    return [f".swapaxes({i}, {j})" for i, j in how.swaps(how.layout)]


def of_one_head(line: str) -> str:
    """Return a line that reads no number of heads and no width of one."""
    return NAMED_OF_HEADS.sub(lambda found: OF_ONE_HEAD[found[0]], line)


def _said(meaning: str) -> str:
    """Return the expression of a size, of a word that stands in quotes, or of a switch.

    Raises
    ------
    CandidateError
        No attribute of a call is that.

    """
    if meaning.startswith("'"):
        return json.dumps(meaning[1:-1])
    if meaning not in SIZES:
        raise CandidateError("structure", f"no line of an adapter says its {meaning}")
    return SIZES[meaning]


def _inner(inner: InnerAttention) -> str:
    """Return the argument that is an attention of the target's own module."""
    source = f"Target.__init__.__globals__[{json.dumps(inner.subject.__name__)}]"
    if inner.construction is not None:
        held = (f"{name}={_said(meaning)}" for name, meaning in inner.construction.meanings)
        source += f"({', '.join(held)})"
    return f"{inner.parameter}={source}"


def _namespace(config: RecordingConfig) -> str:
    """Return the expression of what a configuration was asked for, and of those within."""
    said = (
        f"{name}={_namespace(each) if isinstance(each, RecordingConfig) else SIZES.get(each, each)}"
        for name, each in config.asked.items()
    )
    return f"SimpleNamespace({', '.join(said)})"
