"""Which features and sizes a failing case needs to be wrong, and where a size begins to matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention
from mha_parity.core.candidate import NOT_ASKED, CandidateError
from mha_parity.core.features import make_offer
from mha_parity.diagnose import diagnose
from mha_parity.diagnose.experiment_diagnosis import ExperimentDiagnosis
from mha_parity.diagnose.experiments.conditions.needed_conditions import needed
from mha_parity.diagnose.read_weights import plain_case
from subject_checks import check_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import Caller

PROJECTED = make_offer(form="qkv", projection="none", inputs=("cross",))


class HalvedTogether(Attention):
    """The given scale is halved where there is a float mask too, from 10 keys on."""

    def scale(self) -> float:
        """Return the factor on q k^T."""
        mask, scale = self.problem.attn_mask, super().scale()
        together = self.problem.given_scale is not None and mask is not None
        return scale / 2 if together and self.case.keys > 9 else scale


def test_the_features_that_are_wrong_together_alone_are_said(caller: Callable[..., Caller]) -> None:
    """The others of a failing case, sizes among them, are made plain one by one."""
    axes = {"scale": ("default", "given"), "attn": ("none", "float2d"), "v_dim": ("equal", "other")}
    case = plain_case(PROJECTED | axes).replace(
        scale="given", attn="float2d", v_head_dim=9, regime="peaky", batch=4, queries=11, keys=12
    )
    found = needed(caller(HalvedTogether, PROJECTED | axes), case)
    assert found
    assert (
        "wrong with scale=given, attn=float2d and S > 9, and right without any one of them"
    ) == found.sentence
    assert not needed(caller(Attention, PROJECTED | axes), case)


class HalvedAtTwelve(Attention):
    """The scale is halved; of other than 12 keys it is not asked."""

    def scale(self) -> float:
        """Return the factor on q k^T."""
        if self.case.keys != 12:
            raise CandidateError("inconclusive", f"{NOT_ASKED}: it takes 12 keys")
        return super().scale() / (2 if self.problem.given_scale is not None else 1)


def test_what_is_not_asked_is_not_needed(caller: Callable[..., Caller]) -> None:
    """Kills "right without S = 12" of a target that was not asked of any other number."""
    axes = {"scale": ("default", "given")}
    case = plain_case(PROJECTED | axes).replace(scale="given", keys=12)
    found = needed(caller(HalvedAtTwelve, PROJECTED | axes), case)
    assert found
    assert "wrong with scale=given, and right without it" == found.sentence


class HalvedForMoreSamples(Attention):
    """The scale is halved for more samples than queries."""

    def scale(self) -> float:
        """Return the factor on q k^T."""
        most = self.case.queries
        return super().scale() / (2 if self.case.batch > most else 1)


class HalvedForSixSamples(Attention):
    """The scale is halved from six samples on."""

    def scale(self) -> float:
        """Return the factor on q k^T."""
        return super().scale() / (2 if self.case.batch > 5 else 1)


@pytest.mark.parametrize(
    ("kind", "said"), [(HalvedForMoreSamples, "N > L"), (HalvedForSixSamples, "N > 5")]
)
def test_another_size_that_decides_is_said(
    kind: type[Attention], said: str, caller: Callable[..., Caller]
) -> None:
    """A size is compared with the one that moves its limit: the case alone says `N > 5` of both."""
    case = plain_case(PROJECTED).replace(batch=9, queries=4, keys=12)
    found = needed(caller(kind, PROJECTED), case)
    assert found
    assert f"wrong with {said}, and right without it" == found.sentence


class BelowTheFill(Attention):
    """Hidden scores are filled with -100, which scores of a wide range lie below."""

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Fill where the mask says -inf."""
        return np.where(mask == -np.inf, np.float64(-100), scores)


MASKED = PROJECTED | {
    "attn": ("none", "bool2d", "bool3d"), "regime": ("normal", "wide_range"),
}  # fmt: skip


def test_what_other_failing_cases_fail_without_is_said_of_one_case_alone(
    caller: Callable[..., Caller],
) -> None:
    """Sizes and the kind of a mask that a case of smaller sizes and another mask does without.

    Where the other case has them too, nothing else is said than of one.
    """
    asking = caller(BelowTheFill, MASKED)
    wide = plain_case(MASKED).replace(regime="wide_range", attn="bool3d")
    drawn = [wide.replace(queries=21, keys=21, head_dim=15, seed=seed) for seed in range(40)]
    first = next(each for each in drawn if needed(asking, each))
    found = needed(asking, first)
    assert found is not None
    assert "right without any one of them" in found.sentence
    small = first.replace(attn="bool2d", queries=17, keys=17, head_dim=5)
    other = next(c for seed in range(40) if needed(asking, c := small.replace(seed=seed)))
    compared = found.compared(asking, [first, other])
    assert compared is not None
    assert "right without" not in compared.sentence
    assert compared.sentence.startswith("wrong with regime=wide_range")
    assert "one failing case needs attn=bool3d" in compared.sentence


def test_needs_that_other_failing_cases_share_are_said_of_all(
    caller: Callable[..., Caller],
) -> None:
    """Another size of the same rule and the same features change nothing of the sentence."""
    axes = {"scale": ("default", "given"), "attn": ("none", "float2d")}
    asking = caller(HalvedTogether, PROJECTED | axes)
    case = plain_case(PROJECTED | axes).replace(scale="given", attn="float2d", keys=12)
    found = needed(asking, case)
    assert found is not None
    compared = found.compared(asking, [case, case.replace(keys=31, queries=7, seed=3)])
    assert compared is not None
    assert found.sentence == compared.sentence


def test_what_time_did_not_allow_to_ask_is_not_said_to_be_needed(
    caller: Callable[..., Caller],
) -> None:
    """Where the time is over while a case is made plain nothing is said."""
    axes = {"scale": ("default", "given"), "attn": ("none", "float2d")}
    asking = caller(HalvedTogether, PROJECTED | axes)
    case = plain_case(PROJECTED | axes).replace(scale="given", attn="float2d", keys=12)
    left = iter([True] * 5)
    asking.running = lambda: next(left, False)
    assert needed(asking, case) is None


class ScaledBeyond(Attention):
    """The scale grows where there are more than 400 keys."""

    def scale(self) -> float:
        """Return the factor on q k^T."""
        return super().scale() * (1.001 if self.case.keys > 400 else 1)


def test_what_is_wrong_beyond_a_size_is_measured_there(caller: Callable[..., Caller]) -> None:
    """The border is found by bisection, and the weights are read at a size beyond it."""
    case = plain_case(PROJECTED).replace(keys=513, batch=4, head_dim=3)
    candidate = caller(ScaledBeyond, PROJECTED).candidate
    (found,) = ExperimentDiagnosis(candidate, lambda: True).facts([case], lambda: True)
    assert found.title.startswith("wherever S > 400: the effective scale is 0.17")
    assert "wrong with S > 400, and right without it" == found.evidence


class FirstKeys(Attention):
    """Keys from 512 on get no weight."""

    last = 512

    def mask_scores(self, scores: Array) -> Array:
        """Hide them."""
        scores = super().mask_scores(scores)
        return np.where(np.arange(scores.shape[-1]) < self.last, scores, -np.inf)


def test_a_border_beyond_all_sizes_tried_is_said_though_names_took_the_time(
    caller: Callable[..., Caller],
) -> None:
    """Names tried on two thousand keys take all the time there is: what needs the size is asked."""
    candidate = caller(FirstKeys, PROJECTED).candidate
    cases = [plain_case(PROJECTED).replace(keys=keys, seed=keys) for keys in (2047, 513, 1279)]
    problems = [make_problem(case) for case in cases]
    (found,) = diagnose(candidate, [(each, candidate(each)) for each in problems])
    said = "wherever S > 512: no row gives weight to keys from 512 on "
    assert found.title.startswith(said)
    assert "wrong with S > 512, and right without it" == found.evidence


def test_a_right_attention_of_many_keys_needs_nothing(caller: Callable[..., Caller]) -> None:
    """No border is found where no size is wrong."""
    case = plain_case(PROJECTED).replace(keys=513)
    assert needed(caller(FirstKeys, PROJECTED), case) is not None
    assert needed(caller(Attention, PROJECTED), case) is None


def test_what_a_call_needs_to_raise_is_said() -> None:
    """Kills a red run without a line of diagnosis, as plain problems of all sizes are answered."""
    verdict = check_subject("valid_lengths.py:squeezed", cases=120, diagnose=True, shrink=True)
    assert "crash" in {str(each.check_result.severity) for each in verdict.failures}
    (found,) = verdict.diagnosis
    assert (
        "the call raises with valid lengths per sample and N <= 1, and answers without any one of "
        "them"
    ) == found.title


class HalvedForGroups(Attention):
    """The scale is halved with a mask where query heads share key heads."""

    def scale(self) -> float:
        """Return the factor on q k^T."""
        grouped = self.problem.num_kv_heads < self.problem.num_heads
        return super().scale() / (2 if grouped and self.case.attn != "none" else 1)


def test_grouped_heads_are_shared_by_cases_of_other_numbers(caller: Callable[..., Caller]) -> None:
    """Kills "G = 2", which another failing case with four key heads seemed to do without."""
    axes = MASKED | {"kv_heads": ("equal", "fewer")}
    asking = caller(HalvedForGroups, axes)
    case = plain_case(axes).replace(attn="bool3d", heads_count=8, kv_heads_count=2)
    found = needed(asking, case)
    assert found is not None
    said = "wrong with attn=bool3d and fewer key heads than query heads, and right without any one"
    assert found.sentence.startswith(said)
    compared = found.compared(asking, [case, case.replace(kv_heads_count=4, seed=2)])
    assert compared is not None
    assert found.sentence == compared.sentence


class ZeroRows(Attention):
    """Rows that see no key are 0, where torch has NaN."""

    def softmax(self, scores: Array) -> Array:
        """Return weights of 0 where there is no number."""
        return np.nan_to_num(super().softmax(scores))


def test_rows_that_see_no_key_are_wrong_in_no_experiment(caller: Callable[..., Caller]) -> None:
    """A target may have a rule of its own for them: it would need them to be wrong."""
    axes = PROJECTED | {"padding": ("none", "bool"), "masked_rows": ("none", "some")}
    asking = caller(ZeroRows, axes)
    case = plain_case(axes).replace(padding="bool", masked_rows="some")
    (trial,) = asking.ask_problems([make_problem(case)])
    assert trial.problem.masked_rows().any()
    assert not trial.wrong
