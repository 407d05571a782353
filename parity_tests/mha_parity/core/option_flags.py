"""The options of a run as flags of the command and of pytest, and as keywords of a call."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mha_parity.core.errors import UsageError
from mha_parity.core.option_values import (
    comma_list,
    dtypes,
    feature_pairs,
    mask_meanings,
    module_names,
    nonnegative_integer,
    one_of,
    policy,
    positive_integer,
    positive_number,
)
from mha_parity.core.options import Options

PLAIN = Options()


def _flag(
    help: str,  # noqa: A002  (argparse's word)
    metavar: str | None = None,
    type: Callable[[str], object] | None = None,  # noqa: A002  (argparse's word)
) -> dict[str, Any]:
    given = {"help": help, "metavar": metavar, "type": type}
    return {name: value for name, value in given.items() if value is not None}


# Each flag names a field of ``Options``, whose default it has. A field that is False is a switch;
# a tuple's flag may be given several times, and its lists are joined.
FLAGS: Mapping[str, Mapping[str, Any]] = {
    "convention": _flag("how the target is called (default: recognised)", "NAME"),
    "cases": _flag("how many cases (%(default)s)", "N", positive_integer),
    "seed": _flag("which cases (%(default)s)", "N", nonnegative_integer),
    "fail-fast": _flag(
        "stop at the first case that fails, as --max-failures 1, telling cases first"
    ),
    "max-failures": _flag(
        "stop at this number of failing cases (%(default)s); 0 asks every case",
        "N",
        nonnegative_integer,
    ),
    "dtypes": _flag("only these dtypes", "A,B", dtypes),
    "features": _flag("only these features", "AXIS=VALUE,...", feature_pairs),
    "timeout": _flag("seconds a call may take (%(default)s)", "S", positive_number),
    "memory": _flag("memory the target may take (%(default)s)", "GIB", positive_number),
    "in-process": _flag("run the target here, for debuggers; protects from nothing"),
    "forbid": _flag("fail a target that computes through these modules", "A,B", module_names),
    "fully-masked": _flag(
        "what rows without a visible key must be: nan, zero, uniform (default: only named)",
        "POLICY",
        policy,
    ),
    "jobs": _flag(
        "processes to judge in (default: one, or one a core in runs of 2000 cases and more)",
        "N",
        positive_integer,
    ),
    "max-times-torch": _flag("fail errors above X times torch's own", "X", positive_number),
    "grad": _flag("judge gradients too"),
    "answers": _flag("judge by answers that `mha-parity record` wrote, without torch", "FILE"),
    "strict-overflow": _flag(
        "fail a float16 product q k^T that overflows before it is scaled (default: named)"
    ),
    "strict-padding": _flag(
        "judge rows of padded queries too, as torch's layer answers them (default: named)"
    ),
    "masks": _flag(
        "what a mask means: hides, keeps (where True) or additive; (N,1,L,S) say (default: tried)",
        "NAME=MEANING[:SHAPE]",
        mask_meanings,
    ),
    "without": _flag(
        "leave these masks, lengths or causal switches of the target untried; methods, functions "
        "or modules within it that torch lacks (rotary positions, norms of q and k) return what "
        "they are given; the verdict says so",
        "A,B",
        comma_list,
    ),
    "device": _flag("where a torch module runs (%(default)s)", "NAME"),
    "state-dict": _flag(
        "judge a layer with the weights of this .safetensors file over all else", "FILE[:PREFIX]"
    ),
    "num-heads": _flag("heads of --state-dict, or of a model", "H", positive_integer),
}


def add_options(
    addoption: Callable[..., Any],
    prefix: str = "",
    defaults: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Add every option of a run through ``addoption``: argparse's or pytest's.

    The command passes its parser's ``add_argument``; the plugin its group's ``addoption``, the
    prefix ``mha-parity-``, and what are other ``defaults`` there. Lists given by an option several
    times are joined.
    """
    for name, flag in FLAGS.items():
        plain = defaults.get(name, getattr(PLAIN, _field(name)))
        kind: dict[str, Any] = {"default": plain}
        if plain is False:
            kind = {"action": "store_true"}
        elif isinstance(plain, tuple):
            kind = {"action": "extend", "default": []}
        addoption(f"--{prefix}{name}", **kind, **flag)


def _field(flag: str) -> str:
    return flag.replace("-", "_")


def from_namespace(namespace: object, prefix: str = "") -> Options:
    """Return the options that a parsed command line or a pytest config holds."""
    given: dict[str, Any] = {}
    for field in map(_field, FLAGS):
        value = getattr(namespace, prefix.replace("-", "_") + field)
        joined = isinstance(getattr(PLAIN, field), tuple)
        given[field] = tuple(dict.fromkeys(value)) if joined else value
    return Options(
        **given,
        path=getattr(namespace, "path", None),
        draw=any(getattr(namespace, name, None) for name in ("html", "markdown", "github")),
    )


def with_keywords(options: Options, keywords: Mapping[str, object]) -> Options:
    """Return ``options`` with the fields that keywords name, all held to the command line's rules.

    Raises
    ------
    UsageError
        A keyword is no field of ``Options``, or a value is none that the command would take.

    """
    __tracebackhide__ = True  # pytest shows the caller's line, whose mistake it is
    known = tuple(field.name for field in dataclasses.fields(Options))
    given: dict[str, Any] = {}
    own = {name: getattr(options, name) for name in known}
    changed = {name: value for name, value in own.items() if value != getattr(PLAIN, name)}
    for name, value in {**changed, **keywords}.items():
        try:
            field = one_of(name, known, "option")
            given[field] = _parsed(field, value)
        except argparse.ArgumentTypeError as error:
            end = "" if str(error).endswith("?") else "."
            said = f"{name}: {error}" if name in known else str(error)
            raise UsageError(f"{said}{end}") from None
    return dataclasses.replace(options, **given)


def _parsed(name: str, value: object) -> object:
    """Return the value of a keyword as its option's parser gives it."""
    plain = getattr(PLAIN, name)
    if value is None and plain is None:
        return None
    if isinstance(plain, bool):
        if not isinstance(value, bool):
            raise argparse.ArgumentTypeError(f"got {value!r}, but should be True or False")
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            return ()
        value = ",".join("=".join(each) if isinstance(each, tuple) else each for each in value)
    return parser_of(name)(str(value))


def parser_of(field: str) -> Callable[[str], object]:
    """Return what makes a value of the text of an option."""
    parser: Callable[[str], object] = FLAGS.get(field.replace("_", "-"), {}).get("type", str)
    return parser
