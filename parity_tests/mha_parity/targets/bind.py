"""``bind`` makes a candidate of a subject: its calling convention, its array library, its offer."""

from __future__ import annotations

import inspect
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.global_state import GlobalState
from mha_parity.core.option_values import hint_of
from mha_parity.targets.calls.attention_weight_axes import documented_weights
from mha_parity.targets.calls.crash_report import crash
from mha_parity.targets.calls.error_origin import raised_by
from mha_parity.targets.convention_names import KNOWN, convention_named
from mha_parity.targets.features_offered.float32_targets import leave_out_float64
from mha_parity.targets.features_offered.probe_features import offer_unprobed, probe_offer
from mha_parity.targets.instances.fixed_sizes import asked_at_own_sizes, at_own_sizes
from mha_parity.targets.instances.instance import layer_of, narrow_offer, use_layer
from mha_parity.targets.instances.state_dict import give_weights
from mha_parity.targets.layers.removed_parts import Bypass
from mha_parity.targets.libraries.library_layers import as_layer
from mha_parity.targets.loading import skipped_statements
from mha_parity.targets.loading.callables import as_function, layer_inside
from mha_parity.targets.method_targets import BY_STEP, single_step, target_in
from mha_parity.targets.onnx.layer import OnnxLayer
from mha_parity.targets.onnx.model import OnnxModel
from mha_parity.targets.recognition import convention_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.targets.convention_base.convention import Convention

__all__ = ["KNOWN", "bind", "convention_named"]


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
    library: str | None = None,
) -> Convention:
    """Return ``subject`` as a candidate called by the convention ``name`` (None: recognised).

    ``path`` sends torch's own module along one of its paths. ``probe`` makes a few small calls to
    see what it offers; without it the signature alone decides. ``masks`` says what mask parameters
    mean, and those named in ``without`` are left alone, while parts of these names return what they
    are given. ``state_dict`` names a file of weights over all else, ``num_heads`` how many heads
    they have. ``library`` names the one whose arrays an earlier process found it to take.

    Raises
    ------
    TargetError
        The convention is unknown, or cannot be recognised; or looking at the subject raised.

    """
    state = GlobalState.now()
    try:
        if isinstance(subject, OnnxModel):
            subject.num_heads, num_heads = subject.find_num_heads(num_heads), None
        subject = as_layer(as_function(subject))
        compiled = layer_of(subject)
        layer = layer_inside(compiled)
        kind = subject if layer is None else type(layer)
        if step := single_step(kind):
            kind = target_in(kind, step)
        with Bypass(kind, without, layer) as bypass:
            recognise = partial(
                convention_of, kind, name=name, device=device, path=path, library=library,
                call=probe,
            )  # fmt: skip
            bound = at_own_sizes(kind, recognise)
            bound.name, bound.bypass = label or bound.name, bypass
            bound.mask_meanings, bound.without = dict(masks), tuple(without)
            bound.weights_axes = documented_weights(bound.subject)
            _check_names(bound)
            with asked_at_own_sizes(bound):
                _settle_offer(bound, probe=probe)
            if not probe and (layer is not None or state_dict is not None):
                bound.offer = bound.offer | {"dtype": bound.library.dtypes}  # the weights say which
            _take_weights(bound, compiled, state_dict, num_heads)
            if probe:  # else no call may have run a part
                bypass.require_taken_out()
        bound.passed = {}  # the trials were no cases
        said = skipped_statements.remark_on(bound.subject), BY_STEP.format(step) if step else ""
        bound.remarks = (*filter(None, said), *bound.remarks)
    except (TargetError, CandidateError):
        raise
    except Exception as error:
        if not raised_by(subject, error):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        should = "its attributes and its constructor should not raise"
        if frames[-1].name == "__getattr__":  # Python asks for names that no class has to have
            should = "its `__getattr__` should raise AttributeError for a name that it has not"
        raise TargetError(
            f"got the target {label or _name(subject)}, but looking at it {crash(error)}; {should}."
        ) from None
    else:
        return bound
    finally:
        state.restore()


def _settle_offer(bound: Convention, *, probe: bool) -> None:
    """Find what a target offers, by small calls or by its signature alone."""
    if probe:
        leave_out_float64(bound)
    if not bound.states_offer:
        (probe_offer if probe else offer_unprobed)(bound)


def _check_names(bound: Convention) -> None:
    """Refuse a name of ``--masks`` or ``--without`` that nothing has: it would do nothing.

    Raises
    ------
    TargetError
        There is none of that name; the sentence has the closest.

    """
    if not (bound.mask_meanings or bound.without):
        return
    known = [*dict.fromkeys(each.name for each in bound.facts.parameters)]
    for option, names in (("--masks", bound.mask_meanings), ("--without", bound.without)):
        for name in names:
            if name in known:
                continue
            others = f"it has {', '.join(known) or 'none'}; name one, or leave {option} out."
            hint = hint_of(name, known, others)
            part = " or part" if option == "--without" else ""
            raise TargetError(
                f"got {option} {name}, but {bound.name} has no parameter{part} of that name; {hint}"
            )


def _take_weights(
    bound: Convention, layer: Any, state_dict: str | None, num_heads: int | None
) -> None:
    """Give a convention the weights that it is judged with over all else, if there are any.

    Raises
    ------
    TargetError
        It takes lengths alone that are multiples of a number, or the weights are none of it.

    """
    own, given = bound.own_weights, layer is not None or state_dict is not None
    if given and own is not None and own.multiple:
        raise TargetError(
            f"got weights of {bound.name}, which takes lengths alone that are multiples of "
            f"{own.multiple} ({own.beyond}); judge its class without them."
        )
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
