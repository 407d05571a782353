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
from mha_parity.targets.static.projection_names import snake_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the name of the first that a call runs, and the target's functions around all of them.

    Two that say it together are named both; () and () if the call raises. The outermost function
    is the first. ``modules`` has the paths of a layer's modules by their identity, as their names.
    """
    seen = _Seen(modules)
    try:
        with profiling(seen.watch):
            call()
    except CandidateError:
        return (), ()
    pair = tuple(name for name in seen.around if name in _PAIR)
    named = tuple(name for name in seen.around if lacks_counterpart(name.rpartition(".")[2]))
    found = named[:1] or (pair if len(pair) == 2 else ())
    around = (each for name in (*named, *pair) for each in seen.around[name])
    return found, tuple(dict.fromkeys(around))


def kept_parts_without_counterpart(layer: Any, answer: Callable[[], Array]) -> tuple[str, ...]:
    """Return the first of a module's buffers that is named so and has a part in the answer.

    With zeros in its place the answer is another one, or there is none.
    """
    buffers: Iterable[tuple[str, Any]] = getattr(layer, "named_buffers", tuple)()
    for path, buffer in buffers:
        if not lacks_counterpart(path.rpartition(".")[2]):
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


class _Seen:
    """Names that a target's own frames call and hold, with the functions around each, once.

    ``modules`` has the paths of a layer's modules by their identity.
    """

    def __init__(self, modules: dict[int, str]) -> None:
        self._modules = modules
        self.around: dict[str, tuple[str, ...]] = {}

    def watch(self, frame: FrameType, event: str, value: Any) -> None:
        """Keep what an event shows, as a profile function."""
        if event == "c_call" and _is_own(frame):
            self._keep(value.__name__, frame)
        elif event == "call":
            self._keep_call(frame)
        elif event == "return" and (_is_own(frame) or _is_called_by_own(frame)):
            held = frame.f_locals.items() if _is_own(frame) else ()
            arrays = [(n, each) for n, each in held if hasattr(each, "dtype")]
            for name, each in (*arrays, (frame.f_code.co_name, value)):
                if not _NORMS.search(snake_case(name)) or _has_equal_norms(each):
                    self._keep(name, frame)

    def _keep_call(self, frame: FrameType) -> None:
        """Keep the path and the class of a module that is called, or the name of a function."""
        name, layer = frame.f_code.co_name, frame.f_locals.get("self")
        path = self._modules.get(id(layer), "")
        if path:
            self._keep(path, frame)
            if lacks_counterpart(type(layer).__name__) and not lacks_counterpart(path):
                self._keep(type(layer).__name__, frame)
        elif (_is_own(frame) or _is_called_by_own(frame)) and not _NORMS.search(snake_case(name)):
            self._keep(name, frame)

    def _keep(self, name: str, frame: FrameType) -> None:
        if name not in self.around:
            self.around[name] = tuple(self._functions_around(frame))[::-1]

    def _functions_around(self, frame: FrameType | None) -> Iterator[str]:
        """Yield the target's functions and modules that are running, but the one that was called.

        A name that two of them have would not say which is meant.
        """
        while frame is not None:
            path = self._modules.get(id(frame.f_locals.get("self")), "")
            before = frame.f_back
            if _is_own(frame) and before is not None and (path or _is_own(before)):
                yield path or frame.f_code.co_name
            frame = before


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


def _is_own(frame: FrameType) -> bool:
    return not _LIBRARIES.search(frame.f_code.co_filename)


def _is_called_by_own(frame: FrameType) -> bool:
    return frame.f_back is not None and _is_own(frame.f_back)


def lacks_counterpart(name: str) -> bool:
    """Return whether a name is that of an operation that torch's layer does not have."""
    # In words `ReLU` is `re_lu`.
    ways = (snake_case(name), name.lower())
    return any(_NAMES.search(each) or _NORMS.search(each) for each in ways)
