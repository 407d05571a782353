"""How a class is built for a width and a number of heads: the candidates, likeliest first."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from mha_parity.core.parameters import Role
from mha_parity.targets.layers.config_objects import GIVEN, RecordingConfig, configuration
from mha_parity.targets.static import weight_dictionary
from mha_parity.targets.static.argument_meanings import (
    LENGTH,
    PACKED,
    LayerSizes,
    is_of_groups,
    meanings,
    switches_positions,
)
from mha_parity.targets.static.call_parameters import role
from mha_parity.targets.static.code_syntax import (
    methods_called,
    names_called,
    names_tested,
    strings_compared,
)
from mha_parity.targets.static.projection_names import bias_parts
from mha_parity.targets.static.weight_dictionary import OF_WEIGHTS

if TYPE_CHECKING:
    import inspect
    from collections.abc import Collection, Iterator, Sequence

MAX_CONSTRUCTIONS = 24  # candidates that are built
# The last is what Python makes of `__C` in a class.
CONFIG = re.compile(r"^((.*_)?(config(uration)?|cfg|args|h?params|conf|hp|opt)|_.+__c)$")
# What a layer calls on queries and keys, and on nothing else.
POSITIONS = re.compile(r"rope|rot(ary|ate)|^pos(itional)?(_|$)")
LAYER_NUMBER = "layer_idx"  # without which a cache of transformers takes no layer's rows
SELF = re.compile(r"self_?att")
SWITCHED = {"off": False, "on": True}  # in the order in which they are tried
UNKNOWN = ("width", "heads", "head_dim", "length", "none")


@dataclass(frozen=True, slots=True)
class Construction:
    """Which argument of a constructor gets what; ``config`` names that of a configuration.

    ``asked``: what configurations of any name were asked for so far, and what each means.
    """

    meanings: tuple[tuple[str, str], ...] = ()
    config: str = ""
    annotation: Any = None
    inverse: bool = False  # whether a scale that the configuration is asked for is 1 / sqrt(D)
    nested: bool = False  # whether the configuration has others in it, of any name
    words: tuple[tuple[str, str], ...] = ()  # strings that the configuration answers, by name
    methods: frozenset[str] = frozenset()  # of a configuration of any name
    # By how much a call is longer than its layer is built for, None where calls may be shorter.
    longer_by: int | None = None
    # For a class that cannot be built otherwise, or is no attention with its positions.
    last_resort: bool = False
    inner: InnerAttention | None = None
    words_left: tuple[str, ...] = ()  # what is said of words that the configuration has by default
    asked: dict[str, str] = field(default_factory=dict, compare=False)

    def arguments(self, sizes: LayerSizes) -> dict[str, Any]:
        """Return the keywords for a layer of these sizes."""
        given = {name: sizes.value(meaning) for name, meaning in self.meanings}
        if self.config:
            of_any_name = RecordingConfig(
                sizes, inverse=self.inverse, nested=self.nested, words=dict(self.words),
                methods=self.methods, log=self.asked,
            )  # fmt: skip
            given[self.config] = configuration(self.annotation, of_any_name)
        if self.inner is not None:
            given[self.inner.parameter] = self.inner.made(sizes)
        return given

    def text(self, sizes: LayerSizes) -> str:
        """Return the keywords as they are written; arrays by their shapes."""
        given = {name: sizes.value(meaning) for name, meaning in self.meanings}
        said = {name: _written(value) for name, value in given.items()}
        config = [f"{self.config}=a configuration"] if self.config else []
        inner = [] if self.inner is None else [f"{self.inner.parameter}=an attention"]
        return ", ".join([*inner, *config, *(f"{name}={value}" for name, value in said.items())])

    @property
    def handed_over(self) -> list[str]:
        """Arguments that decide the function: an attention, the identity for positions, a word."""
        said = [] if self.inner is None else [str(self.inner)]
        for name, meaning in self.meanings:
            if meaning == "identity":
                said.append(f"`{name}` the identity")
            elif meaning == "on" or (
                self.last_resort and (meaning.startswith("'") or meaning in SWITCHED)
            ):
                said.append(f"built with `{name}` = {SWITCHED.get(meaning, meaning)}")
        return [*said, *self.words_left]

    @property
    def for_self_attention(self) -> str:
        """The switch without which it is not built, and by which keys are the queries, if any."""
        named = (n for n, meaning in self.meanings if meaning == "on" and SELF.search(n))
        return next(named, "") if self.last_resort else ""

    @property
    def positions_left_out(self) -> tuple[str, ...]:
        """The switches of positions that it has by default, and is built without."""
        off = (name for name, meaning in self.meanings if meaning == "off")
        return tuple(filter(switches_positions, off)) if self.last_resort else ()

    def has(self, *wanted: str) -> bool:
        """Return whether an argument has one of these meanings, or may have in a configuration."""
        inside = None if self.inner is None else self.inner.construction
        if inside is not None and inside.has(*wanted):
            return True
        return bool(self.config) or any(meaning in wanted for _, meaning in self.meanings)

    def length_for(self, queries: int, keys: int) -> int:
        """Return the length that a layer is built for, where it is called at these."""
        if self.longer_by is None:
            return max(LENGTH, queries, keys)
        return max(queries - self.longer_by, 0)


def _written(value: object) -> object:
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    if isinstance(value, weight_dictionary.WeightsByName):
        return "weights by the names that are read"
    return "the identity" if callable(value) else value


@dataclass(frozen=True, slots=True)
class InnerAttention:
    """A class or function, and what parameter of a constructor gets it.

    ``construction`` says how an instance is built; None hands over the subject itself.
    """

    parameter: str
    subject: Any
    construction: Construction | None = None

    def made(self, sizes: LayerSizes) -> Any:
        """Return what the constructor gets."""
        if self.construction is None:
            return self.subject
        return self.subject(**self.construction.arguments(sizes))

    def __str__(self) -> str:
        """Say what the parameter gets."""
        instance = "" if self.construction is None else "an instance of "
        return f"built with {instance}{self.subject.__name__} of its module as `{self.parameter}`"


def constructions(kind: type, named: Sequence[inspect.Parameter]) -> Iterator[Construction]:
    """Yield how the constructor of a class may be meant, likeliest first."""
    config = _configuration_parameter(kind, named)
    rest = [each for each in named if each is not config]
    choices = _choices(kind, rest, {m for each in named for m in meanings(each.name)})
    sized = any(each.default is each.empty and meanings(each.name) for each in named)
    # What is None by default may be what the constructor cannot do without, and a number of groups
    # may not fit the heads: given where none can be built otherwise.
    numbers = tuple((each.name, "one") for each in rest if _is_optional_number(each))
    widths = tuple((each.name, "width") for each in rest if _is_optional_width(each))
    groups = tuple((e.name, meanings(e.name)[0]) for e in rest if _is_count_of_groups(e))
    drawn = tuple((e.name, meanings(e.name)[0]) for e in rest if _is_optional_source(e))
    alone = ((one,) for one in widths)
    words, switches = _optional_words(kind, rest), _other_switches(rest)
    resorts = [each for each in (numbers, drawn, *words, *switches) if each]
    further = ((), *resorts, *(e for e in (*alone, widths[1:] and widths, groups) if e))
    configured = config is not None and not (sized and config.default is None)
    given = ("", None) if config is None else (config.name, _annotated_class(kind, config))
    ways = [(given if configured else ("", None), more) for more in further]
    # A configuration beside sizes may be of a part that is left out, or read in each call.
    ways += [] if configured or config is None else [(given, ())]
    if configured and config is not None and OF_WEIGHTS.search(config.name.lower()):
        ways.append((("", None), ((config.name, weight_dictionary.MEANING),)))
    left = tuple(_words_left(kind, given[1]))
    methods = frozenset() if config is None else methods_called(kind, config.name)
    for inverse, ((name, annotation), more) in product((False, True), ways):
        for chosen in islice(product(*choices), MAX_CONSTRUCTIONS * 4):
            if (name or not inverse) and len({m for _, m in chosen if m == "heads"}) <= 1:
                meant = (*chosen, *more)
                last = more in resorts
                yield Construction(
                    meant, name, annotation, inverse, methods=methods, last_resort=last,
                    words_left=left if name else (),
                )  # fmt: skip


def _words_left(kind: type, annotation: Any) -> Iterator[str]:
    """Yield what is said of words of a configuration, where the code compares them with others.

    What it is built for with these is not asked.
    """
    if not is_dataclass(annotation):
        return
    defaults = {each.name: each.default for each in fields(annotation)}
    for name, words in strings_compared(kind).items():
        own = defaults.get(name)
        others = [repr(word) for word in words if word != own]
        if isinstance(own, str) and others:
            verb = "is" if len(others) == 1 else "are"
            listed = " and ".join(others)
            yield f"its configuration's `{name}` is {own!r}: {listed} {verb} not asked"


def _configuration_parameter(
    kind: type, named: Sequence[inspect.Parameter]
) -> inspect.Parameter | None:
    """Return the parameter of the constructor that is a configuration; None where none is."""
    for each in named:
        said = _annotated_class(kind, each)
        if CONFIG.search(each.name.lower()) or (each.default is each.empty and is_dataclass(said)):
            return each
    return None


def _annotated_class(kind: type, parameter: inspect.Parameter) -> Any:
    """Return what a parameter is annotated as, of a class or None the class."""
    said = parameter.annotation
    if isinstance(said, str):
        scope = getattr(getattr(kind, "__init__", None), "__globals__", {})
        said = scope.get(said.partition("|")[0].strip())
    classes = [each for each in get_args(said) if isinstance(each, type)]
    return next((each for each in classes if each is not type(None)), said)


def _choices(
    kind: type, named: Sequence[inspect.Parameter], known_meanings: set[str]
) -> list[list[tuple[str, str]]]:
    """Return what each parameter of the constructor that is given may mean, by name."""
    compared, called = strings_compared(kind), names_called(kind)
    tested = names_tested(kind)
    weighed = {"matrix", *PACKED} & known_meanings
    choices: list[list[tuple[str, str]]] = []
    has_width = False
    for each in named:
        known = meanings(each.name)
        required = each.default is each.empty
        is_bias = "bias" in each.name.lower() or bias_parts(each.name)
        if weighed and required and is_bias:
            known = _vectors(each.name)  # an array next to those of the weights
        if required and each.name in called and POSITIONS.search(each.name.lower()):
            known = ("identity", *known)
        if required:
            known = known or _of_unknown(each, compared.get(each.name, ()), tested)
            if known == ("width",) and "heads" in known_meanings and has_width:
                known = (*known, "head_dim")  # `input_dim, hidden_dim`: the second may be a head's
            has_width |= known[:1] == ("width",)
            choices.append([(each.name, meaning) for meaning in known])
        elif known == ("device",) and str(each.default).startswith("cuda"):
            choices.append([(each.name, "device")])
        elif each.name == LAYER_NUMBER:
            choices.append([(each.name, "zero")])
        elif each.name == _head_width(named):
            choices.append([(each.name, "head_dim")])
        elif known and known[0] in GIVEN and _is_given(each.default, known[0]):
            choices.append([(each.name, meaning) for meaning in known])
    return choices


def _head_width(named: Sequence[inspect.Parameter]) -> str:
    """Return the parameter without a meaning that is the width of a head by the defaults; or "".

    Of `num_heads=8, d_model=512, d_data=64` it is the last.
    """
    numbers = {each.name: each.default for each in named if type(each.default) is int}
    meant = {name: meanings(name)[:1] for name in numbers}
    heads, width = ([n for n, m in meant.items() if m == (each,)] for each in ("heads", "width"))
    if len(heads) != 1 or len(width) != 1 or numbers[heads[0]] < 2:
        return ""
    unknown = (name for name, meaning in meant.items() if not meaning)
    whole = numbers[width[0]]
    return next((n for n in unknown if numbers[n] * numbers[heads[0]] == whole), "")


def _of_unknown(
    parameter: inspect.Parameter, compared: Sequence[str], tested: Collection[str]
) -> tuple[str, ...]:
    """Return what an argument may mean whose name says nothing: a string that it is compared with.

    Or else a switch that is off, or on where that is no attention; or a size.
    """
    words = tuple(f"'{word}'" for word in compared)
    if OF_WEIGHTS.search(parameter.name.lower()):
        words = (weight_dictionary.MEANING, *words)
    if role(parameter.name, "constructor", default=False) is Role.CACHE:
        return ("off",)  # it has to be attention without one
    if _is_switch(parameter):
        return (*words, *SWITCHED)
    return (*words, *(SWITCHED if parameter.name in tested else ()), *UNKNOWN)


def _optional_words(
    kind: type, named: Sequence[inspect.Parameter]
) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the strings that the code compares parameters with which are None by default."""
    compared = strings_compared(kind)
    for each in named:
        if each.default is None:
            yield from (((each.name, f"'{word}'"),) for word in compared.get(each.name, ()))


def _other_switches(named: Sequence[inspect.Parameter]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield each switch whose name has no meaning here, the other way than it is by default.

    And one of positions that is on: torch's layer knows none.
    """
    for each in named:
        of_positions = each.default is True and switches_positions(each.name)
        if isinstance(each.default, bool) and (of_positions or not meanings(each.name)):
            yield ((each.name, "off" if each.default else "on"),)


def _is_optional_number(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a float by its annotation, and None by default."""
    said = str(parameter.annotation)
    return parameter.default is None and "float" in said


def _is_optional_source(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a source of random numbers by its name, and None by default."""
    return parameter.default is None and meanings(parameter.name)[:1] in {("random",), ("rngs",)}


def _is_optional_width(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a width by its name, and None by default."""
    return parameter.default is None and meanings(parameter.name)[:1] == ("width",)


def _is_count_of_groups(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a number of key heads, or of queries' for each, by default."""
    return is_of_groups(parameter.name) and isinstance(parameter.default, int)


def _is_switch(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is True or False by its annotation."""
    return parameter.annotation is bool or parameter.annotation == "bool"


def _vectors(name: str) -> tuple[str, ...]:
    """Return what a bias may be that a constructor takes: of one projection, or of three."""
    return ("vector",) if len(bias_parts(name)) == 1 else ("packed_vector", "vector")


def _is_given(default: object, meaning: str) -> bool:
    """Return whether an argument with a default is given: sizes of its own, not of a context."""
    if meaning == "width":
        # `row_dim=0, col_dim=1` are numbers of axes.
        is_axis = isinstance(default, int) and default < 2
        return not (default is None or is_axis or callable(default) or isinstance(default, str))
    if meaning == "bias":
        return isinstance(default, bool)
    if meaning in {"length", "samples", "most_samples"} and not isinstance(default, int):
        return False
    return not (isinstance(default, str | bool) or callable(default))  # a module of dropout is kept
