"""Configurations that layers are built from: of a class with sizes by name, or of any name."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from mha_parity.targets.static.argument_meanings import LayerSizes, meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a configuration keeps further sizes in.
INNER_CONFIG = re.compile(
    r"^(transformer|attention|attn|self_attn|network|.+_(config|cfg|args|params))$"
)
# What is given though it has a default.
GIVEN = frozenset(
    {"width", "heads", "head_dim", "bias", "dropout", "length", "samples", "most_samples"}
)
SET = GIVEN | {"kv_heads", "odd_window"}  # what is set of a configuration's own
SCALES = frozenset({"root", "inverse_root"})  # which a frozen one keeps as they are by default
UNKNOWN_NAME = "which is unknown"  # how the error ends on what no configuration can answer


class RecordingConfig:
    """A configuration of every name with a meaning, which keeps what it was asked for."""

    def __init__(
        self,
        sizes: LayerSizes,
        *,
        inverse: bool = False,
        nested: bool = False,
        words: Mapping[str, str] = MappingProxyType({}),
        methods: frozenset[str] = frozenset(),
        log: dict[str, str] | None = None,
    ) -> None:
        self.sizes = sizes
        self._inverse = inverse  # whether a scale is 1 / sqrt(head_dim)
        self._nested = nested  # whether what is unknown is a configuration within
        self._words = words  # strings of what is one of several kinds, by name
        self._methods = methods  # what is called for its value
        # What this and all others of a construction were asked for, by name, and what it means.
        self._log = {} if log is None else log
        # What each attribute that was asked for means, its fixed value, or a configuration within.
        self.asked: dict[str, str | RecordingConfig] = {}

    def __getattr__(self, name: str) -> Any:
        """Return the value of an attribute that is known."""
        if name in _FIXED:
            self.asked[name] = self._log[name] = repr(_FIXED[name])
            return _FIXED[name]
        if name in self._words:
            self.asked[name] = self._log[name] = repr(self._words[name])
            return self._words[name]
        known = meanings(name)
        own = self._nested and not known and not name.startswith("_")
        if INNER_CONFIG.search(name) or own:
            inner = RecordingConfig(
                self.sizes, inverse=self._inverse, nested=self._nested, words=self._words,
                methods=self._methods, log=self._log,
            )  # fmt: skip
            return self.asked.setdefault(name, inner)
        if name.startswith("__") or not known:
            raise AttributeError(f"the layer asks its configuration for {name!r}, {UNKNOWN_NAME}")
        meaning = known[int(self._inverse and known[0] == "root")]
        self.asked[name] = self._log[name] = meaning
        value = self.sizes.value(meaning)
        return (lambda: value) if name in self._methods else value

    def __contains__(self, name: object) -> bool:
        """Return whether a key of this name is known."""
        return isinstance(name, str) and (name in _FIXED or bool(meanings(name)))

    def __getitem__(self, name: str) -> Any:
        """Return the value of a key, as if it were an attribute."""
        return getattr(self, name)

    def meanings(self) -> frozenset[str]:
        """Return the meanings that it was asked for, also within."""
        return frozenset(self._log.values())

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a key that is known, else the default."""
        return getattr(self, name, default)


_FIXED = {
    "_attn_implementation": "eager", "scale_attn_weights": True, "is_decoder": False,
    "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False,
    "position_embedding_type": "absolute", "pretraining_tp": 1, "rope_theta": 10000.0,
    "add_cross_attention": False,
}  # fmt: skip


_ANY = (dict, object, SimpleNamespace, inspect.Parameter.empty)


def configuration(annotation: Any, of_any_name: RecordingConfig) -> Any:
    """Return a configuration: of the annotated class with sizes by name, or one of any name."""
    if not isinstance(annotation, type) or annotation in _ANY:
        return of_any_name
    sizes = of_any_name.sizes
    try:
        required = required_of(annotation)
        made = annotation(**{name: sizes.value(meaning) for name, meaning in required.items()})
    except Exception:  # noqa: BLE001  (whatever the target's configuration raises)
        return of_any_name
    _set_sizes(made, sizes, set())
    if hasattr(made, "_attn_implementation"):
        made._attn_implementation = "eager"  # noqa: SLF001  (transformers chooses by it)
    return made


def _set_sizes(config: Any, sizes: LayerSizes, known: set[int]) -> None:
    """Set the sizes that a configuration has, also in the dataclasses that it keeps.

    ``known`` has the identities of those that are done: one may keep the other.
    """
    known.add(id(config))
    for name, meaning in settable_of(config).items():
        value = sizes.value(meaning)
        if _may_hold(getattr(config, name, None), value):
            setattr(config, name, value)
    held = (getattr(config, name, None) for name in _names_of(config))
    for inner in held:
        if is_dataclass(inner) and not isinstance(inner, type) and id(inner) not in known:
            _set_sizes(inner, sizes, known)


def _names_of(config: Any) -> set[str]:
    """Return the names of what a configuration keeps, with slots too."""
    return {*getattr(config, "__dict__", {}), *getattr(type(config), "__annotations__", {})}


def _may_hold(held: object, value: object) -> bool:
    """Return whether a value is of the kind that stands in its place: no width for `init_std`."""
    numbers = isinstance(held, float) and isinstance(value, int | float)
    whole = isinstance(value, int) and isinstance(held, float) and 0 < held < 1
    return held is None or type(held) is type(value) or (numbers and not whole)


def with_value(config: Any, name: str, value: object) -> Any:
    """Return a configuration with another value; a frozen one, which was made here, is changed."""
    if isinstance(config, tuple):
        return config._replace(**{name: value})  # type: ignore[attr-defined]  # a named one
    if _is_frozen(type(config)):
        object.__setattr__(config, name, value)
    else:
        setattr(config, name, value)
    return config


def _is_frozen(kind: type) -> bool:
    return is_dataclass(kind) and bool(getattr(kind, "__dataclass_params__").frozen)  # noqa: B009


def required_of(kind: type) -> dict[str, str]:
    """Return what a configuration class is built from, by meaning: all sizes if it is frozen."""
    frozen = _is_frozen(kind)
    several = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    named = [e for e in inspect.signature(kind).parameters.values() if e.kind not in several]
    known = [(e, meanings(e.name)[0]) for e in named if meanings(e.name)]
    return {
        each.name: meaning
        for each, meaning in known
        if each.default is each.empty or (frozen and meaning not in SCALES)
    }


def settable_of(config: Any) -> dict[str, str]:
    """Return the sizes that are set on a configuration, by meaning; none if it is frozen."""
    kind = type(config)
    names = () if _is_frozen(kind) else _names_of(config)
    known = {name: meanings(name)[0] for name in sorted(names) if meanings(name)}
    return {name: each for name, each in known.items() if each in SET}
