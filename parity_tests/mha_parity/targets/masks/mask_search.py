"""The search for what each mask parameter takes: every shape and kind of values, one call each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import NO_ANSWER, Role
from mha_parity.targets.calls.mask_format import (
    ADDED,
    FEW_SHAPES,
    KEYS_FIRST,
    LENGTH_SHAPES,
    LENGTHS,
    SAMPLES_LAST,
    SHAPES,
    SINGLE_SHAPES,
    SWITCH,
    THREE_AXES,
    TORCH_HEADS,
    VALUES,
    MaskContent,
    MaskFormat,
    MaskObject,
    MaskSearchResult,
    length_shapes,
    of_one_meaning,
    passed_text,
)
from mha_parity.targets.masks.demanded_meaning import MaskRequirement
from mha_parity.targets.masks.hidden_keys import SILENT, cosine, effect_ratio, log_ratio
from mha_parity.targets.masks.query_masks import DROPS_QUERIES, QUERIES, with_rows_of_queries
from mha_parity.targets.masks.usable_shapes import (
    of_all_lengths,
    of_other_sizes,
    serves_unequal,
    undisturbed,
    with_raising_documented,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.parameters import Parameter
    from mha_parity.targets.calls.mask_format import Axes
    from mha_parity.targets.masks.hidden_keys import MaskExperiment

MIN_COSINE = 0.4  # of a meaning that is taken as the nearest; unrelated ones stay below 0.3
EXACT = 0.97  # the cosine of a meaning that fits but for the clipping of logarithms
STEEP = 1.5  # what an addend's unit adds to a logarithm at most; a threshold or a factor adds more
DISTINCT = 0.05  # by how much the cosine of one alignment passes that of the other
STRONG = 5.0  # what a hidden key loses in logarithms at least, where nothing else says it is hidden
# What reading an attribute raises that an array does not have, and how many of them are tried.
_ATTRIBUTE = re.compile(r"AttributeError: \S+ object has no attribute '([A-Za-z]\w*)'")
MAX_ATTRIBUTES = 4
_AMBIGUOUS = re.compile("(truth|Boolean) value of .* ambiguous")
WEAK = 1.5  # a 1 that changes a logarithm by less than this, next to an addend's effect, is added


def search(
    experiments: tuple[MaskExperiment, ...], parameter: Parameter, asked: MaskRequirement
) -> MaskSearchResult:
    """Return what a parameter takes; a later experiment is made where an earlier shows nothing."""
    found, raised = MaskSearchResult(parameter, reason=f"`{parameter.name}` was not tried"), False
    for experiment in experiments:
        tried = _Search(experiment, parameter, asked)
        found = tried.found()
        if not found.taken and tried.raised and asked.keys_first:
            found = _keys_first(experiment, found, asked)
        if asked.hides is None and all(each.fit < EXACT for each in found.taken):
            found = with_rows_of_queries(experiment, found)
        if found.taken:
            found = _settled_on_one_head(experiment, found, asked)
            square = raised and not serves_unequal(experiment, found)
            taken = tuple(replace(t, square=square) for t in found.taken)
            found = undisturbed(experiment, replace(found, taken=taken), asked.shapes)
            if not found.replaces_causal:
                kept = (t for t in taken if t in found.taken or t.axes in asked.documented)
                found = replace(found, taken=tuple(kept))
            found = of_other_sizes(experiment, found, asked.promised)
            found = of_all_lengths(experiment, found, asked.promised)
            return with_raising_documented(experiments[-1], found, asked.demanded)
        raised = bool(tried.raised)
    return found


def _keys_first(
    experiment: MaskExperiment, found: MaskSearchResult, asked: MaskRequirement
) -> MaskSearchResult:
    """Return what is taken exactly with the keys before the queries, where L is unlike S."""
    if len({*experiment.shape[2:]}) == 1:
        return found
    tried = (_Search(experiment, found.parameter, replace(asked, only=a)) for a in KEYS_FIRST)
    taken = tuple(t for each in tried for t in each.found().taken if t.fit >= EXACT)
    return replace(found, taken=taken, reason="") if taken else found


def _settled_on_one_head(
    experiment: MaskExperiment, found: MaskSearchResult, asked: MaskRequirement
) -> MaskSearchResult:
    """Return what was found with what a True means to one head, where it is seen best.

    Where heads are split or merged wrongly, weights of several are a jumble, in which either
    meaning may come nearer.
    """
    marked = [each for each in found.taken if each.kind != ADDED]
    unsure = asked.hides is None and marked and all(each.fit < EXACT for each in marked)
    one_head = experiment.of_one_head() if unsure else None
    if one_head is None:
        return found
    best = [t for t in _Search(one_head, found.parameter, asked).found().taken if t.kind != ADDED]
    if not best or max(t.fit for t in best) < EXACT:
        return found
    hides = max(best, key=lambda each: each.fit).hides
    taken = (t if t.kind == ADDED else replace(t, hides=hides) for t in found.taken)
    return replace(found, taken=tuple(taken))


class _Search:
    """The search for one parameter in one experiment."""

    def __init__(
        self, experiment: MaskExperiment, parameter: Parameter, asked: MaskRequirement
    ) -> None:
        self._experiment = experiment
        self._parameter = parameter
        self._asked = asked
        self.raised = ""  # by the last call that did
        self._passed: dict[str, list[Axes]] = {}
        self._answered: list[Axes] = []
        self._without_booleans: list[Axes] = []  # where booleans raised
        self._three_axes: Axes = ()
        self._attributes: tuple[str, ...] = ()

    def found(self) -> MaskSearchResult:
        """Return all that is taken, or why nothing is."""
        taken = self._taken()
        # What reads an attribute that no array has takes an object, one attribute after another.
        while not (taken or self._answered) and (missing := _ATTRIBUTE.search(self.raised)):
            if missing[1] in self._attributes or len(self._attributes) == MAX_ATTRIBUTES:
                break
            self._attributes = (*self._attributes, missing[1])
            if self._parameter.name not in self._experiment.convention.mask_meanings:
                self._asked = MaskRequirement()  # by its name torch's array is meant
            taken = self._taken()
        reason = "" if taken else self._reason()
        if self._drops_queries(taken):
            taken, reason = [], f"`{self._parameter.name}` {DROPS_QUERIES}"
        return MaskSearchResult(self._parameter, tuple(taken), reason, self._three_axes)

    def _taken(self) -> list[MaskFormat]:
        """Return all that is taken: of a switch, or of masks and lengths, the likelier first."""
        if self._parameter.role is Role.CAUSAL:
            return list(self._switches())
        ways = (self._masks, self._lengths)
        said: list[MaskFormat] = []  # by the documentation alone, and shown by no trial
        for way in ways[::-1] if self._parameter.role is Role.LENGTHS else ways:
            taken = [replace(t, attributes=self._attributes) for t in way()]
            if any(t.fit for t in taken) or (taken and self._asked.hides is not None):
                return taken
            said = said or taken
        asks = not self._answered and _AMBIGUOUS.search(self.raised)  # whether it is true: a switch
        return said or (list(self._switches()) if asks else [])

    def _drops_queries(self, taken: list[MaskFormat]) -> bool:
        """Whether it is called a mask of queries, and sets their rows of weights to 0.

        As a mask of keys, without the name, it is judged as one behind the softmax.
        """
        name = QUERIES.search(self._parameter.name.lower())
        if name is None or self._asked.hides is not None or any(t.fit >= EXACT for t in taken):
            return False
        dropped = np.zeros(self._experiment.shape, dtype=bool)
        dropped[:, :, ::2] = True
        for each in taken:
            value = replace(each, hides=True).value(
                MaskContent(dropped), self._experiment.problem.dtype
            )
            try:
                shown = self._experiment.weights({self._parameter.key: value})
            except CandidateError:
                continue
            plain = self._experiment.plain
            if any(np.allclose(shown, plain * kept, atol=SILENT) for kept in (dropped, ~dropped)):
                return True
        return False

    def _reason(self) -> str:
        name = self._parameter.name
        if self._answered:
            return f"`{name}` has no effect that a mask, lengths or a switch would have"
        return f"{NO_ANSWER} `{name}` as {passed_text(self._passed)}; the last {self.raised}"

    def _weights(self, value: Any, axes: Axes) -> Array | None:
        """Return the weights that the output shows with a value, None where the call raises."""
        kind = value.dtype.name if isinstance(value, np.ndarray) else repr(value)
        self._passed.setdefault(kind, []).append(axes)
        try:
            return self._experiment.weights(self._given(value))
        except CandidateError as error:
            self.raised = str(error)
            return None

    def _effect(self, value: Any, axes: Axes) -> Array | None:
        weights = self._weights(value, axes)
        return None if weights is None else self._experiment.effect(weights)

    def _given(self, value: Any) -> dict[str, Any]:
        """Return what the parameter is passed: the array, or an object that holds it."""
        held = self._attributes and isinstance(value, np.ndarray)
        return {self._parameter.key: MaskObject(value, self._attributes) if held else value}

    def _kept(self, shown: Array) -> float:
        """Return 1 where rows of weights keep their sums when a mask is passed, less elsewhere."""
        change = shown.sum(axis=-1) - self._experiment.plain.sum(axis=-1)
        return float(np.clip(1 - np.abs(np.nan_to_num(change)).max(), 0, 1))

    def _switches(self) -> Iterator[MaskFormat]:
        """Try True and False: one of them takes the weight from keys behind the query."""
        length, keys = self._experiment.shape[2:]
        on = self._weights(True, ())
        off = None if on is None else self._weights(False, ())
        if on is None or off is None:
            return
        if self._parameter.default == "None" and all(map(self._experiment.departs, (on, off))):
            return  # a number: of `causal_offset=None`, 1 and 0 both hide keys
        self._answered.append(())
        change = log_ratio(on, off)
        change = change - change.mean(-1, keepdims=True)

        def fit(first: int) -> float:
            future = np.triu(np.ones((length, keys)), k=first)
            return cosine(change, future.mean(-1)[:, None] - future)

        fits, asked = (fit(1), fit(1 + keys - length)), self._asked.last
        by_trial = fits[1] > max(EXACT, fits[0] + DISTINCT)
        last = keys > length and (by_trial if asked is None else asked)
        best = fits[last] if asked is None else max(fits, key=abs)
        if abs(best) > MIN_COSINE:
            hides = best > 0 if self._asked.hides is None else self._asked.hides
            yield MaskFormat((), SWITCH, hides, abs(best), last=last)

    def _lengths(self) -> Iterator[MaskFormat]:
        """Try numbers of visible keys, per sample and per query.

        Of a mask that is causal whatever it holds, they are not the meaning: then they come near.
        """
        named = self._parameter.role is Role.LENGTHS
        least = MIN_COSINE if named else EXACT
        for axes in length_shapes(self._experiment.problem.case.layout) if named else LENGTH_SHAPES:
            counts = self._experiment.visible_counts(axes)
            hidden = np.arange(self._experiment.shape[-1]) >= counts[..., None]
            taken = MaskFormat(axes, LENGTHS)
            value = taken.value(MaskContent(hidden), self._experiment.problem.dtype)
            fit = self._fit(taken, value, -1.0 * hidden)
            if fit > least:
                yield MaskFormat(axes, LENGTHS, fit=fit)

    def _fit(self, taken: MaskFormat, value: Any, predicted: Array) -> float:
        effect = None if value is None else self._effect(value, taken.axes)
        if effect is None:
            return 0.0
        self._answered.append(taken.axes)
        return cosine(effect, self._experiment.centred(predicted))

    def _masks(self) -> Iterator[MaskFormat]:
        """Yield the masks that are taken: those that fit exactly, or else above ``MIN_COSINE``.

        Where one fits, a shape that only comes near is broadcast into another meaning: it is not
        asked for, unless it is torch's own. Those are asked for wherever a call takes booleans so,
        whatever they do there, unless it reads three axes as others than torch's.
        """
        shapes = (self._asked.only,) if self._asked.only else self._shapes()
        found = of_one_meaning([taken for axes in shapes for taken in self._of_shape(axes)])
        self._three_axes = next((t.axes for t in found if self._reads_heads_as(t)), ())
        read = (TORCH_HEADS,) if self._three_axes else ()
        demanded = [each for each in self._demanded(found) if each.axes not in read]
        if any(taken.fit >= EXACT for taken in found):
            own = {each.axes for each in demanded}
            found = [t for t in found if t.fit >= EXACT or t.axes in own]
        known = {t.axes for t in found}
        answered = {*self._answered}.difference(self._without_booleans, known)
        missing = [t for t in demanded if t.axes in answered]
        missing = [t for t in missing if not found or self._one_of_heads(t.axes)]
        yield from (*found, *missing, *self._documented(found, {t.axes for t in missing} | known))

    def _documented(self, found: list[MaskFormat], known: set[Axes]) -> list[MaskFormat]:
        """Return the documented shapes that a call takes, though other shapes alone fit."""
        shapes = [s for s in self._asked.documented if s in self._answered and s not in known]
        marks = [e for e in found if self._asked.documents_added or e.kind != ADDED][:1]
        return [replace(first, axes=axes, fit=0.0) for first in marks for axes in shapes]

    def _one_of_heads(self, axes: Axes) -> bool:
        """Whether a shape has an axis of heads that no other axis is broadcast against."""
        return "NH" in axes and self._experiment.shape[1] > 1

    def _reads_heads_as(self, taken: MaskFormat) -> bool:
        """Whether a mask (N * H, L, S) is read as this shape of three axes, its rest not at all.

        So does a call that goes through samples, or heads, one by one. Where the rest has an effect
        the call distinguishes the two shapes, and torch's is demanded.
        """
        known = taken.axes in THREE_AXES and taken.fit >= EXACT and TORCH_HEADS in self._answered
        if not known or TORCH_HEADS not in self._asked.shapes:
            return False
        whole = replace(taken, axes=TORCH_HEADS).value(
            MaskContent(self._experiment.hidden(TORCH_HEADS)), self._experiment.problem.dtype
        )
        size = self._experiment.shape["NH".index(taken.axes[0])]
        effects = self._effect(whole, TORCH_HEADS), self._effect(whole[:size], taken.axes)
        if effects[0] is None or effects[1] is None:
            return False
        return bool(np.abs(effects[0] - effects[1]).max() < SILENT)

    def _shapes(self) -> tuple[Axes, ...]:
        if self._experiment.problem.case.layout == "unbatched":
            return SINGLE_SHAPES
        library = self._experiment.convention.library.name
        shapes = SHAPES if library in {"numpy", "torch"} else FEW_SHAPES
        last = self._experiment.problem.case.layout == "sequence_first" and not self._asked.certain
        return (*shapes, *SAMPLES_LAST) if last else shapes

    def _demanded(self, found: list[MaskFormat]) -> list[MaskFormat]:
        """Return the promised shapes of a mask that is ignored: the cases show that it is.

        Those of a documentation alone, where nothing has the effect of a mask.
        """
        asked = self._asked
        if asked.hides is None and (found or asked.said is None):
            return []
        promised = asked.documented if asked.hides is None else asked.promised
        return [MaskFormat(axes, "bool", bool(asked.said), 0.0) for axes in promised]

    def _of_shape(self, axes: Axes) -> list[MaskFormat]:
        """Return the kinds of values that are taken in one shape."""
        hidden, asked = self._experiment.hidden(axes), self._asked
        added, rate = self._added(axes)
        kinds = [] if added is None else [added]
        for kind in VALUES:
            # Numbers of 0 and 1 are for those who take nothing else: `~mask` of them is never 0,
            # and NumPy's products with int64 are float64. Documentation adds integers.
            by_booleans = any(each.kind == "bool" and each.fit >= EXACT for each in kinds)
            if by_booleans or (kind == "float" and kinds):
                break
            taken = MaskFormat(axes, kind)
            value = taken.value(MaskContent(hidden), self._experiment.problem.dtype)
            shown = None if value is None else self._weights(value, axes)
            if shown is None:
                self._without_booleans += [axes] if kind == "bool" else []
                continue
            self._answered.append(axes)
            effect = self._experiment.effect(shown)
            predicted = self._experiment.centred(-1.0 * hidden)
            fit, per_unit = cosine(effect, predicted), effect_ratio(effect, predicted)
            # What is added to the scores lifts them by a 1 too: that is no meaning of a True.
            if abs(-per_unit - (self._experiment.lift if added is None else rate)) < WEAK:
                continue
            hides = fit > 0 if asked.hides is None else asked.hides
            if abs(fit) <= MIN_COSINE or asked.added:
                continue
            kept = abs(fit) * self._kept(shown)
            # A factor of the weights, by a name that says nothing, is no mask of the scores.
            if not asked.certain or (kept >= EXACT and abs(per_unit) >= STRONG):
                opposite = hides is not (fit > 0) and kept >= EXACT
                kinds.append(MaskFormat(axes, kind, hides, kept, opposite=opposite))
        marked = any(each.kind != ADDED and each.fit >= EXACT for each in kinds)
        if added is not None and marked and asked.hides is None and not self._adds_zero(axes):
            kinds.remove(added)
        return kinds

    def _adds_zero(self, axes: Axes) -> bool:
        """Whether floats are added where some are 0 too: a mask of 1 to keep may hide by its 0."""
        added = self._experiment.addends(axes) * (np.arange(self._experiment.shape[-1]) % 2)
        content = MaskContent(np.zeros(added.shape, dtype=bool), added)
        value = MaskFormat(axes, ADDED).value(content, self._experiment.problem.dtype)
        effect = self._effect(value, axes)
        return effect is not None and cosine(effect, self._experiment.centred(added)) >= EXACT

    def _added(self, axes: Axes) -> tuple[MaskFormat | None, float]:
        """Return how floats are added, None where they are not, and how much of them."""
        added = self._experiment.addends(axes)
        nothing = np.zeros(added.shape, dtype=bool)
        value = MaskFormat(axes, ADDED).value(
            MaskContent(nothing, added), self._experiment.problem.dtype
        )
        effect = None if value is None else self._effect(value, axes)
        if effect is None:
            return None, 0.0
        self._answered.append(axes)
        predicted = self._experiment.centred(added)
        fit, rate = cosine(effect, predicted), effect_ratio(effect, predicted)
        # No addend is 0: where a 0 hides there is no effect, and none where all other numbers do.
        least = EXACT if self._asked.certain else MIN_COSINE
        is_added = fit > least and (rate < STEEP or self._asked.added)
        return (MaskFormat(axes, ADDED, fit=fit), rate) if is_added else (None, 0.0)
