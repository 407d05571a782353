"""Infinity and the largest number in the values: what every right order has, and no more."""

from __future__ import annotations

import numpy as np
import pytest

import mha_torch
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.cases.rng import largest_number
from mha_parity.catalogue import whole_offer
from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.check_result import Severity
from mha_parity.core.features import AXES, EXTREME_VALUES
from mha_parity.core.problem import Problem
from mha_parity.judging.accuracy import TORCH_PATHS, torch_output
from mha_parity.judging.infinite_values import Determined, without_infinity
from mha_parity.judging.output import judge_answer
from mha_parity.oracle.reference import reference_answer

INFINITE = "qkv-N2-L6-S7-H3-D4-cross-boolmask3d-{}-infinitevalue-s3"
LARGEST = "qkv-N2-L6-S7-H3-D4-cross-{}-largestvalue-s3"
LAYER = "mha-N2-L6-S7-H3-D4-distinct-boolmask3d-{}-infinitevalue-s3"
MIXED = "mha-N2-L6-S7-H3-D4-distinct-outproj-boolmask3d-{}-infinitevalue-s3"


class HiddenValuesZeroed(Attention):
    """Take 0 for the values of the keys that a row has hidden."""

    def apply_weights(self, weights: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return P v, each row by the values that it sees."""
        seen = ~self.problem.hidden()[..., None]
        heads = np.einsum("nhls,nhlsd->nhld", weights, np.where(seen, v[:, :, None], 0))
        return np.asarray(heads)


class TimesIdentity(Attention):
    """Multiply by an identity out_proj, where a layer has none."""

    def project_output(self, x: np.ndarray) -> np.ndarray:
        """Return x times the identity, NaN in each row with infinity."""
        layer = self.case.form == "mha" and self.problem.w_out is None
        return x @ np.eye(x.shape[-1], dtype=x.dtype) if layer else super().project_output(x)


class FilledMasks(Attention):
    """Hide keys by -1e9."""

    def additive(self, mask: np.ndarray) -> np.ndarray:
        """Return the mask, no lower than -1e9."""
        return np.maximum(super().additive(mask), self.work_dtype.type(-1e9))


class LogSumExp(Attention):
    """Write the softmax as exp(z - log sum exp z)."""

    def softmax(self, scores: np.ndarray) -> np.ndarray:
        """Return the weights; one may pass 1 by a rounding."""
        top = scores.max(axis=-1, keepdims=True)
        total = np.exp(scores - top).sum(axis=-1, keepdims=True)
        return np.asarray(np.exp(scores - (top + np.log(total))))


RIGHT = (Attention, HiddenValuesZeroed, TimesIdentity, FilledMasks, LogSumExp)


def problem_of(words: str, dtype: str) -> Problem:
    """Return the problem of a case in a dtype."""
    return make_problem(parse(words.format(dtype)))


def severity(problem: Problem, output: np.ndarray) -> Severity:
    """Return how an output is judged."""
    found = judge_answer(problem, reference_answer(problem), Answer(output=output))
    return found[0].severity


def right(problem: Problem) -> np.ndarray:
    """Return the output of the plain attention."""
    return answer_of(Attention, problem).output.copy()


def extreme_problems(seed: int) -> list[Problem]:
    """Return the problems with extreme values of one run."""
    cases = draw_cases(whole_offer(), 400, seed)
    return [make_problem(case) for case in cases if case.regime in EXTREME_VALUES]


@pytest.mark.parametrize("seed", [3], ids="seed{}".format)
@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_right_attentions_pass(kind: type[Attention], seed: int) -> None:
    """Right attentions that have NaN and infinity at other places all match."""
    for problem in extreme_problems(seed):
        found = judge_answer(problem, reference_answer(problem), answer_of(kind, problem))
        assert {Severity.MATCH} == {each.severity for each in found}, problem.case.id


@pytest.mark.parametrize("seed", [3], ids="seed{}".format)
def test_every_path_of_torch_passes(seed: int) -> None:
    """Torch's own paths match, in every dtype that is drawn."""
    taken = 0
    for problem in extreme_problems(seed):
        for path in TORCH_PATHS:
            try:
                output = torch_output(problem, path)
            except mha_torch.PathNotTakenError:
                continue
            taken += 1
            assert Severity.MATCH is severity(problem, output), (path, problem.case.id)
    assert taken


def test_zeroed_hidden_values_and_products_differ() -> None:
    """The right attentions above do differ: in a row that hides infinity one has NaN, one not."""
    problem = problem_of(INFINITE, "float32")
    product, zeroed = right(problem), answer_of(HiddenValuesZeroed, problem).output

    assert np.isnan(product).any()
    assert not np.isnan(zeroed).any()
    assert np.isinf(zeroed).any()


@pytest.mark.parametrize("dtype", AXES["dtype"])
@pytest.mark.parametrize("found", [0.0, 1e4, np.nan, -np.inf])
def test_a_visible_infinity_is_demanded(found: float, dtype: str) -> None:
    """Where a row surely sees infinity, a number, NaN or the other infinity is wrong."""
    problem = problem_of(INFINITE, dtype)
    output = right(problem)
    output[np.isinf(output)] = found

    assert Severity.WRONG is severity(problem, output)


@pytest.mark.parametrize("dtype", AXES["dtype"])
@pytest.mark.parametrize("found", [0.0, np.inf])
def test_a_hidden_infinity_is_nan_or_without_effect(found: float, dtype: str) -> None:
    """Where infinity is hidden, neither infinity nor another number passes."""
    problem = problem_of(INFINITE, dtype)
    output = right(problem)
    output[np.isnan(output)] = found

    assert Severity.WRONG is severity(problem, output)


@pytest.mark.parametrize("found", [np.nan, np.inf, 0.25])
def test_elements_without_infinity_are_judged_as_ever(found: float) -> None:
    """In another channel, head or sample NaN, infinity and a wrong number are wrong."""
    problem = problem_of(INFINITE, "float32")
    output = right(problem)
    for place in np.argwhere(np.isfinite(output))[:: output.size // 9]:
        changed = output.copy()
        changed[tuple(place)] = found
        assert Severity.WRONG is severity(problem, changed), place


@pytest.mark.parametrize("words", [LAYER, MIXED])
def test_a_row_of_a_layer_that_sees_infinity_has_no_number(words: str) -> None:
    """A layer's row may be NaN or infinite; a finite number in it is wrong."""
    problem = problem_of(words, "float32")
    sees = Determined(problem, reference_answer(problem)).sees.swapaxes(1, 2)
    sees = sees.reshape(problem.output_shape)
    output = answer_of(TimesIdentity, problem).output.copy()
    assert Severity.MATCH is severity(problem, output)

    output[tuple(np.argwhere(sees)[0])] = 1.0
    assert Severity.WRONG is severity(problem, output)


def test_a_weight_that_may_underflow_demands_no_more_than_no_number() -> None:
    """In float16 a weight of 1e-9 may be 0, and 0 times infinity NaN; a number stays wrong."""
    problem = problem_of(INFINITE, "float16")
    mask = np.zeros(problem.attn_mask.shape, dtype=np.float16)  # type: ignore[union-attr]  # there
    sample, key = np.argwhere(~np.isfinite(problem.value.astype(np.float64)))[0][:2]
    mask[problem.num_heads * sample : problem.num_heads * (sample + 1), :, key] = -20
    problem = problem.replace(case=problem.case.replace(attn="float3d"), attn_mask=mask)
    output = right(problem)
    infinite = np.isinf(output)
    assert infinite.any()

    for found, expected in ((np.nan, Severity.MATCH), (1.0, Severity.WRONG)):
        output[infinite] = found
        assert expected is severity(problem, output)


@pytest.mark.parametrize("dtype", AXES["dtype"])
@pytest.mark.parametrize("factor", [np.inf, np.nan, 0.5, 1.5])
def test_the_largest_number_is_neither_lost_nor_halved(factor: float, dtype: str) -> None:
    """A share of the largest number is judged as any number; infinity in its place is wrong."""
    problem = problem_of(LARGEST, dtype)
    output = right(problem)
    place = np.unravel_index(np.abs(output.astype(np.float64)).argmax(), output.shape)
    assert largest_number(dtype) / 100 < abs(float(output[place])) < largest_number(dtype) / 2
    output[place] = output.dtype.type(float(output[place]) * factor)

    assert Severity.WRONG is severity(problem, output)


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_a_weight_of_one_may_carry_the_largest_number_past_the_range(dtype: str) -> None:
    """With one key a rounding of the weight decides: infinity of that sign alone passes."""
    problem = problem_of("qkv-N2-L3-S1-H2-D4-cross-{}-largestvalue-s5", dtype)
    output = right(problem)
    largest = np.abs(output.astype(np.float64)) == largest_number(dtype)
    signs = np.sign(output[largest].astype(np.float64))
    assert largest.any()

    output[largest] = signs * np.inf
    assert Severity.MATCH is severity(problem, output)
    output[largest] = -signs * np.inf
    assert Severity.WRONG is severity(problem, output)


def test_the_problem_without_infinity_is_a_copy() -> None:
    """The infinite value is 0 in the other problem, all other numbers are the same."""
    problem = problem_of(INFINITE, "float64")
    before = problem.value.copy()
    clean, reference = without_infinity(problem)

    assert np.array_equal(before, problem.value)
    assert 1 == (clean.value != before).sum() == np.isinf(before).sum()
    assert np.isfinite(reference.output).all()
