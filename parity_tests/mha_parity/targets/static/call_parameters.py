"""Which parameters a callable has, what each is for, and which of them one call passes.

The role follows from the name, and from the default where the name leaves it open. It decides what
the verdict asks for; how a mask is meant is found by experiment (``targets.masks``).
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import TYPE_CHECKING, Any

from mha_parity.core.parameters import Parameter, Role
from mha_parity.targets.static.keyword_arguments import keywords_of
from mha_parity.targets.static.length_arguments import is_annotated
from mha_parity.targets.static.projection_names import WINDOW, snake_case
from mha_parity.targets.static.source import source_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# The first pattern that is found in the name (lower case, words unpack by "_") decides.
_BY_NAME: tuple[tuple[Role, str], ...] = (
    (Role.RETURN, r"^(return|need|average|with|get)_|^verbose$"),
    (Role.RETURN, r"^output_(?!.*(dim|size|width|chan|feat|proj))"),
    (Role.DROPOUT, r"drop|^p$"),
    (Role.CAUSAL, r"causal|look_?ahead|autoregressive|future|unidirectional|^masked$|^decoder$"),
    (Role.HEADS, r"^head_mask$"),  # multiplies the weights of whole heads, after the softmax
    (Role.PROJECTION_BIAS, r"^mask_[qkv]_bias$"),  # takes a projection's bias out, as DINOv3 does
    (Role.MASK, r"mask|padding|^pad$"),
    (Role.SCORE_BIAS, r"alibi|rel(ative)?_?(pos|.*bias)|(attn|attention|position|pos|score)_?bias"),
    (Role.POSITIONS, r"rope|rotary|freqs|(^|_)(cos|sin)(_|$)|^pos(itional)?_?(emb|enc)|^table$"),
    (Role.CACHE, r"cache|past|incremental|(?<!coder)(?<!hidden)(?<!input)_state$|^state$|^mems?$"),
    (Role.POSITIONS, r"^pos$|position|start_pos|offset"),
    (Role.CONFIG, r"^(config|cfg|args|hparams|conf|hp|opt|.*_config|.*_cfg|.*_args|_.+__c)$"),
    (Role.PROJECTION_BIAS, r"bias|^b_?[qkvo]$|^b_?out$"),
    (Role.SIZE, r"(head|key|value|query|model|embed|[kvq])_?(dim|size|width|depth)|^d_|dim$|^dim_"),
    (Role.WEIGHTS, r"^w_?[qkvo]|^w[qkvo]|weight|^w$"),
    (Role.HEADS, r"head|^h$"),
)  # fmt: skip
# Of the parameters of a call alone, before all others.
_OF_CALL: tuple[tuple[Role, str], ...] = (
    (Role.POSITIONS, r"(^|_)prefix_?(len(gth)?s?|size|num|rows|tokens)(_|$)"),  # seen by all rows
    (Role.LENGTHS, r"^(?!max).*(valid|(lens?|lengths?)(_[qk]v?)?$)"),
    (Role.SCORE_BIAS, r"^bias(es)?$"),
    (Role.SCALE, r"^((sm|softmax|attn|attention|qk|score)_?)?scal(e|ing)(_factor)?$"),
)
_INPUT = re.compile(
    r"^[xyqkv](_|[a-z]?$)|quer|^key|^val|input|^seq|context|memory|hidden|tokens?|src|source|enc"
)
_SIZE = re.compile(
    r"len|size|dim|width|n_embd|channels|features|num|max|^n_|block|chunk|tile|ctx|window"
)


# Numbers of the sequences that lie behind one another in a sample. `seq_ids` may be those of
# samples, and `block_ids` those of the pages of a cache.
_SEGMENTS = re.compile(r"([a-z]+_)?(seg(ment)?s?|doc(ument)?s?)_?ids?|([a-z]+_)?segment(s|ation)")
# The rows at which they begin, and the last one ends.
_STARTS = re.compile(r"cu_?seq\w*|cu_?lens?(_\w+)?|cumulative_\w*len\w*|cum_?(seq_?)?lens?")
_KEPT = re.compile(r"(k|v|keys?|values?)_cache")
_A_SWITCH = re.compile(r"^((use|with|is|apply|do)_)?mask(ed|ing)?$")
# Masks of calls that are None by default; as a number `keep` is a rate of dropout.
_MARKS = re.compile(r"keep|visible|allowed|blocked|dropped|drop_(pairs|keys)")
# What is padding by its name, and no number or switch of it: `ctx_pad`, and not `left_pad`.
_PADS = re.compile(
    r"(?!(n|num|max|min|left|right|to|do|use|is|zero|auto|kernel|with|no)_)(?!.*(len|size|value))"
    r"[a-z]\w*_pad"
)
# What a switch decides of another mask: which of its arrays it hides.
_OF_A_MASK = re.compile(r"(^|_)(kv|keys?|quer(y|ies)|values?|pad(ding|ded)?|only)(_|$)")


# Parameters of a call that say whether it is made in training, and what they get in evaluation.
MODES = {
    "training": False, "is_training": False, "train": False, "deterministic": True,
    "inference": True,
}  # fmt: skip


def numbers_segments(name: str) -> bool:
    """Return whether a name is that of the number of each row's segment."""
    return _SEGMENTS.fullmatch(snake_case(name)) is not None


def says_starts(name: str) -> bool:
    """Return whether a name is that of the rows at which packed sequences begin."""
    return _STARTS.fullmatch(snake_case(name)) is not None


def _pads(name: str, unset: bool) -> bool:
    """Return whether a parameter without a default, or None, marks padding by its name."""
    return unset and _PADS.fullmatch(name) is not None


def role(name: str, of: str, default: object = inspect.Parameter.empty) -> Role:
    """Return what a parameter of a constructor or of a call is for."""
    plain = snake_case(name)
    switch = isinstance(default, bool)
    of_call = (each for each, pattern in _OF_CALL if of == "call" and re.search(pattern, plain))
    # No number of heads is None, and what a call asks for is no memory of an earlier one.
    required = default is inspect.Parameter.empty
    rows = (plain == "h" and default is None) or (plain == "mem" and required)
    if certain := next(of_call, Role.INPUT if of == "call" and rows else None):
        return certain
    unset = default is None or required
    marks = (default is None and _MARKS.fullmatch(plain)) or _pads(plain, unset)
    if of == "call" and (marks or numbers_segments(name)):
        return Role.MASK
    found = next((each for each, pattern in _BY_NAME if re.search(pattern, plain)), None)
    if found is Role.MASK and switch and _OF_A_MASK.search(plain):
        return Role.OTHER
    if found in {Role.MASK, Role.CAUSAL} and "mask" in plain:
        # `mask=None`, or `is_masked`, of a constructor, which no array reaches, may be a switch.
        may_be = of == "constructor" and unset and _A_SWITCH.search(plain) is not None
        return Role.CAUSAL if switch or may_be else Role.MASK
    if found is Role.SCORE_BIAS and switch and plain.endswith("n_bias"):
        found = Role.PROJECTION_BIAS  # `attention_bias=True` of a layer is that of its Linears
    elif found in {Role.PROJECTION_BIAS, Role.CAUSAL} and isinstance(default, int) and default > 1:
        found = Role.SIZE  # `bk=64`: as many keys are in a tile; `causal_chunk_size=128`
    if found is None and of == "call" and _INPUT.search(plain):
        return Role.INPUT
    window = found in {None, Role.SIZE} and WINDOW.search(plain)
    size = Role.SIZE if _SIZE.search(plain) else Role.OTHER
    return Role.WINDOW if window else found or size


def described(named: Iterable[inspect.Parameter], of: str) -> tuple[Parameter, ...]:
    """Return what reports say of parameters of a constructor or of a call."""
    return tuple(
        Parameter(
            name=each.name,
            of=of,
            role=role(each.name, of, False if _is_required_switch(each) else each.default),
            required=each.default is each.empty,
            default="" if each.default is each.empty else _shown(each.default),
        )
        for each in named
    )


def passed_keys(
    named: Iterable[inspect.Parameter], of: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, bool]:
    """Return the keys of the parameters that a call passes: True if not at their default.

    None is no value: a required mask that is passed as None was not tried; nor was a required
    switch that was off.
    """
    by_name = {each.name: each for each in named}
    positional = [each for each in by_name.values() if each.kind is not each.KEYWORD_ONLY]
    given = [(each, value) for each, value in zip(positional, args, strict=False)]
    given += [(by_name[name], value) for name, value in kwargs.items() if name in by_name]
    return {f"{of}.{each.name}": _differs(value, each.default) for each, value in given}


def switched_on(named: Iterable[inspect.Parameter], kwargs: Mapping[str, Any]) -> set[str]:
    """Return the switches without a default or a known role that are on: off was no attention."""
    required = (each.name for each in named if each.default is each.empty)
    on = (name for name in required if kwargs.get(name) is True)
    return {n for n in on if role(n, "constructor", default=True) in {Role.OTHER, Role.CACHE}}


def of_callable(
    function: Any, *, skip_self: bool = False, owner: type | None = None
) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a callable, none where Python cannot know them.

    Behind the ``**kwargs`` of a constructor are those of its base class, and those that it reads
    itself; behind those of a function, or of a method of ``owner``, what it reads or passes on.
    """
    found: dict[str, inspect.Parameter] = {}
    bases = function.__mro__[1:-1] if isinstance(function, type) else ()
    for each in (function, *bases):
        try:
            parameters = _signature_of(each)
        except (TypeError, ValueError):
            break
        found = {p.name: p for p in parameters if p.kind not in _VARIADIC} | found
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    own = tuple(found.values())[skip_self:]
    if isinstance(function, type):
        behind = keywords_of(function.__init__, function, depth=0).named  # type: ignore[misc]  # of this very class
    else:
        behind = keywords_of(function, owner or _owner(function)).named
    return (*own, *(p for name, p in behind.items() if name not in found))


def _signature_of(function: Any) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a callable; of a class those that its metaclass passes on, too.

    The metaclass of flax.nnx takes what it is given, which is all that ``inspect`` reads then.
    """
    found = tuple(inspect.signature(function).parameters.values())
    if isinstance(function, type) and all(each.kind in _VARIADIC for each in found):
        above = [base for base in inspect.getmro(type(function)) if base not in {type, object}]
        if any("__call__" in vars(base) for base in above):
            built = inspect.signature(function.__init__)  # type: ignore[misc]  # of this very class
            return tuple(built.parameters.values())[1:]
    return found


def _owner(function: Any) -> type | None:
    bound_to = getattr(function, "__self__", None)
    return bound_to if bound_to is None or isinstance(bound_to, type) else type(bound_to)


def unfollowed(function: Any, owner: type | None) -> tuple[Parameter, ...]:
    """Return the ``**kwargs`` of a function that are read, but not by names that can be found."""
    said = keywords_of(function, owner).unknown
    if not said:
        return ()
    reason = f"the call passes them on or reads them in `{said}`, which says no names"
    name = next(
        p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD
    )
    return (Parameter(name=name, of="call", role=Role.KEYWORDS, reason=reason),)


def _differs(value: object, default: object) -> bool:
    off = value is False and default is inspect.Parameter.empty  # of a switch without a default
    if value is None or value is default or off:
        return False
    plain = (bool, int, float, str)
    return not (isinstance(value, plain) and isinstance(default, plain) and value == default)


def _shown(default: object) -> str:
    text = repr(default)
    return text if len(text) <= 40 else f"{text[:37]}..."


# What is said in place of the default of what is read of a configuration.
OF_CONFIGURATION = "of a configuration"
# What a layer may keep its configuration under.
_HOLDERS = r"self\.\w*(?:cfg|config|conf|args|opts?|hparams)\w*"


def read_of_config(subject: Any, config: str, wanted: Role | None = None) -> tuple[Parameter, ...]:
    """Return what a class, or one above it, reads of its configuration for this role, or for any.

    No constructor and no call shows them. ``config`` is the constructor's argument that holds them.
    """
    source = ""
    for each in getattr(subject, "__mro__", (subject,)):
        if each.__module__.partition(".")[0] not in {*sys.stdlib_module_names, "torch"}:
            source += source_text(each)
    held = rf"(?:{re.escape(config)}|{_HOLDERS})"
    read = re.findall(rf"\b{held}\.(\w+)\b", source)
    read += re.findall(rf"\bgetattr\(\s*{held}\s*,\s*[\"'](\w+)[\"']", source)
    roles = {each: role(each, "constructor", default=False) for each in read}
    return tuple(
        Parameter(name=name, of="constructor", role=each, default=OF_CONFIGURATION)
        for name, each in roles.items()
        if wanted in {None, each}
    )


def _is_required_switch(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is True or False by its annotation, and has no default."""
    return parameter.default is parameter.empty and is_annotated(parameter, bool)


def modes_of(named: Iterable[inspect.Parameter], *, training: bool) -> dict[str, Any]:
    """Return what the parameters get that say whether a call is made in training.

    A required module of dropout is a function that drops nothing.
    """
    named = list(named)
    modes = {p.name: MODES[p.name] != training for p in named if p.name in MODES}
    return {**modes, **dict.fromkeys(required_dropouts(named), unchanged)}


def kept_rows(named: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the required parameters that are keys or values of a cache by their names.

    Beside a query alone, as in functions that decode, they are the inputs.
    """
    return [p for p in named if p.default is p.empty and _KEPT.fullmatch(p.name.lower())]


def required_dropouts(named: Iterable[inspect.Parameter]) -> list[str]:
    """Return the names of required parameters whose annotation is a module of dropout."""
    said = ((p, getattr(p.annotation, "__name__", p.annotation)) for p in named)
    return [p.name for p, of in said if p.default is p.empty and str(of).endswith("Dropout")]


def unchanged(rows: Any) -> Any:
    """Return what a module of dropout returns outside of training."""
    return rows
