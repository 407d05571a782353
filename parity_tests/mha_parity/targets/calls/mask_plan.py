"""From what a target's mask parameters take to the features it offers and to each case's masks."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.features import label
from mha_parity.targets.calls.mask_contents import hides_nothing, mask_contents, together
from mha_parity.targets.calls.mask_format import SWITCH, MaskArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.mask_format import MaskContent, MaskSearchResult

PADDING = ("bool", "float", "lengths")
SEEDS = 3  # problems tried of a feature: the masks of two samples may be equal by chance
ATTN = ("bool2d", "float2d", "bool3d", "float3d", "causal")


# By problem, the plan that was asked last for it, and what it passes.
_PASSED: WeakKeyDictionary[Problem, tuple[MaskPlan, dict[str, MaskArgument]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """Mask formats of the parameters by layout: layout -> a ``MaskSearchResult`` per parameter.

    ``causal_inside``: the target hides the future by itself, without any of them. ``exclusive`` are
    the keys of parameters that raise when they are passed together, ``enabling`` those of switches
    that are left on where their mask is passed: off, it would not be read. ``with_gradients`` is
    what is offered of masks where gradients are asked for, by axis, () where that is all.
    """

    by_layout: Mapping[str, tuple[MaskSearchResult, ...]]
    causal_inside: bool = False
    exclusive: tuple[tuple[str, ...], ...] = ()
    enabling: tuple[tuple[str, str], ...] = ()
    with_gradients: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def replaces_causal(self) -> bool:
        """Whether a mask that may be left out stands in the place of a rule of the target's own."""
        every = (each for found in self.by_layout.values() for each in found)
        return any(each.replaces_causal and not each.parameter.required for each in every)

    @property
    def of_positions(self) -> bool:
        """Whether masks of keys alone are taken where there are as many queries: they mark both."""
        every = (f for found in self.by_layout.values() for each in found for f in each.taken)
        of_keys = [taken for taken in every if "L" not in taken.axes]
        return bool(of_keys) and all(taken.square for taken in of_keys)

    def of_constructor(self) -> MaskPlan | None:
        """Return the plan of the constructor's switches alone; None where calls require a mask."""
        in_calls = [f for each in self.by_layout.values() for f in each if f.parameter.of == "call"]
        if any(found.parameter.required for found in in_calls):
            return None
        kept = {
            layout: tuple(each for each in found if each not in in_calls)
            for layout, found in self.by_layout.items()
        }
        return replace(self, by_layout=kept)

    def passes(self, problem: Problem) -> bool:
        """Return whether the masks of a problem can be passed."""
        return next(self._ways(problem), None) is not None

    def passed(self, problem: Problem) -> Mapping[str, MaskArgument]:
        """Return what to pass for a problem: key of the parameter -> array or switch.

        Constructor and call ask for it one by one, and repeated calls again.
        Where a mask's shape fits two readings by the sizes of the problem, such a mask is passed;
        where L and S differ, a switch rather than an array: few cases can show its rule there.
        Elsewhere a switch as often as an array, however many shapes of it are taken.

        Raises
        ------
        CandidateError
            The parameters cannot say what the problem masks.

        """
        known = _PASSED.get(problem)
        if known is None or known[0] is not self:
            known = _PASSED[problem] = self, self._chosen(problem)
        return known[1]

    def _chosen(self, problem: Problem) -> dict[str, MaskArgument]:
        ways = list(self._ways(problem))
        if not ways:
            raise CandidateError("inconclusive", self._why_not(problem))
        rng = random.Random(problem.case.seed)
        counts = sorted({*map(_arrays, ways)})
        if len(counts) > 1:
            is_square = problem.case.queries == problem.case.keys
            count = rng.choice(counts) if is_square else counts[0]
            ways = [way for way in ways if _arrays(way) == count]
        read_twice = [way for way in ways if _fits_two_readings(way, problem)]
        return rng.choice(read_twice or ways)

    @property
    def documented_raises(self) -> bool:
        """Whether a mask raises in a shape that its documentation has."""
        return any(each.raising for found in self.by_layout.values() for each in found)

    def with_raising_integers(self) -> MaskPlan:
        """Return the plan of the cases, which pass promised integers that raise too."""
        by_layout = {
            layout: tuple(each.with_raising_integers() for each in found)
            for layout, found in self.by_layout.items()
        }
        return replace(self, by_layout=by_layout)

    def array_parameters(self, problem: Problem) -> tuple[str, ...]:
        """Return the names of the parameters in which arrays are passed for a problem."""
        passed = self.passed(problem)
        arrays = {key for key, each in passed.items() if not isinstance(each.value, bool)}
        found = (each.parameter for each in next(iter(self.by_layout.values())))
        return tuple(each.name for each in found if each.key in arrays)

    def by_parameter(self, problem: Problem) -> dict[tuple[str, str], dict[str, MaskArgument]]:
        """Return a way of passing the masks of a problem for each parameter that may hold one.

        Each kind of its values ("b" booleans, "f" floats) has a way of its own.
        """
        found: dict[tuple[str, str], dict[str, MaskArgument]] = {}
        for way in self._ways(problem):
            for key, passed in way.items():
                found.setdefault((key, _kind(passed.value)), way)
        return found

    def only_one_sample(self, case: Case) -> bool:
        """Return whether the masks of a case can be said of one sample alone.

        Of a mask (L, S) beside a causal rule of the target's own, the padding is what can be said.
        """
        if case.layout == "unbatched" or not (self.numbers_samples or self.causal_inside):
            return False
        small = case.replace(queries=5, keys=5, head_dim=3)

        def said(batch: int) -> bool:  # of two samples lengths may be equal by chance
            drawn = (small.replace(batch=batch, seed=small.seed + i) for i in range(SEEDS))
            return all(self.passes(make_problem(each)) for each in drawn)

        return not said(2) and said(1)

    @property
    def unlike_as_integers(self) -> tuple[str, ...]:
        """The parameters that read a mask of 0 and 1 otherwise than the same one of booleans."""
        found = (f.parameter.name for each in self.by_layout.values() for f in each
                 if f.integers_unlike)  # fmt: skip
        return tuple(dict.fromkeys(found))

    @property
    def varies_with_inputs(self) -> bool:
        """Whether self-attention reads other masks than attention over further keys."""
        return any(f.inputs for each in self.by_layout.values() for f in each)

    @property
    def numbers_samples(self) -> bool:
        """Whether a parameter gets one number of visible keys for all samples."""
        found = (taken for each in self.by_layout.values() for f in each for taken in f.taken)
        return any(taken.of_one_sample for taken in found)

    @property
    def counts_from_last(self) -> bool:
        """Whether a causal switch aligns queries and keys at their ends."""
        return any(t.last for each in self.by_layout.values() for f in each for t in f.taken)

    def only_square(self, case: Case) -> bool:
        """Return whether the masks of a case can be passed at L = S alone."""
        small = case.replace(batch=min(case.batch, 2), queries=5, head_dim=3)
        other, square = (make_problem(small.replace(keys=keys)) for keys in (7, 5))
        return self.passes(square) and not self.passes(other)

    def _why_not(self, problem: Problem) -> str:
        """Say which parameters cannot say which masks of a problem."""
        if names := self._of_equal_lengths(problem):
            verb = "is" if len(names) == 1 else "are"
            return f"{', '.join(names)} {verb} taken at L = S alone"
        found = self.by_layout.get(problem.case.layout, ())
        known = [f"`{each.parameter.name}`" for each in found if each.taken]
        axes = {axis: getattr(problem.case, axis) for axis in ("padding", "attn")}
        masks = [label(axis, value) for axis, value in axes.items() if value != "none"]
        masks = masks or [label("masked_rows", problem.case.masked_rows)]
        return f"{' and '.join(known)} cannot say {' and '.join(masks)}"

    def _of_equal_lengths(self, problem: Problem) -> tuple[str, ...]:
        """Return the parameters that are taken at L = S alone, where L and S differ."""
        if problem.case.queries == problem.case.keys:
            return ()
        found = self.by_layout.get(problem.case.layout, ())
        square = (each for each in found if any(taken.only_square for taken in each.taken))
        return tuple(f"`{each.parameter.name}`" for each in square)

    def _ways(self, problem: Problem) -> Iterator[dict[str, MaskArgument]]:
        """Yield every way of passing the masks of a problem, each in one parameter or joined."""
        kind = "self" if problem.case.inputs == "self" else "cross"
        known = self.by_layout.get(problem.case.layout, ())
        found = [each for each in known if each.taken and each.inputs in {"", kind}]
        yield from self._ways_with(found, problem, causal_inside=self.causal_inside)
        others = [each for each in found if not each.replaces_causal]
        if len(others) < len(found) and problem.is_causal:
            yield from self._ways_with(others, problem, causal_inside=True)

    def _ways_with(
        self, found: list[MaskSearchResult], problem: Problem, *, causal_inside: bool
    ) -> Iterator[dict[str, MaskArgument]]:
        """Yield every way of passing the masks of a problem in some of the parameters."""
        parts = mask_contents(problem, causal_inside=causal_inside)
        named = {each.parameter.key: each for each in found}
        whole = list(together(parts))
        groups = [parts, whole] if whole else [parts]
        nothing = hides_nothing(problem)

        @cache
        def values_of(key: str, part: MaskContent) -> list[MaskArgument]:
            return _values(named[key], part, problem)

        for group in groups:
            for keys in itertools.permutations(named, len(group)):
                if any(set(pair) <= set(keys) for pair in (*self.exclusive, *self.enabling)):
                    continue
                pairs = zip(keys, group, strict=True)
                values = [values_of(key, part) for key, part in pairs]
                rest = [key for key in named if key not in keys]
                idle = {key: values_of(key, nothing) for key in rest if _is_needed(named[key])}
                if not all(values) or not all(idle.values()):
                    continue
                on = [(s, named[s].taken[0].hides) for s, m in self.enabling if m in keys]
                unread = {m for s, m in (*self.enabling, *self.exclusive) if s in keys}
                for chosen in itertools.product(*values):
                    quiet = {key: said[0] for key, said in idle.items() if key not in unread}
                    quiet |= {s: MaskArgument(hides) for s, hides in on if s in quiet}
                    yield dict(zip(keys, chosen, strict=True)) | quiet

    def offered(self, offer: Offer, plain: Case) -> Offer:
        """Return the offer with the masks that can be said in every layout.

        Where padding and another mask cannot be said together, cases have one of them.
        """
        attn: tuple[str, ...] = ("causal",)
        if not self.causal_inside:
            found = (value for value in ATTN if self._says_of_any(offer, plain.replace(attn=value)))
            attn = ("none", *found)
        alone = plain.replace(attn=attn[0])
        padding = (each for each in PADDING if self._says(offer, alone.replace(padding=each)))
        return offer | {"padding": ("none", *padding), "attn": attn}

    def _says_of_any(self, offer: Offer, case: Case) -> bool:
        """Return whether the masks of a case can be passed; the causal rule in self-attention."""
        alone = case.attn == "causal" and self.varies_with_inputs
        return self._says(offer, case) or (alone and self._says(offer, case, ("self",)))

    def only_of_self(self, case: Case) -> bool:
        """Return whether the causal rule of a case can be passed in self-attention alone."""
        if case.attn != "causal" or case.inputs == "self" or not self.varies_with_inputs:
            return False
        small = case.replace(batch=min(case.batch, 3), queries=5, keys=5, head_dim=3)
        return not self._says_seeds(small) and self._says_seeds(small.replace(inputs="self"))

    def only_separate(self, case: Case) -> bool:
        """Return whether the padding and the other mask of a case cannot be said together."""
        batch = 1 if case.layout == "unbatched" else 3
        return not self._says_seeds(case.replace(batch=batch, queries=5, keys=5, head_dim=3))

    def _says_seeds(self, case: Case) -> bool:
        """Return whether the masks of a case can be passed under its seed and those behind it.

        Under a single one padding may hide all that the causal rule does.
        """
        problems = (make_problem(case.replace(seed=case.seed + i)) for i in range(SEEDS))
        return all(map(self.passes, problems))

    def of_gradients(self, offer: Offer, plain: Case) -> MaskPlan:
        """Return the plan with what it offers where gradients are asked for, if that is less."""
        if not any(
            t.without_gradients for s in self.by_layout.values() for f in s for t in f.taken
        ):
            return self
        asked = plain.replace(gradients="yes")
        found = {n: self.offered(offer | {"layout": (n,)}, asked) for n in offer["layout"]}
        count = {name: (len(each["attn"]), len(each["padding"])) for name, each in found.items()}
        # A backward that sums over samples and heads knows no mask of a single sample.
        kept = tuple(name for name in found if count[name] == max(count.values()))
        whole = self.offered(offer | {"layout": kept}, asked)
        return replace(
            self, with_gradients=tuple((a, whole[a]) for a in ("layout", "attn", "padding"))
        )

    def _says(self, offer: Offer, case: Case, kinds: tuple[str, ...] = ()) -> bool:
        """Return whether every layout of the offer can pass the masks of a case."""
        kinds = kinds or (("self", "cross") if self.varies_with_inputs else (case.inputs,))
        for layout, inputs in itertools.product(offer["layout"], kinds):
            one = layout == "unbatched" or self.only_one_sample(case.replace(layout=layout))
            sizes = {"batch": 1 if one else 2, "layout": layout, "inputs": inputs}
            if not self._says_seeds(case.replace(**sizes, keys=case.queries)):
                return False
        return True


def _values(found: MaskSearchResult, part: MaskContent, problem: Problem) -> list[MaskArgument]:
    """Return the values that say a content, in every shape and kind that does.

    With gradients, in those that have the axes of the masks it stands for: what is the same in all
    samples, by chance, has a gradient for each of them.
    """
    whole = problem.case.gradients == "no"
    varying = set() if whole else _axes_of(part.masks, problem)
    taken_here = (
        taken
        for taken in found.taken
        if whole or (not taken.without_gradients and varying <= set("".join(taken.axes)))
    )
    values = ((taken, taken.value(part, problem.dtype)) for taken in taken_here)
    return [MaskArgument(v, taken.axes, part.masks) for taken, v in values if v is not None]


def _axes_of(masks: Iterable[str], problem: Problem) -> set[str]:
    """Return the axes longer than 1 of the masks of a problem, all those named."""
    attn = problem.attn_mask
    axes = {
        "key_padding_mask": "NS",
        "attn_mask": "LS" if attn is None or attn.ndim == 2 else "NHLS",
    }
    sizes = dict(zip("NHLS", problem.weights_shape, strict=True))
    return {axis for name in masks for axis in axes[name] if sizes[axis] > 1}


def _kind(value: object) -> str:
    """Return the kind of a mask's numbers; those of bfloat16 are floats, a switch has none."""
    kind = value.dtype.kind if isinstance(value, np.ndarray) else ""
    return {"V": "f", "u": "i"}.get(kind, kind)


def _arrays(way: Mapping[str, MaskArgument]) -> int:
    """Return how many parameters get more than a switch."""
    return sum(not isinstance(each.value, bool) for each in way.values())


def _fits_two_readings(way: Mapping[str, MaskArgument], problem: Problem) -> bool:
    """Return whether a first axis, by its length, may be another that masks of that rank begin by.

    Two axes begin by samples or by queries, three by samples or by heads.
    """
    samples, heads, queries, _ = problem.weights_shape
    alike = {(2, "N"): samples == queries, (2, "L"): samples == queries,
             (3, "N"): samples == heads, (3, "H"): samples == heads}  # fmt: skip
    return any(
        each.axes and alike.get((len(each.axes), each.axes[0]), False) for each in way.values()
    )


def _is_needed(found: MaskSearchResult) -> bool:
    """Whether the parameter is passed though nothing is to be hidden."""
    switch = any(taken.kind == SWITCH for taken in found.taken)
    return switch or found.parameter.required or found.replaces_causal
