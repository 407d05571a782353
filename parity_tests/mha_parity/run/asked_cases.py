"""Features and cases that a run asks of a candidate by its options, and what its judge demands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mha_parity.cases.case_order import asked_cases
from mha_parity.cases.covering import drawn_cases, reachable
from mha_parity.cases.sizes import FULL_LIMIT, judging_microseconds
from mha_parity.core.candidate import NOT_ASKED, CandidateError, ask
from mha_parity.core.errors import UsageError
from mha_parity.core.features import has_one_kv_head
from mha_parity.core.padded_queries import marks_positions
from mha_parity.core.target_facts import takes_even_heads, takes_one_length
from mha_parity.judging.output import JudgeSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.options import Options
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.mask_plan import MaskPlan

SIZES_JUDGED = ("batch", "queries", "keys", "heads_count", "head_dim")
NO_GRADIENTS = (
    "got --grad, but the target offers no gradients: it should compute with torch's tensors, or be "
    "a layer with `vjp` or `backward`; leave --grad out, or give it one of these."
)


class NarrowedCandidate:
    """A candidate that offers less than it could: follow-up cases stay within the options."""

    def __init__(self, candidate: Candidate, offer: Offer) -> None:
        self._candidate = candidate
        self.name = candidate.name
        self.convention = candidate.convention
        self.offer = offer
        self.facts, self.masks = candidate.facts, candidate.masks

    def __call__(self, problem: Problem) -> Answer:
        """Return the candidate's answer."""
        return self._candidate(problem)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._candidate, name)


class OwnWeightsAlone(NarrowedCandidate):
    """A layer that is built already, asked with its own weights alone: others measure its class."""

    def __call__(self, problem: Problem) -> Answer:
        """Return the layer's answer.

        Raises
        ------
        CandidateError
            The problem has other weights.

        """
        own = self.facts.own_weights
        if own is None or not own.are_of(problem):
            raise CandidateError("inconclusive", f"{NOT_ASKED}: it has weights of its own")
        return super().__call__(problem)

    def many(self, problems: Iterable[Problem]) -> Iterator[Answer | CandidateError]:
        """Yield the layer's answers, or what came instead."""
        for problem in problems:
            try:
                yield self(problem)
            except CandidateError as error:
                yield error


class SingleCalls(NarrowedCandidate):
    """A candidate asked for what is drawn and not judged: no check makes further calls of it."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate, candidate.offer)

    def __call__(self, problem: Problem) -> Answer:
        """Return the candidate's answer, by one call."""
        return super().__call__(problem.replace(single_call=True))

    def many(self, problems: Iterable[Problem]) -> Iterator[Answer | CandidateError]:
        """Yield the candidate's answers, by one call each."""
        yield from ask(self._candidate, [each.replace(single_call=True) for each in problems])


def settings_of(options: Options, candidate: Candidate) -> JudgeSettings:
    """Return what the judge needs to know of the options, and of the target."""
    promised = candidate.facts.zero_rows and options.fully_masked is None
    return JudgeSettings(
        fully_masked="zero" if promised else options.fully_masked,
        promised=promised,
        strict_padding=options.strict_padding,
        one_length=marks_positions(candidate),
        mask_gradients=not candidate.facts.without_mask_gradients,
        max_times_torch=options.max_times_torch,
        bounds=options.draw,
    )


def narrowed_candidate(candidate: Candidate, offer: Offer, options: Options) -> NarrowedCandidate:
    """Return the candidate for shrinking, diagnosis and pictures, with the offer of the run.

    With ``--grad`` a follow-up case may do without gradients: its output is judged in any case.
    """
    gradients = candidate.offer["gradients"] if options.grad else offer["gradients"]
    narrowed = NarrowedCandidate(candidate, {**offer, "gradients": gradients})
    narrowed.facts = replace(candidate.facts, padding_left_out=not options.strict_padding)
    return narrowed


def with_own_backward(candidate: Candidate, options: Options) -> Options:
    """Return the options with gradients, where the target decides them by itself."""
    named = {axis for axis, _ in options.features}
    own = candidate.facts.own_backward and "yes" in candidate.offer["gradients"]
    return replace(options, grad=True) if own and "gradients" not in named else options


def restricted_offer(candidate: Candidate, options: Options) -> Offer:
    """Return the candidate's offer narrowed to the dtypes and features that the options name.

    Gradients are asked of all cases or of none. A dtype that is answered in a narrower one is not
    offered, and is asked for all the same where the options name it.

    Raises
    ------
    UsageError
        The candidate does not offer what was named, or no case has all of it.

    """
    reasons = candidate.facts.reasons
    offer = dict(candidate.offer)
    plan: MaskPlan | None = candidate.masks
    if options.grad and plan is not None:
        offer |= plan.with_gradients
    if options.grad and "yes" not in offer["gradients"]:
        said = reasons.get(("gradients", "yes"), "")
        raise UsageError(f"{NO_GRADIENTS} Asked for some: {said}" if said else NO_GRADIENTS)
    wanted = [("gradients", "yes" if options.grad else "no"), *options.features]
    wanted += [("dtype", dtype) for dtype in options.dtypes]
    possible = offer | {"dtype": (*offer["dtype"], *candidate.facts.answer_dtypes)}
    for axis in dict(wanted):
        values = tuple(value for a, value in wanted if a == axis)
        missing = [value for value in values if value not in possible[axis]]
        if missing:
            offered = " or ".join(f"{axis}={value}" for value in offer[axis])
            said = reasons.get((axis, missing[0]), "")
            why = f" ({said})" if said else ""
            raise UsageError(
                f"{axis}={missing[0]} was asked for, but the target offers only {offered}{why}."
            )
        offer[axis] = values
    reached = reachable(offer)
    if not all(reached.values()):
        asked = " and ".join(f"{axis}={value}" for axis, value in options.features)
        if len(options.features) == 1:
            raise UsageError(
                f"got {asked}, but no case of this target can have it beside all else that the "
                "target wants; leave it out."
            )
        raise UsageError(
            f"got {asked}, but no case of this target has them together; ask for each in a run of "
            "its own."
        )
    return reached


def asked_without_options(candidate: Candidate, options: Options) -> Offer | None:
    """Return what a run asks where no option names features; None where none does."""
    return reachable(candidate.offer) if options.features or options.dtypes else None


def cases_for(candidate: Candidate, offer: Offer, options: Options) -> Iterator[Case]:
    """Yield the cases that a candidate is asked; a layer that is built already, in its sizes.

    Telling cases come first where the first failure ends the run.
    """
    own = candidate.facts.own_weights
    draw = asked_cases if options.fail_fast else drawn_cases
    drawn = draw(offer, options.cases, options.seed)
    fitting: Iterable[Case] = drawn
    if own is not None:
        fitting = (_shortened(own.case(case)) for case in drawn)
    if own is None and has_one_kv_head(candidate.offer):
        fitting = (case.replace(kv_heads_count=1) for case in fitting)
    if takes_one_length(candidate.facts.reasons):
        fitting = (each if each.queries == each.keys else _squared(each) for each in fitting)
    if takes_even_heads(candidate.facts.reasons):
        fitting = map(_with_even_heads, fitting)
    if longest := candidate.facts.longest:
        fitting = (_cut(each, longest) for each in fitting)
    plan: MaskPlan | None = candidate.masks
    yield from fitting if plan is None else _askable(fitting, plan)


def _askable(cases: Iterable[Case], plan: MaskPlan) -> Iterator[Case]:
    """Yield the cases, of as many keys as queries or of one sample where masks can be said so."""
    one_sample: dict[tuple[str, ...], bool] = {}
    square: dict[tuple[str, ...], bool] = {}
    separate: dict[tuple[str, ...], bool] = {}
    for drawn in cases:
        # With both masks the rule may be refused by the other one: asked again with what is left.
        case = _of_self(_with_one_mask(_of_self(drawn, plan), plan, separate), plan)
        if case.padding == case.attn == "none":
            yield case
            continue
        kinds = _kinds(case)
        if case.batch > 1 and kinds not in one_sample:
            one_sample[kinds] = plan.only_one_sample(case)
        # Where another mask says the lengths of several samples, one number says every other one.
        lengths = (case.padding, case.masked_rows) == ("lengths", "none")
        other = plan.numbers_samples and lengths and case.seed % 2 == 0
        single = case.batch > 1 and (other or one_sample[kinds])
        asked = case.replace(batch=1) if single else case
        if case.queries != case.keys and kinds not in square:
            square[kinds] = plan.only_square(asked)
        yield _squared(asked) if case.queries != case.keys and square[kinds] else asked


def _of_self(case: Case, plan: MaskPlan) -> Case:
    """Return a case as one of self-attention where its causal rule is refused elsewhere."""
    if not plan.only_of_self(case):
        return case
    return case.replace(inputs="self", keys=case.queries)


def _kinds(case: Case) -> tuple[str, ...]:
    """Return all that how a case's masks can be said depends on, but for its sizes."""
    return case.layout, case.inputs, case.padding, case.attn, case.masked_rows, case.dtype


def _with_one_mask(case: Case, plan: MaskPlan, separate: dict[tuple[str, ...], bool]) -> Case:
    """Return a case with its padding or its other mask alone, where both cannot be said together.

    ``separate`` keeps of which kinds that is so. Where the target hides the future by itself there
    is no other mask to be left out.
    """
    if "none" in {case.padding, case.attn} or plan.causal_inside:
        return case
    kinds = _kinds(case)
    if kinds not in separate:
        separate[kinds] = plan.only_separate(case)
    if not separate[kinds]:
        return case
    return case.replace(**{("padding", "attn")[case.seed % 2]: "none"})


def _squared(case: Case) -> Case:
    """Return a case with as many keys as queries: as many as its queries, if that costs no more.

    2,049 queries of 9 keys would become the square of 2,049, the time of a whole run.
    """
    whole = case.replace(keys=case.queries)
    if _cost(whole) <= FULL_LIMIT:
        return whole
    length = min(case.queries, case.keys)
    return case.replace(queries=length, keys=length)


def _cut(case: Case, longest: int) -> Case:
    """Return a case with gradients of no more rows and keys than these."""
    if case.gradients == "no":
        return case
    return case.replace(queries=min(case.queries, longest), keys=min(case.keys, longest))


def _shortened(case: Case) -> Case:
    """Return a case of a layer's own sizes in as many samples and rows as it can be judged in.

    Lengths are drawn for heads of all widths, the longest for few and narrow ones.
    """
    while _cost(case) > FULL_LIMIT and max(case.batch, case.queries, case.keys) > 1:
        if case.batch > 1:
            case = case.replace(batch=1)
        else:
            longest = max(case.queries, case.keys) - 1
            queries, keys = (min(n, max(longest * 3 // 4, 1)) for n in (case.queries, case.keys))
            case = case.replace(queries=queries, keys=keys)
    return case


def _cost(case: Case) -> float:
    """Return about how many microseconds judging a case takes."""
    sizes = {name: getattr(case, name) for name in SIZES_JUDGED}
    return judging_microseconds(sizes, case.features())


def _with_even_heads(case: Case) -> Case:
    """Return a case with heads of an even width, and as many of them where these are equal."""
    if case.head_dim % 2 == 0:
        return case
    width = case.head_dim + 1
    width += 2 * (width == case.v_head_dim)
    square = case.heads_count == case.head_dim and not case.kv_heads_count
    return case.replace(head_dim=width, heads_count=width if square else case.heads_count)
