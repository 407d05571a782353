"""Right weights that come in another order of keys or rows are said to be that, with the rule."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.designs.other_order import SAME_ORDER
from mha_parity.diagnose.experiments.designs.perturbation import influences
from mha_parity.worker.open_target import bind_in_process
from subject_checks import check_subject, load_subject


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("values_reversed", "value j is multiplied with the weight of key S - 1 - j"),
        ("values_rolled", "value j is multiplied with the weight of key (j + 2) % S"),
        ("rows_reversed", "row i of the output has the weights of row L - 1 - i"),
    ],
)
def test_the_order_is_measured(name: str, said: str) -> None:
    """The rule of indices is the code's."""
    (cause,) = check_subject(f"other_orders.py:{name}", cases=40, diagnose=True).diagnosis
    assert (said, SAME_ORDER) == (cause.title, cause.remedy)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("keys_reshaped", "k (S, D) is reshaped to (D, S) in each head"),
        ("keys_of_rows_reshaped", "k (S, H, D) is reshaped to (H, D, S)"),
    ],
)
def test_keys_that_are_reshaped_are_said(name: str, said: str) -> None:
    """Kills `q, k or their split may differ`: the weights are those of the reshaped keys."""
    (cause,) = check_subject(f"other_orders.py:{name}", cases=40, diagnose=True).diagnosis
    assert said in cause.title


def test_what_is_right_in_no_order_is_not_said_to_be() -> None:
    """Another scale beside the order is no order alone."""
    verdict = check_subject("other_orders.py:scaled_and_reversed", cases=40, diagnose=True)
    assert verdict.diagnosis
    assert all(each.remedy != SAME_ORDER for each in verdict.diagnosis)


def test_an_order_of_keys_and_values_passes() -> None:
    """The softmax has no order of keys."""
    verdict = check_subject("other_orders.py:both_reversed", cases=40, diagnose=True)
    assert ((), ()) == (verdict.failures, verdict.diagnosis)


@pytest.mark.parametrize(
    ("name", "by"),
    [("with_next_samples_key", ", by key 0 of 7 alone"), ("with_next_samples_keys", "")],
)
def test_the_key_by_which_samples_reach_others_is_said(name: str, by: str) -> None:
    """Of one key of another sample its place is said, of all keys none."""
    target = bind_in_process(load_subject(f"other_orders.py:{name}"), Options(cases=18))
    (samples,) = (f for f in influences(Caller(target, lambda: True)) if f.word == "sample")
    assert f"changing sample 0 changes the outputs of samples 0, 2{by}" == samples.sentence
