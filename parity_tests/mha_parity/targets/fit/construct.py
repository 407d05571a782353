"""How a class is built for a width and a number of heads: the candidates, likeliest first."""

from __future__ import annotations

import inspect
import math
import re
import sys
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from itertools import islice, product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.fit.names import bias_parts, is_weight, parts, snake_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LENGTH = 128  # for which layers that keep a mask are built at least
MAX_CONSTRUCTIONS = 24  # candidates that are built
# What a configuration keeps further sizes in.
INNER_CONFIG = re.compile(
    r"^(transformer|attention|attn|self_attn|network|.+_(config|cfg|args|params))$"
)
# The last is what Python makes of `__C` in a class.
CONFIG = re.compile(r"^((.*_)?(config(uration)?|cfg|args|h?params|conf|hp|opt)|_.+__c)$")
PROBABILITY = re.compile(r"drop|(?<!^[wW])_p$|_prob")  # `proj_p`: of dropout behind a projection
# Words of the switches that give the projections biases.
_OF_PROJECTIONS = (
    "bias(es)?|use|has|have|with|add|enabled?|include|is|needs?|apply|q|k|v|w|o|c|in|out|proj"
    "|projections?|lin|linears?|fc|dense|conv|attn|attention|self|mha|layers?|input|output|query"
    "|keys?|values?|queries|to|hidden|model|all|params?|encoder|decoder"
)
_POSITIONS = "abs(olute)?|rel(ative)?|rot(ary)?|rope|alibi|sin(usoidal)?"
# The first pattern found in a name (lower case) says what the argument may mean, likeliest first.
_MEANINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"drop|^p$|^p_|_p$|_prob", ("dropout",)),
    ((r"^(rng|generator|random_state)$|^((rnd|rng|prng|random|init|jax)_?)?key$"),
     ("random", "width")),
    (r"idx|index|axis", ("zero",)),
    ((r"temperature|^temp$|^((sm|softmax|attn|attention|qk|score)_?)?scal(e|ing)(_factor)?$"
      r"|^norm_fact(or)?$"), ("root", "inverse_root")),
    (r"rel.*bias|pos.*bias|^add_bias", ()),
    (rf"^(?=.*bias)(({_OF_PROJECTIONS})_?)+$", ("bias",)),
    (r"bias", ("off",)),  # `proximal_bias`: one of the scores
    (r"slice|chunk|tile|bucket", ()),  # a size of parts of the computation, which stays as it is
    # Switches of positions, which torch's layer does not know, are no widths of embeddings.
    ((rf"flash|^(use|with|has|is|add)_({_POSITIONS})(_|$)"
      rf"|^({_POSITIONS})_?(pos\w*_?)?(emb|enc)"), ("off",)),
    (r"head_?size|size_?(per_)?head|^d_head$", ("head_dim", "heads")),
    (r"causal|is_decoder|autoregressive|do_mask|^mask(ed)?$", ("off",)),
    (r"head.*(dim|width|chan|feat)|(dim|width|d)_?(per_)?head|^depth$|^d_qkv$", ("head_dim",)),
    (r"^key_dim$", ("head_dim", "width")),  # Keras's is that of a head
    (r"^(d|dim)_?[kqv]$|^[kqv]_dim$", ("head_dim", "width")),
    (r"^(query|key|qk|query_key|value)_?(size|dim)$", ("width", "head_dim")),
    (r"(kv|key_value|group|k_v).*head|kv_groups|num_groups|n_groups|n_kv|kv_h", ("kv_heads",)),
    (r"head|^n?h$|^nh(?!id)", ("heads",)),
    (r"^n$", ("width", "heads")),
    (r"^(emb\w*|model|hidden|feat\w*|vec\w*)_len(gth)?$", ("width",)),
    ((r"len|^max_|max_?(seq|pos|context)|ctx|context_(size|window)|block_?size|n_?pos|position_emb|window"
      r"|seq|^t$|^(n|num|nb)_?(patch|token)(es|s)?$"), ("length",)),
    (r"^(d|dim|size)_?out$|out(put)?_?(dim|size|feat)", ("width", "head_dim")),
    (r"cond|context|cross|encoder|kdim|vdim|kv_dim|memory|source", ("width",)),
    ((r"dim|emb|model|hid|width|channel|feat|size|state|units|inner|^(d|e|c|n)(_?in|_?out)?$|^in"
      r"|^out"), ("width",)),
    (r"layer", ("zero",)),
    (r"device", ("device",)),
)  # fmt: skip
# What is given though it has a default.
GIVEN = frozenset({"width", "heads", "head_dim", "bias", "dropout", "length"})
PACKED = ("packed_columns", "packed_rows")
UNKNOWN = ("width", "heads", "head_dim", "length", "none")


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """What a layer is built for."""

    width: int
    heads: int
    bias: bool = True
    dropout: float = 0.0
    length: int = LENGTH
    kv_heads: int = 0  # 0: as many as heads

    def value(self, meaning: str) -> Any:
        """Return what an argument of this meaning gets."""
        if meaning == "random":
            return random_source()
        width, packed = self.width, 3 * self.width
        shapes = {
            "matrix": (width, width), "vector": (width,), "packed_rows": (packed, width),
            "packed_columns": (width, packed), "packed_vector": (packed,),
        }  # fmt: skip
        if meaning in shapes:
            return np.zeros(shapes[meaning])
        return {
            "width": width, "heads": self.heads, "head_dim": width // self.heads,
            "kv_heads": self.kv_heads or self.heads, "length": self.length, "bias": self.bias,
            "root": math.sqrt(width / self.heads),
            "inverse_root": 1 / math.sqrt(width / self.heads),
            "off": False, "dropout": self.dropout, "zero": 0, "one": 1.0, "device": "cpu",
            "none": None,
        }[meaning]  # fmt: skip


def random_source() -> Any:
    """Return what random weights are drawn from: a key of JAX where it is in use, or NumPy's."""
    jax = sys.modules.get("jax")
    return np.random.default_rng(0) if jax is None else jax.random.PRNGKey(0)


@cache
def meanings(name: str) -> tuple[str, ...]:
    """Return what an argument of this name may mean; () if nothing is known."""
    if is_weight(name) and parts(name) and not PROBABILITY.search(name):
        return ("matrix",) if len(parts(name)) == 1 else PACKED
    if name.lower() in {"kernel", "weight", "w"}:
        return PACKED
    plain = snake_case(name)
    return next((found for pattern, found in _MEANINGS if re.search(pattern, plain)), ())


def counts_kv_heads(name: str) -> bool:
    """Return whether an argument of this name is the number of key and value heads."""
    return meanings(name)[:1] == ("kv_heads",)


def alike_kv_heads(
    named: Sequence[inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> frozenset[str]:
    """Return the arguments for the number of key heads that get as many as the query heads'."""
    given = dict(zip((each.name for each in named), args, strict=False)) | dict(kwargs)
    heads = [value for name, value in given.items() if meanings(name)[:1] == ("heads",)]
    return frozenset(n for n, value in given.items() if counts_kv_heads(n) and value in heads)


class RecordingConfig:
    """A configuration of every name with a meaning, which keeps what it was asked for."""

    def __init__(
        self, sizes: LayerSizes, *, inverse: bool = False, log: dict[str, str] | None = None
    ) -> None:
        self._sizes = sizes
        self._inverse = inverse  # whether a scale is 1 / sqrt(head_dim)
        # What this and all others of a construction were asked for, by name, and what it means.
        self._log = {} if log is None else log
        # Attributes so far: what each means, its fixed value, or a configuration within.
        self.asked: dict[str, str | RecordingConfig] = {}

    def __getattr__(self, name: str) -> Any:
        """Return the value of an attribute that is known."""
        if name in _FIXED:
            self.asked[name] = self._log[name] = repr(_FIXED[name])
            return _FIXED[name]
        if INNER_CONFIG.search(name):
            inner = RecordingConfig(self._sizes, inverse=self._inverse, log=self._log)
            return self.asked.setdefault(name, inner)
        if name.startswith("__") or not meanings(name):
            raise AttributeError(f"the layer asks its configuration for {name!r}, which is unknown")
        known = meanings(name)
        meaning = known[int(self._inverse and known[0] == "root")]
        self.asked[name] = self._log[name] = meaning
        return self._sizes.value(meaning)

    def __contains__(self, name: object) -> bool:
        """Return whether a key of this name is known."""
        return isinstance(name, str) and (name in _FIXED or bool(meanings(name)))

    def __getitem__(self, name: str) -> Any:
        """Return the value of a key, as if it were an attribute."""
        return getattr(self, name)

    def meanings(self) -> frozenset[str]:
        """Return the meanings that it was asked for, also within."""
        found = [
            {each} if isinstance(each, str) else each.meanings() for each in self.asked.values()
        ]
        return frozenset().union(*found)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a key that is known, else the default."""
        return getattr(self, name, default)


_FIXED = {
    "_attn_implementation": "eager", "scale_attn_weights": True, "is_decoder": False,
    "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False,
    "position_embedding_type": "absolute", "pretraining_tp": 1, "rope_theta": 10000.0,
    "add_cross_attention": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Construction:
    """Which argument of a constructor gets what; ``config`` names that of a configuration.

    ``asked``: what configurations of any name were asked for so far, and what each means.
    """

    meanings: tuple[tuple[str, str], ...] = ()
    config: str = ""
    annotation: Any = None
    inverse: bool = False  # whether a scale that the configuration is asked for is 1 / sqrt(D)
    # By how much a call is longer than its layer is built for, None where calls may be shorter.
    longer_by: int | None = None
    inner: InnerAttention | None = None
    asked: dict[str, str] = field(default_factory=dict, compare=False)

    def arguments(self, sizes: LayerSizes) -> dict[str, Any]:
        """Return the keywords for a layer of these sizes."""
        given = {name: sizes.value(meaning) for name, meaning in self.meanings}
        if self.config:
            given[self.config] = configuration(
                self.annotation, sizes, inverse=self.inverse, log=self.asked
            )
        if self.inner is not None:
            given[self.inner.parameter] = self.inner.made(sizes)
        return given

    def text(self, sizes: LayerSizes) -> str:
        """Return the keywords as they are written; arrays by their shapes."""
        given = {name: sizes.value(meaning) for name, meaning in self.meanings}
        said = {n: f"array {v.shape}" if isinstance(v, np.ndarray) else v for n, v in given.items()}
        config = [f"{self.config}=a configuration"] if self.config else []
        inner = [] if self.inner is None else [f"{self.inner.parameter}=an attention"]
        return ", ".join([*inner, *config, *(f"{name}={value}" for name, value in said.items())])

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


_ANY = (dict, object, SimpleNamespace, inspect.Parameter.empty)


def configuration(
    annotation: Any, sizes: LayerSizes, *, inverse: bool = False, log: dict[str, str] | None = None
) -> Any:
    """Return a configuration: of the annotated class with sizes by name, or one of any name."""
    if not isinstance(annotation, type) or annotation in _ANY:
        return RecordingConfig(sizes, inverse=inverse, log=log)
    try:
        required = required_of(annotation)
        made = annotation(**{name: sizes.value(meaning) for name, meaning in required.items()})
    except Exception:  # noqa: BLE001  (whatever the target's configuration raises)
        return RecordingConfig(sizes, inverse=inverse, log=log)
    for name, meaning in settable_of(made).items():
        setattr(made, name, sizes.value(meaning))
    if hasattr(made, "_attn_implementation"):
        made._attn_implementation = "eager"  # noqa: SLF001  (transformers chooses by it)
    return made


def _is_frozen(kind: type) -> bool:
    return is_dataclass(kind) and bool(getattr(kind, "__dataclass_params__").frozen)  # noqa: B009


def required_of(kind: type) -> dict[str, str]:
    """Return what a configuration class is built from, by meaning: all sizes if it is frozen."""
    named = inspect.signature(kind).parameters.values()
    return {
        each.name: meanings(each.name)[0]
        for each in named
        if meanings(each.name)
        and each.kind not in {each.VAR_KEYWORD, each.VAR_POSITIONAL}
        and (each.default is each.empty or _is_frozen(kind))
    }


def settable_of(config: Any) -> dict[str, str]:
    """Return the sizes that are set on a configuration, by meaning; none if it is frozen."""
    kind = type(config)
    names = () if _is_frozen(kind) else {*vars(config), *getattr(kind, "__annotations__", {})}
    known = {name: meanings(name)[0] for name in sorted(names) if meanings(name)}
    return {name: each for name, each in known.items() if each in GIVEN | {"kv_heads"}}


def constructions(kind: type, named: Sequence[inspect.Parameter]) -> Iterator[Construction]:
    """Yield how the constructor of a class may be meant, likeliest first."""
    scope = getattr(getattr(kind, "__init__", None), "__globals__", {})
    config, annotation = "", None
    choices: list[list[tuple[str, str]]] = []
    weighed = {"matrix", *PACKED} & {m for each in named for m in meanings(each.name)}
    for each in named:
        known = meanings(each.name)
        required = each.default is each.empty
        if weighed and required and "bias" in each.name.lower():
            known = _vectors(each.name)  # an array next to those of the weights
        said = scope.get(each.annotation) if isinstance(each.annotation, str) else each.annotation
        is_config = CONFIG.search(each.name.lower()) or (required and is_dataclass(said))
        if is_config and not config:
            config, annotation = each.name, said
        elif required:
            unknown = () if known else ("off",) if _is_switch(each) else UNKNOWN
            choices.append([(each.name, meaning) for meaning in (*known, *unknown)])
        elif known and known[0] in GIVEN and _is_given(each.name, each.default, known[0]):
            choices.append([(each.name, meaning) for meaning in known])
    sized = any(each.default is each.empty and meanings(each.name) for each in named)
    if sized and any(each.name == config and each.default is None for each in named):
        config = ""  # of a part that is left out
    # What is None by default may be what the constructor cannot do without, and a number of groups
    # may not fit the heads: given where none can be built otherwise.
    numbers = tuple((each.name, "one") for each in named if _is_optional_number(each))
    widths = tuple((each.name, "width") for each in named if _is_optional_width(each))
    groups = tuple((each.name, "kv_heads") for each in named if _is_count_of_groups(each))
    further = ((), *(each for each in (numbers, *((one,) for one in widths), groups) if each))
    for inverse, more in product((False, True) if config else (False,), further):
        for chosen in islice(product(*choices), MAX_CONSTRUCTIONS * 4):
            if len({m for _, m in chosen if m == "heads"}) <= 1:
                yield Construction((*chosen, *more), config, annotation, inverse)


def _is_optional_number(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a float by its annotation, and None by default."""
    said = str(parameter.annotation)
    return parameter.default is None and "float" in said


def _is_optional_width(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a width by its name, and None by default."""
    return parameter.default is None and meanings(parameter.name)[:1] == ("width",)


def _is_count_of_groups(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a number of key heads with a default."""
    known = meanings(parameter.name)[:1] == ("kv_heads",)
    return known and isinstance(parameter.default, int)


def _is_switch(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is True or False by its annotation."""
    return parameter.annotation is bool or parameter.annotation == "bool"


def _vectors(name: str) -> tuple[str, ...]:
    """Return what a bias may be that a constructor takes: of one projection, or of three."""
    return ("vector",) if len(bias_parts(name)) == 1 else ("packed_vector", "vector")


def _is_given(name: str, default: object, meaning: str) -> bool:
    """Return whether an argument with a default is given: sizes of its own, not of a context."""
    if meaning == "width":
        # `row_dim=0, col_dim=1` are numbers of axes.
        is_axis = isinstance(default, int) and default < 2
        return not (default is None or is_axis or callable(default) or isinstance(default, str))
    if meaning == "bias":
        return isinstance(default, bool)
    if meaning == "length" and ("window" in name or not isinstance(default, int)):
        return False  # attention in a window is another one
    return not isinstance(default, str | bool)
