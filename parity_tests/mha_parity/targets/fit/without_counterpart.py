"""Operations of a target that torch's layer has no counterpart for, found by their names.

Rotary or relative positions, normalised or activated projections: a call that departs from
attention is watched, and what it runs, in the target's own code, is compared with names of these.
Where a name is that of normalised rows, the rows have to be so: weights are normalised as well.
What is only mentioned, and not run, has no part in the answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.profiler import profiling
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.fit.names import snake_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from mha_parity.core.arrays import Array

_NAMES = re.compile(
    r"(^|_)(ro_?pe|ro_pe|xpos|ali_?bi|slopes?)(_|\d|$)|rotary|freqs?(_|$)"
    r"|rotate_(half|every|pair|quer|key|emb|pos)|^rotated?(_?[qkx])?$"
    r"|(^|_)rel(ative)?_?pos|relative_(position|attention|bias|k|v|key|logits)"
    r"|(batch|group|instance)_?norm|^(leaky_?)?relu\d?$|^[gs]elu$|^(silu|mish|softplus|tanh)$"
)
# Names that normalised rows have, and weights too, which are normalised by the softmax.
_NORMS = re.compile(r"(rms|layer|l2|q|k|qk|query|key)_?norm|^normali[sz]e")
_EQUAL = 1e-2  # what squared norms of normalised rows differ by at most, against the largest
_PAIR = frozenset({"cos", "sin"})  # together they turn rows by their positions
_LIBRARIES = re.compile(
    r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3|[/\\]mha_parity[/\\]|^<(?!ipython|cell)"
)


def parts_without_counterpart(
    call: Callable[[], object], modules: dict[int, str]
) -> tuple[str, ...]:
    """Return the names of what a call runs, in the order in which it is run; () if it raises.

    ``modules`` has the paths of a layer's modules by their identity: they are named by these.
    """
    seen: dict[str, None] = {}
    try:
        with profiling(_watching(seen, modules)):
            call()
    except CandidateError:
        return ()
    pair = tuple(name for name in seen if name in _PAIR)
    named = tuple(name for name in seen if _is_named(name.rpartition(".")[2]))
    return named[:1] or (pair if len(pair) == 2 else ())


def kept_parts_without_counterpart(layer: Any, answer: Callable[[], Array]) -> tuple[str, ...]:
    """Return the first of a module's buffers that is named so and has a part in the answer.

    With zeros in its place the answer is another one, or there is none.
    """
    buffers: Iterable[tuple[str, Any]] = getattr(layer, "named_buffers", tuple)()
    for path, buffer in buffers:
        if not _is_named(path.rpartition(".")[2]):
            continue
        try:
            before, held = answer(), buffer.clone()
            buffer.zero_()
            after = answer()
            buffer.copy_(held)
        except CandidateError:
            return (path,)
        if not np.array_equal(before, after, equal_nan=True):
            return (path,)
    return ()


def _watching(
    seen: dict[str, None], modules: dict[int, str]
) -> Callable[[FrameType, str, Any], None]:
    """Return a profile function that keeps what a target's own frames call and hold."""

    def watch(frame: FrameType, event: str, value: Any) -> None:
        if event == "c_call" and _is_own(frame):
            seen.setdefault(value.__name__)
        elif event == "call":
            _keep_call(frame, seen, modules)
        elif event == "return" and (_is_own(frame) or _is_called_by_own(frame)):
            held = frame.f_locals.items() if _is_own(frame) else ()
            arrays = [(n, each) for n, each in held if hasattr(each, "dtype")]
            for name, each in (*arrays, (frame.f_code.co_name, value)):
                if not _NORMS.search(snake_case(name)) or _has_equal_norms(each):
                    seen.setdefault(name)

    return watch


def _has_equal_norms(value: Any) -> bool:
    """Return whether rows are normalised: an array of equal norms, or one of the norms."""
    if isinstance(value, tuple | list):
        return any(_has_equal_norms(each) for each in value)
    try:
        array = to_numpy(value, "the rows").astype(np.float64)
    except CandidateError:
        return False
    if array.ndim < 2:
        return False
    squares = (array**2).sum(axis=-1)
    return array.shape[-1] == 1 or bool(np.ptp(squares) <= _EQUAL * squares.max())


def _keep_call(frame: FrameType, seen: dict[str, None], modules: dict[int, str]) -> None:
    """Keep the path and the class of a module that is called, or the name of a function."""
    name, layer = frame.f_code.co_name, frame.f_locals.get("self")
    path = modules.get(id(layer), "")
    if path:
        seen.setdefault(path)
        if _is_named(type(layer).__name__) and not _is_named(path):
            seen.setdefault(type(layer).__name__)
    elif (_is_own(frame) or _is_called_by_own(frame)) and not _NORMS.search(snake_case(name)):
        seen.setdefault(name)


def _is_own(frame: FrameType) -> bool:
    return not _LIBRARIES.search(frame.f_code.co_filename)


def _is_called_by_own(frame: FrameType) -> bool:
    return frame.f_back is not None and _is_own(frame.f_back)


def _is_named(name: str) -> bool:
    # In words `ReLU` is `re_lu`.
    ways = (snake_case(name), name.lower())
    return any(_NAMES.search(each) or _NORMS.search(each) for each in ways)
