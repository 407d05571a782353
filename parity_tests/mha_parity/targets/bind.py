"""``bind`` makes a candidate of a subject: its calling convention, its array library, its offer."""

from __future__ import annotations

import difflib
import inspect
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.global_state import GlobalState
from mha_parity.targets import backends
from mha_parity.targets.attention_call import is_adapter
from mha_parity.targets.attribution import raised_by
from mha_parity.targets.callables import as_function, is_function, layer_inside
from mha_parity.targets.conventions.adapted import Adapted
from mha_parity.targets.conventions.crash_report import crash
from mha_parity.targets.conventions.fitted import Fitted
from mha_parity.targets.conventions.linear_layers import LinearModule
from mha_parity.targets.conventions.onnx_layer import OnnxLayer
from mha_parity.targets.conventions.probing import accepts, offer_unprobed, probe_offer
from mha_parity.targets.fit.refusals import refuse_separate_kernels, without_counterpart
from mha_parity.targets.fit.without_counterpart import kept_offenders, offenders
from mha_parity.targets.instance import layer_of, narrow_offer, use_layer
from mha_parity.targets.known import KNOWN, convention_named
from mha_parity.targets.onnx_model import OnnxModel
from mha_parity.targets.state_dict import give_weights

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.conventions.base import Convention

__all__ = ["KNOWN", "bind", "convention_named"]

EVEN_HEAD_DIM = 8  # of the call that is watched: rotary positions halve a head


def bind(
    subject: object,
    name: str | None = None,
    *,
    device: str = "cpu",
    path: str | None = None,
    label: str | None = None,
    probe: bool = True,
    masks: Iterable[tuple[str, str]] = (),
    without: Iterable[str] = (),
    state_dict: str | None = None,
    num_heads: int | None = None,
) -> Convention:
    """Return ``subject`` as a candidate called by the convention ``name`` (None: recognised).

    ``path`` sends torch's own module along one of its paths. ``probe`` makes a few small calls to
    see what it offers; without it the signature alone decides. ``masks`` says what mask parameters
    mean, and those named in ``without`` are left alone. ``state_dict`` names a file of weights over
    all else, ``num_heads`` how many heads they have.

    Raises
    ------
    TargetError
        The convention is unknown, or cannot be recognised; or looking at the subject raised.

    """
    state = GlobalState.now()
    try:
        if isinstance(subject, OnnxModel):
            subject.num_heads, num_heads = subject.find_num_heads(num_heads), None
        subject = as_function(subject)
        compiled = layer_of(subject)
        layer = layer_inside(compiled)
        bound = _bound(subject if layer is None else type(layer), name, device, path, call=probe)
        bound.name = label or bound.name
        bound.mask_meanings, bound.without = dict(masks), tuple(without)
        _check_names(bound)
        if not bound.states_offer:
            (probe_offer if probe else offer_unprobed)(bound)
        if not probe and (layer is not None or state_dict is not None):
            bound.offer = bound.offer | {"dtype": bound.library.dtypes}  # the weights say which
        _take_weights(bound, compiled, state_dict, num_heads)
        bound.passed = {}  # the trials were no cases
    except (TargetError, CandidateError):
        raise
    except Exception as error:
        if not raised_by(subject, error):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        should = "its attributes and its constructor should not raise"
        if frames[-1].name == "__getattr__":  # Python asks for names that nobody has to have
            should = "its `__getattr__` should raise AttributeError for a name that it has not"
        raise TargetError(
            f"got the target {label or _name(subject)}, but looking at it {crash(error)}; {should}."
        ) from None
    else:
        return bound
    finally:
        state.restore()


def _check_names(bound: Convention) -> None:
    """Refuse a name of ``--masks`` or ``--without`` that no parameter has: it would do nothing.

    Raises
    ------
    TargetError
        There is none of that name; the sentence has the closest.

    """
    if not (bound.mask_meanings or bound.without):
        return
    known = list(dict.fromkeys(each.name for each in bound.parameters))
    for option, names in (("--masks", bound.mask_meanings), ("--without", bound.without)):
        for name in names:
            if name in known:
                continue
            close = difflib.get_close_matches(name, known, n=1)
            others = f"it has {', '.join(known) or 'none'}; name one, or leave {option} out."
            hint = f"did you mean {close[0]}?" if close else others
            raise TargetError(
                f"got {option} {name}, but {bound.name} has no parameter of that name; {hint}"
            )


def _take_weights(
    bound: Convention, layer: Any, state_dict: str | None, num_heads: int | None
) -> None:
    """Give a convention the weights that it is judged with over all else, if there are any."""
    if layer is not None:
        use_layer(bound, layer)
    if state_dict is not None or num_heads is not None:
        give_weights(bound, state_dict, num_heads)
    if isinstance(bound, OnnxLayer) and bound.own_weights is not None:
        narrow_offer(bound, bound.own_weights)


def _name(subject: object) -> str:
    if isinstance(subject, type) or inspect.isroutine(subject):
        return str(subject.__qualname__)
    return type(subject).__qualname__


def _bound(
    subject: object,
    name: str | None,
    device: str,
    path: str | None,
    *,
    call: bool,
) -> Convention:
    libraries = [backends.library(each, device) for each in backends.likely_libraries(subject)]
    if device != "cpu" and all(each.name == "numpy" for each in libraries):
        raise TargetError(
            f"got the device {device!r}, but the target takes NumPy's arrays, which lie on the "
            "CPU; leave --device out."
        )
    if name is None and is_adapter(subject):
        name = Adapted.name
    if name is None and call:
        return _in_own_arrays(_recognised(subject, libraries, path), libraries)
    if name is None:
        from mha_parity.targets.detect import recognise

        name = recognise(subject, libraries, call=call)
    if name == Fitted.name:
        fits, refused = _fits(subject, libraries, path)
        if not fits:
            raise refused[-1]
        return fits[-1]
    return _in_its_library(convention_named(name), subject, libraries, path, call=call)


def _in_its_library(
    kind: type[Convention],
    subject: object,
    libraries: list[Library],
    path: str | None,
    *,
    call: bool,
) -> Convention:
    """Return the subject bound with the first library's arrays that it accepts, or the first."""
    bound = [kind(subject, library=library, path=path) for library in libraries]
    if call and len(bound) > 1:
        bound.sort(key=lambda each: not accepts(each, each.plain_case()).offered)
    return bound[0]


def _in_own_arrays(bound: Convention, libraries: list[Library]) -> Convention:
    """Return what answers NumPy's arrays by another library's as it is called with those."""
    if bound.library.name != "numpy" or len(libraries) == 1:
        return bound
    with suppress(CandidateError, TargetError):
        result = bound.prepare(make_problem(bound.plain_case())).make()
        own = [each for each in libraries if each.name == backends.library_of(result)]
        again = _recognised(bound.subject, own, None) if own else bound
        if accepts(again, again.plain_case()).offered:
            return again
    return bound


def _recognised(subject: object, libraries: list[Library], path: str | None) -> Convention:
    """Return the subject by the convention that its signature shows, if it computes attention so.

    Else as experiments show that it is meant; else by its signature all the same, to be judged.
    """
    from mha_parity.targets.detect import computes_attention, recognise

    searched = inspect.isclass(subject) or is_function(subject)
    if path is not None or not searched:
        name = recognise(subject, libraries)
        return _in_its_library(convention_named(name), subject, libraries, path, call=True)
    found: list[Convention] = []
    refused: list[TargetError] = []
    try:
        name = recognise(subject, libraries)
        found.append(_in_its_library(convention_named(name), subject, libraries, path, call=True))
        if computes_attention(found[0]):
            return found[0]
    except TargetError as error:
        refused.append(error)
    fits, why = _fits(subject, libraries, path)
    if fits and fits[-1].fit.exact and not _leaves_out_heads(fits[-1], found):
        return fits[-1]
    answering = [each for each in found if accepts(each, each.plain_case()).offered]
    nearest = (*answering, *fits[::-1])[:1]
    if not nearest:
        raise (*refused, *why)[-1]
    if why and isinstance(nearest[0], LinearModule) and nearest[0].says_no_roles:
        raise why[-1]
    _refuse_without_counterpart(nearest[0])
    return nearest[0]


def _leaves_out_heads(fitted: Convention, found: list[Convention]) -> bool:
    """Return whether rows without heads alone fit, where arrays of heads are answered as well.

    What mixes samples or heads is right of a single one.
    """
    answers = (
        accepts(each, each.plain_case()).offered for each in found if each.convention == "sdpa"
    )
    return "many" not in fitted.offer["heads"] and any(answers)


def _refuse_without_counterpart(bound: Convention) -> None:
    """Refuse what departs from attention by what torch's layer cannot express.

    Raises
    ------
    TargetError
        A small call runs what is called after it; the sentence names that. Or it has no scores.

    """
    case = bound.plain_case().replace(head_dim=EVEN_HEAD_DIM)
    case = case.replace(dtype=bound.trial_dtype) if bound.trial_dtype else case
    try:
        problem = make_problem(case)
        call = bound.prepare(problem)
    except CandidateError:
        return  # the run says what it raised
    layer = call.function
    modules: Iterable[tuple[str, Any]] = getattr(layer, "named_modules", tuple)()
    # An identity stands where a LayerNorm was taken out.
    paths = {id(each): path for path, each in modules if type(each).__name__ != "Identity"}
    named = offenders(call.make, paths) or kept_offenders(
        layer, lambda: bound.answer(problem, call.make()).output
    )
    if named:
        raise TargetError(without_counterpart(bound.name, named))
    refuse_separate_kernels(bound)


def _fits(
    subject: object, libraries: list[Library], path: str | None
) -> tuple[list[Fitted], list[TargetError]]:
    """Return the subject as experiments fit it, the nearest last, and why it does not fit."""
    fits: list[Fitted] = []
    refused: list[TargetError] = []
    for library in libraries:
        try:
            fits.append(Fitted(subject, library=library, path=path))
        except TargetError as error:
            refused.append(error)
        if fits and fits[-1].fit.exact:
            break
    return sorted(fits, key=lambda each: (each.fit.exact, each.fit.correlation)), refused
