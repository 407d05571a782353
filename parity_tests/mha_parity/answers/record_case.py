"""Record one case: its problem, what torch computes of it, what is allowed, and the bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import mha_torch
from mha_parity.core.candidate import Answer
from mha_parity.judging import infinite_values, nonfinite, power
from mha_parity.judging.accuracy import TORCH_PATHS, torch_output
from mha_parity.judging.gradients import judge_gradients
from mha_parity.judging.output import allowed_error
from mha_parity.judging.output_groups import judged_array
from mha_parity.judging.systematic_error import first_order_error, is_tested
from mha_parity.oracle.error_bound import bound, output_bound
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.torch_answers import problem_of, using_record
from mha_parity.targets.programs.exec_protocol import options

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference
    from mha_parity.oracle.torch_answers import Record, RecordedArrays


@dataclass(frozen=True, eq=False)
class RecordedCase:
    """One case as the file has it.

    ``allowed`` and ``bound`` map "output" and, where asked for, "weights" to a number for each
    sample and head (for each sample where heads are mixed). ``exposes`` are the gross errors that
    the case would show.
    """

    problem: Problem
    options: dict[str, str]
    results: dict[tuple[str, str], RecordedArrays]
    allowed: dict[str, Array]
    bound: dict[str, Array]
    exposes: tuple[str, ...]


def record_case(record: Record, case: Case, own: OwnWeights | None = None) -> RecordedCase:
    """Compute by torch what judging any answer to the case asks for, and keep it."""
    known = set(record.results)
    with using_record(record):
        problem = record.problems[case] = problem_of(case, own)
        reference = reference_answer(problem)
        output = torch_output(problem)
        for path in TORCH_PATHS:
            try:
                torch_output(problem, path)
            except mha_torch.PathNotTakenError:
                continue  # kept as such
        if infinite_values.has_infinite_values(problem):
            torch_output(infinite_values.without_infinity(problem)[0])
        elif nonfinite.hides_nonfinite(problem):
            nonfinite.sanitised_problem(problem, reference)
        if case.gradients == "yes":
            judge_gradients(problem, reference, Answer(output=output))
        limits = _limits(problem, reference)
        output_bound(problem, reference)
        if is_tested(case) and output.size:
            first_order_error(problem, reference)
    results = {key: found for key, found in record.results.items() if key not in known}
    exposes = tuple(sorted(power.exposed_errors(problem, reference)))
    return RecordedCase(problem, options(problem), results, *limits, exposes)


def _limits(problem: Problem, reference: Reference) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return what is allowed as a match, and what rounding can do, in each group."""
    asked = {"none": (), "averaged": ("averaged",), "per_head": ("weights",)}
    allowed, bounds = {}, {}
    errors = bound(problem, reference)
    for name in ("output", *asked[problem.case.weights]):
        judged = judged_array(name, problem, reference)
        allowed[name] = allowed_error(problem, reference, judged)
        bounds[name] = judged.worst(judged.of(errors.output, errors.weights)).astype(np.float64)
    return allowed, bounds
