"""How a candidate behaves beside what it computes: each misdeed is a check of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.covering import case_index, draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.cases.rng import numpy_dtype
from mha_parity.catalogue import whole_offer
from mha_parity.checks.call_effects import (
    CHECKS,
    FURTHER,
    MonitoredCandidate,
    Schedule,
    written_inputs,
)
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.diagnose.call_effects import EXTRA_CHECKS
from mha_parity.diagnose.read_weights import plain_case
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.worker.client import isolated
from subject_checks import SUBJECTS, check_subject

CASES = 18
FEW = Options(cases=CASES, diagnose=False, shrink=False)


def failing(verdict: Verdict) -> set[str]:
    """Return the names of the checks that failed."""
    return {row.name for row in verdict.checks if row.failed}


# Subject -> the check that finds it, and what the failure says.
MISDEEDS = {
    "writes_inputs": ("inputs unchanged", "the call wrote into `query`"),
    "aliases": ("output aliasing", "the output is a view of `value`"),
    "views": ("output aliasing", "the output is a view of `"),
    "reuses_its_output": (
        "output aliasing",
        "a later call overwrites the output of an earlier one",
    ),
    "varies": ("determinism", "between two equal calls"),
    "counts_calls": ("determinism", "between two equal calls"),
    "remembers": ("statelessness", "when asked again"),
    "caches_by_shape": (
        "statelessness",
        "another problem of these shapes got the same",
    ),
    "assumes_contiguous_keys": ("memory layout", "and of contiguous arrays"),
    "changes_error_state": ("global state unchanged", "left np.seterr changed"),
    "changes_print_options": ("global state unchanged", "left np.set_printoptions changed"),
    "reseeds_python": ("global state unchanged", "the call seeds Python's global generator"),
    "reseeds_torch": ("global state unchanged", "the call seeds torch's global generator"),
    "leaves_autograd_off": ("global state unchanged", "left torch's autograd mode or default"),
    "reseeds": ("global state unchanged", "the call seeds NumPy's global generator"),
}
OF_LAYERS = {
    "DropsAlways": ("dropout off", "from a layer without dropout"),
    "KeepsFirstWeights": ("weights reloaded", "from a newly constructed layer"),
    "SavesTransposed": ("weights reloaded", "state_dict() has another `out_proj.weight` than was"),
    "CachesProjections": ("weights reloaded", "from a newly constructed layer"),
}
FORBIDDEN = {
    "asks_torch": ("forbidden modules", r"the call ran torch\."),
    "asks_torch_quietly": ("forbidden modules", r"ran torch\.from_numpy of torch"),
}


def found(verdict: Verdict, name: str) -> str:
    """Return what the first failure of a check says."""
    return next(f.check_result.detail for f in verdict.failures if f.check_result.check == name)


@pytest.mark.parametrize(("subject", "name", "said"), [(k, *v) for k, v in MISDEEDS.items()])
def test_a_misdeed_has_a_check_of_its_own(subject: str, name: str, said: str) -> None:
    """The check of that name fails, the failure says what was seen, and the verdict is fail."""
    verdict = check_subject(f"misbehaving.py:{subject}")
    assert name in failing(verdict)
    assert 1 == verdict.outcome.exit_status
    assert said in found(verdict, name)


def test_a_zero_of_the_other_sign_is_a_write() -> None:
    """0 equals -0, but the caller's array has other bits. Kills a comparison by values."""
    verdict = check_subject("misbehaving.py:flips_zeros", features=(("regime", "zeros"),))
    assert "inputs unchanged" in failing(verdict)
    assert "the call wrote into `" in found(verdict, "inputs unchanged")


def test_a_call_that_raises_leaves_nothing_to_the_next() -> None:
    """It left np.seterr changed for all later cases, which raised by its settings."""
    before = np.geterr()
    raised = {
        name: {f.case.id for f in check_subject(f"misbehaving.py:{name}", cases=40).failures}
        for name in ("raises_by_length", "raises_and_leaves_errors_raised")
    }
    assert 0 < len(raised["raises_by_length"]) < 40
    assert raised["raises_by_length"] == raised["raises_and_leaves_errors_raised"]
    assert before == np.geterr()


@pytest.mark.parametrize(("subject", "name", "said"), [(k, *v) for k, v in OF_LAYERS.items()])
def test_a_layer_s_misdeed_has_a_check_of_its_own(subject: str, name: str, said: str) -> None:
    """Layers are asked with other weights and in eval mode, too."""
    verdict = check_subject(f"misbehaving_layers.py:{subject}")
    assert name in failing(verdict)
    assert said in found(verdict, name)


def test_a_constructor_that_seeds_is_a_remark() -> None:
    """It is no call of the attention. Kills states that are compared behind both steps alone."""
    verdict = check_subject("misbehaving_layers.py:SeedsWhenBuilt")
    assert verdict.holds
    assert 1 == sum("The constructor seeds torch's" in note for note in verdict.notes)


@pytest.mark.parametrize(("subject", "name", "said"), [(k, *v) for k, v in FORBIDDEN.items()])
def test_a_forbidden_module_is_seen(subject: str, name: str, said: str) -> None:
    """Computing through torch fails where torch is forbidden, and there only."""
    verdict = check_subject(f"misbehaving.py:{subject}", forbid=("torch",))
    assert name in failing(verdict)
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(found(verdict, name))
    assert name not in failing(check_subject(f"misbehaving.py:{subject}"))


HARMLESS = (
    "plain", "talks", "warns", "draws", "sets_error_state_within", "remembers_scales", "catches",
    "uses_a_thread", "returns_a_view", "has_torch_at_hand",
)  # fmt: skip


@pytest.mark.parametrize("subject", HARMLESS)
def test_what_only_looks_like_a_misdeed_passes(subject: str) -> None:
    """No check is a false alarm, and none of them changes an answer."""
    verdict = check_subject(f"behaving.py:{subject}", forbid=("torch",))
    assert (set(), 0) == (failing(verdict), verdict.failed)


@pytest.mark.parametrize("text", ["keep_mask.py:Stacked", "like_torch.py:Attention"])
def test_layers_that_behave_pass(text: str) -> None:
    """Layers in eval mode, and with weights loaded anew, answer as those made anew do."""
    assert 0 == check_subject(text).failed


def test_notes_travel_from_the_candidate_s_process() -> None:
    """The same checks are made where the candidate runs in a process of its own."""
    with isolated(f"{SUBJECTS}/misbehaving.py:writes_inputs") as candidate:
        verdict = check(candidate, FEW)
    assert "inputs unchanged" in failing(verdict)


def test_every_check_has_a_candidate_that_fails_it() -> None:
    """Each check fails for at least one candidate.

    Further calls that die are seen in a process of its own: ``tests/worker``. What is asked on
    problems other than the cases has tests of its own.
    """
    proved = {name for name, _ in (MISDEEDS | OF_LAYERS | FORBIDDEN).values()}
    assert set(CHECKS) == proved | {FURTHER} | EXTRA_CHECKS


def test_what_held_has_a_row() -> None:
    """A reader sees in how many cases conduct was watched, and what was asked of some alone."""
    rows = {
        row.name: row.cases for row in check_subject("behaving.py:plain", forbid=("torch",)).checks
    }
    always = ("inputs unchanged", "output aliasing", "global state unchanged", "forbidden modules")
    assert [CASES] * 4 == [rows[name] for name in always]
    assert 0 < rows["determinism"] == rows["statelessness"] < CASES
    assert "weights reloaded" not in rows  # a function has none


def test_state_is_put_back_for_the_next_case() -> None:
    """A candidate's changed error state ends with its call, whatever was asked beside the case."""
    before = np.geterr(), np.get_printoptions()
    for name in ("changes_error_state", "changes_print_options"):
        candidate = MonitoredCandidate(bind(load.load(f"{SUBJECTS}/misbehaving.py:{name}")))
        for case in draw_cases(candidate.offer, 6, 0):
            candidate(make_problem(case))
            assert before == (np.geterr(), np.get_printoptions())


def test_whose_turn_it_is_follows_from_the_place_in_the_run() -> None:
    """Cases 0 to 3, then every tenth, have a number of their own each, whatever the seed.

    A case at whose place a failure is found is so asked again when it is replayed alone.
    """
    for seed in (0, 7):
        cases = draw_cases(whole_offer(), 40, seed)
        assert [*range(40)] == [case_index(case) for case in cases]
        assert [1, 2, 3, 4, *[0] * 6, 5, *[0] * 9, 6] == [
            Schedule(first=4, every=10).number(case) for case in cases[:21]
        ]


def test_a_related_problem_is_no_second_case() -> None:
    """What a relation makes of a case is answered, and asked nothing more."""
    candidate = MonitoredCandidate(bind(load.load(f"{SUBJECTS}/behaving.py:plain")))
    plain = candidate.offer | {"regime": ("normal",), "size": ("small",)}
    problem = make_problem(draw_cases(plain, 1, 0)[0])
    first, related, again = (candidate(problem).held for _ in range(3))
    assert "determinism" in first
    assert "determinism" not in related
    assert first == again


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_answers_without_a_number_show_no_state(dtype: str) -> None:
    """Two problems of one shape whose answers are NaN throughout: nothing is remembered.

    Kills the NaN of bfloat16, which ``nan_to_num`` leaves as they are.
    """
    bound = bind(load.load(f"{SUBJECTS}/behaving.py:plain"))
    case = plain_case(bound.offer).replace(seed=0)  # the first of a run: its call is repeated
    shape = make_problem(case).output_shape
    nan = np.full(shape, np.nan).astype(numpy_dtype(dtype))
    bound.answer = lambda *_: Answer(output=nan)  # type: ignore[method-assign]  # of this one object
    assert "statelessness" in MonitoredCandidate(bound)(make_problem(case)).held


def test_equal_answers_to_unlike_problems_may_be_right() -> None:
    """Padding hides all keys but the appended row of zeros, so that any inputs have one answer.

    One that answers the earlier call again is still found: ``remembers`` above.
    """
    words = "mha-N1-L2-S2-H1-D1-bias-zeroattn-outproj-floatpadding-float64-s0"
    answer = MonitoredCandidate(bind(load.load("mha_numpy:MultiheadAttention")))(
        make_problem(parse(words))
    )
    assert "statelessness" in answer.held
    assert () == answer.notes


@pytest.mark.parametrize("step", [-1, 1])
def test_a_write_is_seen_whichever_way_it_moves(step: int) -> None:
    """Kills an order of bytes in the place of equality, which sees larger ones alone."""
    before = np.zeros(3)
    call: Any = SimpleNamespace(given=[("query", before.copy()), ("key", before + step)])
    (finding,) = written_inputs(call, [before, before])
    assert "wrote into `key`" in finding
    (finding,) = written_inputs(call, [before + step, before + step])
    assert "wrote into `query`" in finding
    assert [] == list(written_inputs(call, [before, before + step]))
