"""The options of a run, defined once for the command and for the pytest plugin."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from mha_parity.core.features import AXES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_TARGET = "mha_numpy:MultiheadAttention"
# Judged as well where no target is named: small cases, left alone, meet one engine only.
FORCED_ENGINES = ("mha_numpy.forced:PlainAttention", "mha_numpy.forced:FlashAttention")
Policy = Literal["nan", "zero", "uniform"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
MEANINGS = ("hides", "keeps", "additive")  # of a True or 1 in a mask


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
    without: tuple[str, ...] = ()
    masks: tuple[tuple[str, str], ...] = ()
    state_dict: str | None = None
    num_heads: int | None = None
    strict_overflow: bool = False
    answers: str | None = None
    fail_fast: bool = False


class OptionKeywords(TypedDict, total=False):
    """The fields of ``Options`` as keywords of a call; lists also as text, ``"float32,float64"``.

    Parameters
    ----------
    cases
        Number of cases drawn (500).
    seed
        Seed of the draw (0).
    dtypes
        Only these dtypes, as ``"float32"`` or ``("float32", "float64")``.
    features
        Only these features, as ``"attn=causal,bias=yes"``.
    convention
        How the target is called (default: recognised from its signature).
    timeout, memory
        Seconds that a call, and GiB that a case may take in a process of its own.
    in_process
        Run a target that is given as text in this process.
    forbid
        Modules through which the target may not compute.
    fully_masked
        What rows without a visible key have to be: ``"nan"``, ``"zero"`` or ``"uniform"``.
    max_times_torch
        Fail errors above this factor times torch's own.
    grad
        Judge gradients too.
    device
        Device of a torch module (``"cpu"``).
    path
        Path through torch.nn.MultiheadAttention, where that is the target.
    diagnose, shrink, draw
        Look for the bug's name; shrink failing cases; draw the pictures of the page.
    jobs
        Processes to judge in.
    without
        Masks, lengths or causal switches of the target that are knowingly left untried.
    masks
        What masks of the target mean, as ``"mask=keeps:(N,1,L,S)"``: hides, keeps or additive.
    state_dict, num_heads
        File (.safetensors) of the weights that a layer is judged with, and its number of heads.
    strict_overflow
        Fail a float16 product q k^T that overflows before it is scaled.
    answers
        File of recorded answers to judge by, without torch.
    fail_fast
        Stop at the first case that fails; of the 500 first cases, telling ones come first.

    """

    cases: int
    seed: int
    dtypes: str | Sequence[str]
    features: str | Sequence[tuple[str, str]]
    convention: str | None
    timeout: float
    memory: float
    in_process: bool
    forbid: str | Sequence[str]
    fully_masked: Policy | None
    max_times_torch: float | None
    grad: bool
    device: str
    path: str | None
    diagnose: bool
    shrink: bool
    draw: bool
    jobs: int | None
    without: str | Sequence[str]
    masks: str | Sequence[tuple[str, str]]
    state_dict: str | None
    num_heads: int | None
    strict_overflow: bool
    answers: str | None
    fail_fast: bool


MAX_DIGITS = 18  # of a number that 64 bits hold


def whole(text: str) -> int:
    """Return a whole number above 0."""
    if not _is_count(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a whole number from 1 up")
    return int(text)


def count(text: str) -> int:
    """Return a whole number, 0 included."""
    if not _is_count(text):
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be a whole number from 0 up")
    return int(text)


def shard(text: str) -> tuple[int, int]:
    """Return the number of a shard, from 1, and how many there are, of a text such as ``3/8``."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"got {text!r}, but should be K/N with K from 1 to N")
    return int(number), int(of)


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_DIGITS


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


def names(text: str) -> tuple[str, ...]:
    """Return the parameters named in a comma-separated list."""
    return modules(text)


def masks(text: str) -> tuple[tuple[str, str], ...]:
    """Return the (parameter, meaning) pairs of a list such as ``mask=keeps:(N,1,L,S)``."""
    pairs = []
    for word in re.split(r",(?![^(]*\))", text):
        name, equals, meaning = (part.strip() for part in word.partition("="))
        if not equals:
            raise argparse.ArgumentTypeError(f"got {word!r}, but should be NAME=keeps, say")
        _one_of(meaning.partition(":")[0], MEANINGS, "meaning of a mask")
        pairs.append((name, meaning))
    return tuple(pairs)


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


def with_keywords(options: Options, keywords: Mapping[str, object]) -> Options:
    """Return ``options`` with the fields that keywords name, held to the command line's rules.

    Raises
    ------
    ValueError
        A keyword is no field of ``Options``, or its value is none that the command would take.

    """
    known = tuple(field.name for field in dataclasses.fields(Options))
    given: dict[str, Any] = {}
    for name, value in keywords.items():
        try:
            field = _one_of(name, known, "option")
            given[field] = _parsed(field, value)
        except argparse.ArgumentTypeError as error:
            end = "" if str(error).endswith("?") else "."
            said = f"{name}: {error}" if name in known else str(error)
            raise ValueError(f"{said}{end}") from None
    return dataclasses.replace(options, **given)


def _parsed(name: str, value: object) -> object:
    """Return the value of a keyword as its option's parser gives it."""
    plain = getattr(Options(), name)
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
    return _PARSERS.get(name, str)(str(value))


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "cases": whole,
    "seed": count,
    "dtypes": dtypes,
    "features": features,
    "timeout": positive,
    "memory": positive,
    "forbid": modules,
    "fully_masked": policy,
    "max_times_torch": positive,
    "jobs": whole,
    "num_heads": whole,
    "without": names,
    "masks": masks,
}


def add_options(addoption: Callable[..., Any], prefix: str = "") -> None:
    """Add every option of a run through ``addoption``: argparse's or pytest's.

    The command passes its parser's ``add_argument``; the plugin its group's ``addoption`` and the
    prefix ``mha-parity-``. Lists given by an option several times are joined.
    """

    def add(name: str, **keywords: Any) -> None:
        addoption(f"--{prefix}{name}", **keywords)

    def add_list(name: str, **keywords: Any) -> None:
        add(name, action="extend", default=[], **keywords)

    plain = Options()
    add("convention", metavar="NAME", help="how the target is called (default: recognised)")
    add("cases", type=whole, default=plain.cases, metavar="N", help="how many cases (%(default)s)")
    add("seed", type=count, default=plain.seed, metavar="N", help="which cases (%(default)s)")
    add("fail-fast", action="store_true", help="stop at the first case that fails")
    add_list("dtypes", type=dtypes, metavar="A,B", help="only these dtypes")
    add_list("features", type=features, metavar="AXIS=VALUE,...", help="only these features")
    seconds = "seconds a call may take (%(default)s)"
    add("timeout", type=positive, default=plain.timeout, metavar="S", help=seconds)
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
    add_list(
        "forbid",
        type=modules,
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
        "answers",
        metavar="FILE",
        help="judge by answers that `mha-parity record` wrote, without torch",
    )
    add(
        "strict-overflow",
        action="store_true",
        help="fail a float16 product q k^T that overflows before it is scaled (default: named)",
    )
    add_list(
        "masks",
        type=masks,
        metavar="NAME=MEANING[:SHAPE]",
        help="what a mask means: True hides, keeps, or is additive; (N,1,L,S) say (default: tried)",
    )
    add_list(
        "without",
        type=names,
        metavar="A,B",
        help="leave these masks, lengths or causal switches of the target untried, and say so",
    )
    where = "where a torch module runs (%(default)s)"
    add("device", default=plain.device, metavar="NAME", help=where)
    add(
        "state-dict",
        metavar="FILE[:PREFIX]",
        help="judge a layer with the weights of this .safetensors file over all else",
    )
    add("num-heads", type=whole, metavar="H", help="heads of --state-dict, or of a model")


def from_namespace(namespace: object, prefix: str = "") -> Options:
    """Return the options that a parsed command line or a pytest config holds."""

    def read(name: str) -> Any:
        return getattr(namespace, prefix.replace("-", "_") + name)

    def joined(name: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(read(name)))

    return Options(
        cases=read("cases"), seed=read("seed"),
        dtypes=joined("dtypes"), features=joined("features"),
        convention=read("convention"), timeout=read("timeout"), memory=read("memory"),
        in_process=read("in_process"), forbid=joined("forbid"), fully_masked=read("fully_masked"),
        max_times_torch=read("max_times_torch"), grad=read("grad"), device=read("device"),
        path=getattr(namespace, "path", None), jobs=read("jobs"),
        without=joined("without"), masks=joined("masks"),
        state_dict=read("state_dict"), num_heads=read("num_heads"),
        strict_overflow=read("strict_overflow"), answers=read("answers"),
        fail_fast=read("fail_fast"),
        draw=any(getattr(namespace, name, None) for name in ("html", "markdown", "github")),
    )  # fmt: skip
