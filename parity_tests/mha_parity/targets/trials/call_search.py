"""The search for how a target is meant: small problems asked of each interpretation."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import Answer, TargetError
from mha_parity.core.compare import as_float64
from mha_parity.core.features import ODD_HEADS
from mha_parity.targets.convention_base.convention import NEARLY_KEYS
from mha_parity.targets.convention_base.optional_arguments import without_unread_pair
from mha_parity.targets.interpretations.identity_rotations import NOTHING_TURNED, ODD_WIDTH
from mha_parity.targets.interpretations.roles import INVERSE, is_one_by_default
from mha_parity.targets.interpretations.try_interpretations import (
    FOREIGN_ARRAY,
    MIN_CORRELATION,
    NOTHING,
    InterpretationResult,
    Search,
    trial_problem,
)
from mha_parity.targets.static.documented_layout import names_plane
from mha_parity.targets.trials.block_local import OWN_BLOCK, with_whole_blocks
from mha_parity.targets.trials.companion_calls import CallsBeside
from mha_parity.targets.trials.function_candidates import function_interpretations
from mha_parity.targets.trials.heads_alike import with_documented_heads
from mha_parity.targets.trials.layer_candidates import Layers
from mha_parity.targets.trials.modified_scores import bends_scores
from mha_parity.targets.trials.one_documented_shape import OF_ONE_SHAPE, is_of_one_shape
from mha_parity.targets.trials.refinements import (
    along_one_axis,
    with_channels_permuted,
    with_keys,
    with_lengths,
    with_optional,
    with_samples,
)
from mha_parity.targets.trials.refusals import (
    may_be_another,
    refuse_own_heads,
    why_refused,
)
from mha_parity.targets.trials.tile_multiples import refuse_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.problem import Problem
    from mha_parity.targets.interpretations.interpretation import Interpretation

ONE_BY_DEFAULT = "1 where it is left out; each call gets torch's, 1 / sqrt(D)"
DTYPES = ("float64", "float32")  # of the small problems, the second for what takes no other
HALF = ("float16", "bfloat16")  # for what raises in both


PLACE = re.compile(r" \[[^\[\]]*:\d+\]$")  # of what was raised
# Whatever names a dtype or the number of its bits, and an assertion that says nothing.
DTYPE_WORDS = re.compile(r"float|double|half|single|type|precision|bit|fp|16|32|64", re.IGNORECASE)


def may_speak_of_dtype(raised: str) -> bool:
    """Return whether a call that raised so may go through in another dtype."""
    kind, _, said = PLACE.sub("", raised).partition(": ")
    speaks = not said or "NotImplemented" in kind or DTYPE_WORDS.search(said) is not None
    return speaks and is_unexplained(raised)


def is_unexplained(raised: str) -> bool:
    """Return whether neither None nor an array of another library explains what a call raised."""
    return not (FOREIGN_ARRAY.search(raised) or NOTHING in raised)


class SearchedCalls(CallsBeside):
    """Calls by the interpretation that small problems show.

    ``layers`` are the ways to build a class, None of a function.
    """

    layers: Layers | None = None

    @property
    def small_dtype(self) -> str:
        """The dtype of small problems."""
        return self.trial_dtype or DTYPES[0]

    def search(self) -> InterpretationResult:
        """Return the interpretation that a target is judged by, and what it answered.

        Raises
        ------
        TargetError
            None computes attention, or comes near.

        """
        self.layers = Layers(self.subject, self.new) if isinstance(self.subject, type) else None
        trials: list[InterpretationResult] = []
        for dtype in self._searched_dtypes(trials):
            candidates = self.layers or function_interpretations(self.subject)
            search = Search(self.ask, dtype)
            best = search.run(candidates) if dtype in self.library.dtypes else None
            trials += search.trials
            if best is None:
                continue
            if self.layers is None:
                best = with_documented_heads(best, search, self.subject, self.name)
            best = along_one_axis(best, search, plane=names_plane(self.subject))
            best = with_samples(best, search)
            best = with_channels_permuted(best, self.subject, Search(self.ask, dtype))
            if self.layers is not None and not best.exact:
                self.layers.refuse_undecided(self.name)
            taken = self._is_taken(best)
            if not best.exact and (taken or may_be_another(best)):
                refuse_lengths(self.ask, self.name, trials, DTYPES[0], near=False)
                if self.layers is not None:
                    refuse_own_heads(self.ask, self.name, trials, dtype, self.layers)
            if taken:
                self.trial_dtype = dtype
                best = self._with_places(best, dtype)
                self._keep_numbers(best, Search(self.ask, dtype))
                self._keep_rotations(best)
                self._keep_scale(best)
                best = self._with_blocks(best, dtype)
                self._look_for_keys(best, search.trials)
                search = Search(self.ask, dtype)
                read = without_unread_pair(best.interpretation, self.ask, dtype)
                best = with_keys(replace(best, interpretation=read), self._named[1], search)
                return with_optional(
                    with_lengths(best, self._named[0], self.ask, dtype), self._named[1], search
                )
        refuse_lengths(self.ask, self.name, trials, DTYPES[0], near=True)
        nearest = max(trials, key=lambda each: round(each.correlation, 6), default=None)
        why = why_refused(self.name, self.layers, nearest, trials, self.subject)
        raise TargetError(why, nearest and nearest.interpretation)

    def one_shape(self) -> str:
        """Return why keys of other numbers than the queries are not asked, "" where they may be."""
        alone = is_of_one_shape(self.subject, self.how, self.ask, self.small_dtype)
        return OF_ONE_SHAPE if alone else ""

    def _keep_numbers(self, best: InterpretationResult, search: Search) -> None:
        """Leave the numbers of its module as they are where arrays have an axis of heads.

        A number of heads that are computed at a time may have a name of all of them.
        """
        if best.exact and best.interpretation.of_heads:
            self.keeps_numbers = True
            self.keeps_numbers = search.tried(best.interpretation).exact

    def _keep_rotations(self, best: InterpretationResult) -> None:
        """Keep that tables of positions turn nothing, and that heads of an odd width have none."""
        roles = best.interpretation.roles
        self.meanings |= {f"call.{name}": NOTHING_TURNED for name, _ in roles.rotations}
        if roles.turns_pairs:
            self.reasons[ODD_HEADS] = ODD_WIDTH

    def _keep_scale(self, best: InterpretationResult) -> None:
        """Say that a scale which is 1 by default gets torch's in each call."""
        unscaled = {p.name for p in self._named[1] if is_one_by_default(p)}
        given = best.interpretation.roles.sizes
        passed = (name for name, meaning in given if meaning == INVERSE and name in unscaled)
        self.meanings |= {f"call.{name}": ONE_BY_DEFAULT for name in passed}

    def _with_blocks(self, best: InterpretationResult, dtype: str) -> InterpretationResult:
        """Return the fit with blocks of all keys where rows see those of their own block alone."""
        how = with_whole_blocks(best.interpretation, self.ask, dtype)
        if how is not best.interpretation:
            self.meanings |= {f"call.{name}": OWN_BLOCK for name in how.roles.tiles}
        return replace(best, interpretation=how)

    def _with_places(self, best: InterpretationResult, dtype: str) -> InterpretationResult:
        """Return the fit with the places of the weights that a method of its own takes over.

        They are those in which the weights themselves, set there, make it compute attention.
        """
        of_module = hasattr(self.subject, "named_parameters")
        if self.layers is None or not (self.takes_torchs and of_module):
            return best
        self.uses_method = False
        found = Search(self.ask, dtype).run(self.layers)
        self.uses_method = True
        self.converts = found is None or not found.exact
        slots = best.interpretation.slots if found is None else found.interpretation.slots
        how = best.interpretation if self.converts else replace(best.interpretation, slots=slots)
        return replace(best, interpretation=how)

    def _look_for_keys(
        self, best: InterpretationResult, trials: Sequence[InterpretationResult]
    ) -> None:
        """Keep why an input that may be left out is not judged as the keys, if it nearly is them.

        Attention over these alone is right; a mistake may hide where they are passed. Of values
        with which calls raise, what they raise is kept.
        """
        how = best.interpretation
        alike = [
            each
            for each in trials
            if (each.interpretation.slots, each.interpretation.layout) == (how.slots, how.layout)
        ]
        by_rows = {rows: [each for each in alike if len(each.interpretation.roles.rows) == rows]
                   for rows in (2, 3)}  # fmt: skip
        if len(how.roles.rows) == 2 and by_rows[3] and by_rows[3][0].raised:
            self.reasons["inputs", "distinct"] = by_rows[3][0].missed
        correlation = max((each.correlation for each in by_rows[2]), default=0.0)
        if best.exact and len(how.roles.rows) == 1 and correlation >= MIN_CORRELATION:
            self.reasons["inputs", "cross"] = f"{NEARLY_KEYS} by {correlation:.2f}"

    def _searched_dtypes(self, trials: list[InterpretationResult]) -> Iterator[str]:
        """Yield the dtypes of small problems: another where a call raised that may serve it."""
        for dtype in (*DTYPES, *HALF):
            if dtype in HALF and not all(each.raised for each in trials):
                return
            yield dtype
            raised = [each.missed for each in trials if each.raised]
            # Where every call in float64 raised, float32 is tried whatever they say.
            first = dtype == DTYPES[0] and len(raised) == len(trials)
            if trials and not any(map(is_unexplained if first else may_speak_of_dtype, raised)):
                return

    def _is_taken(self, trial: InterpretationResult) -> bool:
        """Return whether a target is judged by its best interpretation.

        It computes attention; or the names of its weights leave nothing open, or it has none and
        comes near; and it has nothing without a counterpart, which may be neutral as it is built.
        """
        how = trial.interpretation
        turned = dict(how.roles.rotations)
        if self.layers is not None and any(each not in turned for each in self.layers.offenders):
            return False
        if trial.exact or how.around:
            return trial.exact
        if how.unnamed:
            return may_be_another(trial) and self._bends_scores(how)
        if how.may_be_one_query and self.layers is not None:
            return not Search(self.ask, self.small_dtype).tried_with(how, "cross").raised
        named = frozenset("qkv") <= how.parts and how.is_usual
        return trial.correlation >= (-1.0 if named else MIN_CORRELATION)

    def _bends_scores(self, how: Interpretation) -> bool:
        """Return whether an interpretation is attention but for a function of its scores."""
        inputs = ("self", "cross", "distinct")[len(how.roles.rows) - 1]
        problem = trial_problem(how, inputs, self.small_dtype)
        return bends_scores(lambda other: self.ask(how, other).output, problem)

    def ask(self, how: Interpretation, problem: Problem) -> Answer:
        """Return the answer to a problem that is asked by an interpretation."""
        self.how = how
        result = self.prepare(problem).make()
        if self.layers is not None:
            self.layers.answered = True
        answer = self.answer(problem, result)
        if self.layers is not None and np.isnan(as_float64(answer.output)).all():
            self.layers.answered = False  # of a mask that hides all: others are tried, too
        return answer
