"""Layers are asked for dropout, and each way of getting it wrong is a check of its own."""

from __future__ import annotations

import math

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue, whole_offer
from mha_parity.checks import dropout, rejected_inputs
from mha_parity.checks.call_effects import CHECKS
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.diagnose.call_effects import EXTRA_CHECKS, NAMES
from mha_parity.run.check import check
from mha_parity.selftest.mutant import run_mutants, suite_cases
from mha_parity.selftest.mutation_run import GRADIENT_CASES, controls
from mha_parity.worker.client import isolated
from subject_checks import check_subject

FEW = {"cases": 18, "diagnose": False, "shrink": False}
LAYER = Case(seed=3, batch=2, queries=5, keys=7, heads_count=3, head_dim=2)

# Subject -> the one check that fails, and what the failure says.
WRONG = {
    "dropping.py:keeps_size": ("dropout rescales", "kept weights are 1 of those"),
    "dropping.py:divides_by_p": ("dropout rescales", "kept weights are 4 of those"),
    "dropping.py:drops_logits": ("dropout after the softmax", "drop weights, and not logits"),
    "dropping.py:zeroes_logits": ("dropout after the softmax", "drop weights, and not logits"),
    "dropping.py:drops_output": ("dropout on the weights", "drop weights, and not elements"),
    "dropping.py:sharpens": (dropout.OTHER_WEIGHTS, "and by no common factor"),
    "dropping.py:keeps_p": ("dropout rate", "weights are dropped, but 0.25 is the dropout"),
    "dropping.py:divides_by_zero": ("dropout of everything", "the output is NaN"),
    "dropping.py:shows_clean": ("dropped weights returned", "from those in use"),
    "dropping.py:StaysOff": ("dropout on again", "nothing is dropped in training mode after"),
    "dropping.py:Cuts": ("rejects mismatched K/V lengths", "6 keys and 7 values get an answer"),
    "valid_dropout.py:Negates": ("dropout rate", "weights are dropped, but 0.25 is the dropout"),
    "linear_dropout.py:OnlyKeeps": ("dropout rescales", "kept weights are 1 of those"),
}
BACKWARDS = ("dropping.py:DrawsAgain", "gradients with dropout", "in the gradient of ")
OF_TRAINING = {*dropout.CHECKS} - {"dropout off", "gradients with dropout"}
ENTRIES = sorted({name for found, name in NAMES.items() if found in EXTRA_CHECKS})


def failing(verdict: Verdict) -> set[str]:
    """Return the names of the checks that failed."""
    return {row.name for row in verdict.checks if row.failed}


def held(verdict: Verdict) -> set[str]:
    """Return the names of the checks that were asked and held."""
    return {row.name for row in verdict.checks if row.cases and not row.failed}


@pytest.mark.repeats(5)
@pytest.mark.parametrize(("subject", "name", "said"), [(k, *v) for k, v in WRONG.items()])
def test_a_wrong_way_of_dropping_fails_one_check(subject: str, name: str, said: str) -> None:
    """A candidate that is right in all else fails that check alone; the failure says why."""
    verdict = check_subject(subject)
    assert {name} == failing(verdict)
    assert said in next(each.check_result.detail for each in verdict.failures)


def test_a_way_back_that_drops_anew_is_seen() -> None:
    """Gradients of a layer that draws again for them belong to another call."""
    subject, name, said = BACKWARDS
    verdict = check_subject(subject, grad=True)
    assert {name} == failing(verdict)
    assert said in verdict.failures[0].check_result.detail


def test_every_check_has_a_candidate_that_fails_it() -> None:
    """Each check beside the cases fails for at least one candidate."""
    proved = {name for name, _ in WRONG.values()} | {BACKWARDS[1]}
    assert {*dropout.CHECKS, *rejected_inputs.CHECKS} == proved | {"dropout off"}
    assert proved <= {*CHECKS}


@pytest.mark.repeats(3)
@pytest.mark.parametrize(
    ("target", "without"),
    [
        ("torch.nn:MultiheadAttention", set()),
        ("mha_numpy:MultiheadAttention", set()),
        ("dropping.py:right", set()),
        # Neither returns weights.
        ("mha_numpy:scaled_dot_product_attention", {"dropped weights returned"}),
        ("torch.nn.functional:scaled_dot_product_attention", {"dropped weights returned"}),
        ("linear_layers.py:Attention", {"dropped weights returned"}),
        ("valid_dropout.py:Dropping", {"dropped weights returned"}),
    ],
)
def test_right_dropout_passes_and_is_seen_to_be_asked(target: str, without: set[str]) -> None:
    """Right ones hold every check, whatever they draw, and each has a row with its cases."""
    verdict = check_subject(target)
    assert set() == failing(verdict)
    assert OF_TRAINING - without <= held(verdict)


def test_what_drops_where_gradients_are_tracked_is_evaluated_without() -> None:
    """A layer without modes: kills an evaluation that tracks them; one that asks nothing fails."""
    assert "dropout off" in held(check_subject("untracked_dropout.py:Attention", cases=40))
    assert "dropout off" in failing(check_subject("untracked_dropout.py:Always", cases=40))


@pytest.mark.parametrize("target", ["torch.nn:MultiheadAttention", "mha_numpy:MultiheadAttention"])
def test_right_gradients_with_dropout_pass(target: str) -> None:
    """The gradients of torch's module and of ours are those of the weights that were dropped."""
    verdict = check_subject(target, grad=True)
    assert set() == failing(verdict)
    assert "gradients with dropout" in held(verdict)


@pytest.mark.parametrize("name", ["by_seed", "by_generator", "in_training"])
def test_functions_get_what_they_draw_from(name: str) -> None:
    """A seed, a generator and the switch of training are passed, without which nothing drops."""
    verdict = check_subject(f"seeded_dropout.py:{name}")
    assert set() == failing(verdict)
    assert {"dropout rescales", "dropout rate"} <= held(verdict)
    assert "not tried" not in verdict.sentence


@pytest.mark.parametrize("name", ["by_seed_keeps_size", "in_training_keeps_size"])
def test_what_drops_with_a_seed_alone_is_judged(name: str) -> None:
    """Kills a call in training that has no seed, or the switch of evaluation."""
    assert {"dropout rescales"} == failing(check_subject(f"seeded_dropout.py:{name}"))


def test_dropout_that_does_nothing_is_not_failed_nor_said_to_hold() -> None:
    """A layer that takes a dropout and ignores it passes; that it was not judged is seen."""
    verdict = check_subject("dropping.py:Ignores")
    assert set() == failing(verdict)
    assert {"dropout off"} == held(verdict) & {*dropout.CHECKS}
    assert any("dropout changes nothing in training" in note for note in verdict.notes)


@pytest.mark.parametrize("subject", ["dropping.py:fills_like_q", "dropping.py:casts_to_q"])
def test_a_cast_to_integers_is_noted_and_not_failed(subject: str) -> None:
    """The report has a note on it, and no failure: torch refuses integers."""
    verdict = check_subject(subject)
    assert set() == failing(verdict)
    assert rejected_inputs.INTEGER_REMARK in verdict.notes
    assert rejected_inputs.INTEGER_REMARK not in check_subject("dropping.py:right").notes


def test_values_without_a_key_that_get_an_answer_are_no_failure_of_a_linear_layer() -> None:
    """A layer that is not torch's own gets a note on what torch refuses, and no failure."""
    verdict = check_subject("linear_layers.py:FirstValues")
    assert set() == failing(verdict)
    assert rejected_inputs.LENGTH_REMARK in verdict.notes
    assert rejected_inputs.LENGTH_REMARK not in check_subject("linear_layers.py:Attention").notes


@pytest.mark.parametrize("name", ["OfOutputToo", "OfProjectionByDefault"])
def test_dropout_of_the_output_too_is_no_failure_of_a_linear_layer(name: str) -> None:
    """Who does not promise torch's own layer may drop elsewhere: its weights are not judged."""
    verdict = check_subject(f"linear_dropout.py:{name}")
    assert set() == failing(verdict)
    found = held(verdict) & {*dropout.CHECKS}
    assert {"dropout off", "dropout on again", "dropout of everything"} == found


def test_what_held_travels_from_the_candidate_s_process() -> None:
    """The rows are the same where the candidate runs in a process of its own."""
    with isolated("mha_numpy:MultiheadAttention") as candidate:
        verdict = check(candidate, Options(**FEW))  # type: ignore[arg-type]  # any option
    assert OF_TRAINING <= held(verdict)


@pytest.mark.parametrize("times", [1, 2, 7, 50])
def test_a_right_one_fails_with_less_than_the_probability_allowed(times: int) -> None:
    """By the exact binomial the share dropped lies that far out in less than the chance allowed.

    So does one that keeps p and not 1 - p, and is not seen.
    """
    problem = dropout.dropout_problem(LAYER, whole_offer(), times)
    assert problem is not None
    count, limit = (
        math.prod(problem.weights_shape),
        -math.log(dropout.false_alarm_probability(times)),
    )

    def seen(rate: float, *, fails: bool) -> float:
        return math.fsum(
            math.comb(count, k) * rate**k * (1 - rate) ** (count - k)
            for k in range(count + 1)
            if (count * dropout.kl_divergence(k / count) > limit) is fails
        )

    assert seen(dropout.P, fails=True) <= 2 * dropout.false_alarm_probability(times)
    assert seen(1 - dropout.P, fails=False) <= 2 * dropout.false_alarm_probability(times)
    # All that is dropped, or nothing: what "on again" rests on.
    assert (1 - dropout.P) ** count < dropout.false_alarm_probability(times)


@pytest.mark.parametrize("attn", ["none", "causal"])
@pytest.mark.parametrize("number", [1, 7])
def test_no_more_keys_are_asked_than_are_needed(attn: str, number: int) -> None:
    """The visible weights suffice, and with one key less a full square does not.

    Kills `not causal`: half the weights of a causal problem are hidden, so that it needs sqrt(2)
    times the keys.
    """
    offer = whole_offer() | {"attn": (attn,)}
    problem = dropout.dropout_problem(LAYER.replace(attn=attn, keys=5), offer, number)
    assert problem is not None
    samples, heads, queries, keys = problem.weights_shape
    assert attn == problem.case.attn
    assert queries == keys
    halved = 2 if attn == "causal" else 1
    needed = -math.log(dropout.false_alarm_probability(number)) / dropout.kl_divergence(0.5)
    assert samples * heads * (keys - 1) ** 2 / halved < needed
    assert needed <= samples * heads * keys**2 / halved


def test_all_questions_together_stay_below_the_probability_of_a_run() -> None:
    """However often a process asks, the chances sum to no more than ``FALSE_ALARM``."""
    total = math.fsum(dropout.false_alarm_probability(times) for times in range(1, 10_000))
    assert total <= dropout.FALSE_ALARM


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 10), marks=pytest.mark.slow)], ids=["two", "eight"]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_catalogue_s_layers_are_seen_under_ten_seeds(dtype: str, seeds: range) -> None:
    """Each wrong layer is soon seen by the check of its name; the right one never is."""
    own = {bug: name for name, bug in NAMES.items()}
    for seed in seeds:
        for gradients in ("no", "yes"):
            names = [
                n for n in ENTRIES if ("gradients" in catalogue()[n].needs) == (gradients == "yes")
            ]
            suffix = " with its gradients" if gradients == "yes" else ""
            right = controls()[f"right layer{suffix}, monitored"]
            bugs = [right, *(catalogue()[name] for name in names)]
            clean, *found = run_mutants(
                bugs, suite_cases(dtype, seed, GRADIENT_CASES, (gradients,)), full=0
            )
            assert {} == dict(clean.by)
            assert names == [kill.bug for kill in found if own[kill.bug] in kill.by]


def test_digits_of_float32_are_no_dropout() -> None:
    """A layer of float64 may take another path where it has dropout; kills what is off by more."""
    problem = make_problem(Case(seed=1, batch=2, queries=3, keys=3, heads_count=2, head_dim=4))
    clean = problem.query
    rounded = clean.astype("float32").astype("float64")
    assert "dropout off" == dropout.dropout_off(problem, clean, rounded)
    other = dropout.dropout_off(problem, clean, clean * (1 + 1e-4))
    assert other.startswith("dropout off: elements differ by up to"), other
