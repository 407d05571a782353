"""How a target is called: as its signature shows if it computes attention so, or as trials show."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.targets import backends
from mha_parity.targets.adapters.adapted import Adapted
from mha_parity.targets.adapters.attention_call import is_adapter
from mha_parity.targets.backends.list_arrays import ListArrays
from mha_parity.targets.backends.own_tensors import own_tensors
from mha_parity.targets.convention_names import convention_named
from mha_parity.targets.conventions.functions import QKV, QKVHeads
from mha_parity.targets.conventions.sdpa import SDPA
from mha_parity.targets.features_offered.probe_features import accepts
from mha_parity.targets.interpretations.interpretation import OF_HEADS
from mha_parity.targets.loading.callables import is_function
from mha_parity.targets.static.code_syntax import reads_elements
from mha_parity.targets.static.companion_backward import backward_beside
from mha_parity.targets.static.documented_layout import documents_rows_alone
from mha_parity.targets.trials.fitted_target import Fitted
from mha_parity.targets.trials.heads_alike import UnlikeHeads, documented_heads
from mha_parity.targets.trials.torch_counterpart import refuse_without_counterpart

if TYPE_CHECKING:
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.convention_base.convention import Convention

DISTINCT = {"batch": 2, "heads_count": 3, "queries": 5, "keys": 7, "head_dim": 6}


def convention_of(
    subject: object,
    name: str | None,
    device: str,
    path: str | None,
    library: str | None,
    *,
    call: bool,
) -> Convention:
    """Return a subject by the convention ``name``, or by the one that is recognised.

    ``call`` says whether small calls may recognise it; ``library`` names the one it takes.

    Raises
    ------
    TargetError
        It cannot be recognised, or is not called on that device.

    """
    libraries = [backends.library(each, device) for each in backends.likely_libraries(subject)]
    if device != "cpu" and all(each.name == "numpy" for each in libraries):
        raise TargetError(
            f"got the device {device!r}, but the target takes NumPy's arrays, which lie on the "
            "CPU; leave --device out."
        )
    libraries += own_tensors(subject)
    libraries = [each for each in libraries if each.name == library] or libraries
    if name in {None, Adapted.name} and is_adapter(subject):
        return _adapted(subject, libraries, call=call)
    if name is None and call:
        return _bind_recognised(subject, libraries, path)
    if name is None:
        from mha_parity.targets.convention_by_signature import recognise

        name = recognise(subject, libraries, call=call)
    if name == Fitted.name:
        fits, refused = fits_of(subject, libraries, path)
        if not fits:
            raise refused[-1]
        return fits[-1]
    return in_its_library(convention_named(name), subject, libraries, path, call=call)


def _adapted(subject: object, libraries: list[Library], *, call: bool) -> Convention:
    """Return an adapter with arrays of the library that it computes with.

    That is the one that it, or else its file, names and whose arrays it answers by such; where it
    answers none, what it says of those is reported. TensorFlow's functions take NumPy's arrays.
    """
    named = backends.libraries_named(subject)
    libraries = sorted(
        libraries,
        key=lambda each: (
            each.name in {"keras", "tensorflow"}, each.name not in named, each.name == "numpy"
        ),
    )  # fmt: skip
    bound = [Adapted(subject, library=library) for library in libraries]
    if not call or len(bound) == 1:
        return bound[0]
    answering = [each for each in bound if accepts(each, each.trial_case()).offered]
    own = (each for each in answering if _answers_by_its_own(each))
    return next(own, (answering or bound)[0])


def _answers_by_its_own(bound: Convention) -> bool:
    """Return whether arrays of a library are answered by such, and none of another."""
    result = bound.prepare(make_problem(bound.trial_case())).make()
    return (backends.library_of(result) or "numpy") == bound.library.name


def _bind_recognised(subject: object, libraries: list[Library], path: str | None) -> Convention:
    """Return a subject as it is called; what answers NumPy's arrays by others, with those."""
    bound = _recognised(subject, libraries, path)
    if bound.library.name != "numpy" or len(libraries) == 1:
        return bound
    with suppress(CandidateError, TargetError):
        result = bound.prepare(make_problem(bound.trial_case())).make()
        own = [each for each in libraries if each.name == backends.library_of(result)]
        again = _recognised(bound.subject, own, None) if own else bound
        if accepts(again, again.trial_case()).offered:
            return again
    return bound


def _recognised(subject: object, libraries: list[Library], path: str | None) -> Convention:
    """Return the subject by the convention that its signature shows, if it computes attention so.

    Else as experiments show that it is meant; else by its signature all the same, to be judged.
    """
    from mha_parity.targets.convention_by_signature import computes_attention, recognise

    searched = inspect.isclass(subject) or is_function(subject)
    if path is not None or not searched:
        name = recognise(subject, libraries)
        return in_its_library(convention_named(name), subject, libraries, path, call=True)
    found: list[Convention] = []
    refused: list[TargetError] = []
    try:
        name = recognise(subject, libraries)
        found.append(in_its_library(convention_named(name), subject, libraries, path, call=True))
        computes = computes_attention(found[0])
    except TargetError as error:
        refused.append(error)
        computes = False
    if computes and backward_beside(subject) is None:  # that is called as experiments show alone
        return _with_heads(found[0], libraries, path)
    fits, why = fits_of(subject, libraries, path)
    if fits and fits[-1].fit.exact and not _leaves_out_heads(fits[-1], found):
        return fits[-1]
    answering = [each for each in found if accepts(each, each.trial_case()).offered]
    nearest = (*[each for each in answering if not _serves_more(fits, each)], *fits[::-1])[:1]
    if not nearest:
        raise (*refused, *why)[-1]
    refuse_without_counterpart(nearest[0])
    return nearest[0]


def in_its_library(
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
        bound.sort(key=lambda each: not accepts(each, each.trial_case()).offered)
    return bound[0]


def _with_heads(bound: Convention, libraries: list[Library], path: str | None) -> Convention:
    """Return a function of one head as one of arrays with an axis of heads, where it takes these.

    What it does with several heads is seen in such arrays alone.

    Raises
    ------
    UnlikeHeads
        It takes these, gives another answer than each of their heads alone, and documents neither.

    """
    if bound.convention != QKV.name:
        return bound
    fits, _ = fits_of(bound.subject, libraries, path)
    if fits and fits[-1].fit.exact and fits[-1].how.arrangement in OF_HEADS:
        return fits[-1]
    of_heads = SDPA(bound.subject, library=bound.library, path=path)
    if not accepts(of_heads, of_heads.plain_case().replace(inputs="cross", **DISTINCT)).offered:
        return bound
    if documented_heads(bound.subject) == "heads":
        return of_heads  # to be judged as it is documented
    if not documents_rows_alone(bound.subject):
        raise UnlikeHeads(bound.name)
    return fits[-1] if fits and fits[-1].fit.exact else bound


def _serves_more(fits: list[Fitted], other: Convention) -> bool:
    """Return whether the nearest fit has an axis of heads elsewhere, and takes S unlike L by that.

    With heads and rows exchanged torch's own order is answered where L = S alone. Functions that
    document arrays with heads are not judged by rows.
    """
    if fits and fits[-1].how.of_heads and documented_heads(other.subject):
        return other.convention in {QKV.name, QKVHeads.name}
    if not fits or other.convention != SDPA.name or fits[-1].how.arrangement not in OF_HEADS:
        return False
    fit, several = fits[-1], {"inputs": "cross", **DISTINCT}
    return (
        accepts(fit, fit.trial_case().replace(**several)).offered
        and not accepts(other, other.trial_case().replace(**several)).offered
    )


def _leaves_out_heads(fitted: Convention, found: list[Convention]) -> bool:
    """Return whether rows without heads alone fit, where arrays of heads are answered as well.

    What mixes samples or heads is right of a single one.
    """
    answers = (
        accepts(each, each.trial_case()).offered for each in found if each.convention == "sdpa"
    )
    return "many" not in fitted.offer["heads"] and any(answers)


def fits_of(
    subject: object, libraries: list[Library], path: str | None
) -> tuple[list[Fitted], list[TargetError]]:
    """Return the subject as experiments fit it, the nearest last, and why it does not fit.

    A function that NumPy's arrays do not fit may be one of Python's lists, and so may one that
    reads elements, whatever its module imports; if lists do not fit either, why the arrays do not
    is said.

    Raises
    ------
    UnlikeHeads
        It answers arrays with heads otherwise than each head alone.

    """
    fits: list[Fitted] = []
    refused: list[TargetError] = []
    of_numpy = [each.name for each in libraries] == ["numpy"]
    reads = is_function(subject) and reads_elements(subject)
    of_lists = [ListArrays()] if reads or (is_function(subject) and of_numpy) else []
    # Tensors that are read element by element take longer than any search may.
    tried = (*of_lists, *libraries) if reads and not of_numpy else (*libraries, *of_lists)
    for library in tried:
        try:
            fits.append(Fitted(subject, library=library, path=path))
        except UnlikeHeads:  # its answers were understood: no other reading is looked for
            raise
        except TargetError as error:
            refused.insert(0 if library in of_lists else len(refused), error)
        if fits and fits[-1].fit.exact:
            break
    return sorted(fits, key=lambda each: (each.fit.exact, each.fit.correlation)), refused
