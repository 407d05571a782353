"""The options of a run, defined once for the command and for the pytest plugin."""

from __future__ import annotations

import argparse
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from mha_parity.features import AXES

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_TARGET = "mha_numpy:MultiheadAttention"
Policy = Literal["nan", "zero", "uniform"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is asked to do. Field by field the options of the command line.

    With ``draw`` the verdict has the pictures that a page shows.
    """

    cases: int = 500
    seed: int = 0
    dtypes: tuple[str, ...] = ()
    features: tuple[tuple[str, str], ...] = ()
    convention: str | None = None
    timeout: float = 10.0
    memory: float = 4.0
    in_process: bool = False
    forbid: tuple[str, ...] = ()
    fully_masked: Policy | None = None
    max_times_torch: float | None = None
    grad: bool = False
    device: str = "cpu"
    path: str | None = None
    diagnose: bool = True
    shrink: bool = True
    draw: bool = False
    jobs: int | None = None


def whole(text: str) -> int:
    """Return a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a whole number from 1 up")
    return int(text)


def count(text: str) -> int:
    """Return a whole number, 0 included."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a whole number from 0 up")
    return int(text)


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a number above 0")
    return number


def dtypes(text: str) -> tuple[str, ...]:
    """Return the dtypes named in a comma-separated list."""
    return tuple(_one_of(word, tuple(AXES["dtype"]), "dtype") for word in text.split(","))


def policy(text: str) -> str:
    """Return a policy on fully masked rows."""
    return _one_of(text, POLICIES, "policy on fully masked rows")


def modules(text: str) -> tuple[str, ...]:
    """Return the modules named in a comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def features(text: str) -> tuple[tuple[str, str], ...]:
    """Return the (axis, value) pairs of a list such as ``attn=causal,bias=yes``."""
    pairs = []
    for word in text.split(","):
        axis, equals, value = word.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"got {word!r}, but should be AXIS=VALUE, as bias=yes")
        axis = _one_of(axis.strip(), tuple(AXES), "feature axis")
        pairs.append((axis, _one_of(value.strip(), tuple(AXES[axis]), f"value of {axis}")))
    return tuple(pairs)


def _one_of(word: str, known: tuple[str, ...], what: str) -> str:
    if word in known:
        return word
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
    raise argparse.ArgumentTypeError(f"got {word!r}, but no such {what}{hint}")


def add_options(addoption: Callable[..., Any], prefix: str = "") -> None:
    """Add every option of a run through ``addoption``: argparse's or pytest's.

    The command passes its parser's ``add_argument``; the plugin its group's ``addoption`` and the
    prefix ``mha-parity-``.
    """

    def add(name: str, **keywords: Any) -> None:
        addoption(f"--{prefix}{name}", **keywords)

    plain = Options()
    add("convention", metavar="NAME", help="how the target is called (default: recognised)")
    add("cases", type=whole, default=plain.cases, metavar="N", help="how many cases (%(default)s)")
    add("seed", type=count, default=plain.seed, metavar="N", help="which cases (%(default)s)")
    add("dtype", type=dtypes, default=(), metavar="A,B", help="only these dtypes")
    add("feature", type=features, default=(), metavar="AXIS=VALUE,...", help="only these features")
    add(
        "timeout",
        type=positive,
        default=plain.timeout,
        metavar="S",
        help="seconds a case may take (%(default)s)",
    )
    add(
        "memory",
        type=positive,
        default=plain.memory,
        metavar="GIB",
        help="memory the target may take (%(default)s)",
    )
    add(
        "in-process",
        action="store_true",
        help="run the target here, for debuggers; protects from nothing",
    )
    add(
        "forbid",
        type=modules,
        default=(),
        metavar="A,B",
        help="fail a target that computes through these modules",
    )
    add(
        "fully-masked",
        type=policy,
        metavar="POLICY",
        help="what rows without a visible key must be: nan, zero, uniform (default: only named)",
    )
    add(
        "jobs",
        type=whole,
        metavar="N",
        help="processes to judge in (default: one, or one a core in runs of 2000 cases and more)",
    )
    add("max-times-torch", type=positive, metavar="X", help="fail errors above X times torch's own")
    add("grad", action="store_true", help="judge gradients too")
    add(
        "device",
        default=plain.device,
        metavar="NAME",
        help="where a torch module runs (%(default)s)",
    )


def from_namespace(namespace: object, prefix: str = "") -> Options:
    """Return the options that a parsed command line or a pytest config holds."""

    def got(name: str) -> Any:
        return getattr(namespace, prefix.replace("-", "_") + name)

    return Options(
        cases=got("cases"), seed=got("seed"), dtypes=got("dtype"), features=got("feature"),
        convention=got("convention"), timeout=got("timeout"), memory=got("memory"),
        in_process=got("in_process"), forbid=got("forbid"), fully_masked=got("fully_masked"),
        max_times_torch=got("max_times_torch"), grad=got("grad"), device=got("device"),
        path=getattr(namespace, "path", None), jobs=got("jobs"),
        draw=bool(getattr(namespace, "html", None)),
    )  # fmt: skip
