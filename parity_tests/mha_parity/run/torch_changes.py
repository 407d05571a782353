"""Say what changed between the torch that answered a record and the one that is installed.

Where ``check torch.nn:MultiheadAttention --answers FILE`` judges torch itself, each of its paths is
computed again on the recorded problems, and held against what it answered then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import mha_torch
from mha_parity.core.compare import same_kind
from mha_parity.core.environment import TORCH, installed
from mha_parity.core.threads import in_one_thread
from mha_parity.core.verdict import PINNED_PATH
from mha_parity.judging.accuracy import OUTPUT, TORCH_PATHS, installed_torch_output
from mha_parity.judging.output import allowed_error
from mha_parity.judging.output_groups import judged_array
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.torch_answers import active_record, digest, load_torch
from mha_parity.targets import load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.torch_answers import Record


def is_torch_layer(target: str) -> bool:
    """Return whether a target names torch's module, by whatever path it is imported."""
    if not target.startswith("torch.") or not installed(TORCH):
        return False
    import torch

    return load.load(target) is torch.nn.MultiheadAttention


@dataclass
class PathChange:
    """How the outputs of one path compare: counts, and a case in which they differ most.

    ``rounding``: they differ by no more than is allowed as a match. ``more``: by more, or one is no
    number. ``gone`` and ``new``: taken by the torch of the record alone, by this one alone.
    """

    path: str
    equal: int = 0
    rounding: int = 0
    more: int = 0
    gone: int = 0
    new: int = 0
    units: float = field(default=0.0)
    case: str = ""

    def add(self, problem: Problem, then: Array | None, now: Array | None) -> None:
        """Count one case; None: torch does not take the path."""
        if then is None or now is None:
            self.gone += then is not None
            self.new += now is not None
            return
        if then.tobytes() == now.tobytes():
            self.equal += 1
            return
        units = _units(problem, then, now)
        self.rounding += units <= 1
        self.more += units > 1
        if units > self.units:
            self.units, self.case = units, problem.case.id

    def sentence(self, then: str, now: str) -> str:
        """Say it of two versions."""
        asked = self.equal + self.rounding + self.more
        parts = [
            f"{self.equal} of {asked} outputs are equal to the bit",
            f"{self.rounding} within what is allowed" if self.rounding else "",
            f"{self.more} differ by more" if self.more else "",
            f"{self.gone} cases took it in {then} alone" if self.gone else "",
            f"{self.new} in {now} alone" if self.new else "",
        ]
        said = ", ".join(part for part in parts if part)
        worst = f"; at most {self.units:.3g} times what is allowed: {self.case}" * bool(self.case)
        return f"torch {then} and {now}, path {self.path}: {said}{worst}"


def path_change_notes(target: str, cases: Iterable[Case]) -> tuple[str, ...]:
    """Return a sentence for each path; nothing where the target is not torch's own layer."""
    record = active_record()
    if record is None or not record.closed or not is_torch_layer(target):
        return ()
    then, now = record.environment.get(TORCH, "?"), mha_torch.describe()[TORCH]
    return tuple(each.sentence(then, str(now)) for each in path_changes(record, cases))


def path_changes(record: Record, cases: Iterable[Case]) -> list[PathChange]:
    """Return what changed on each path over the recorded cases."""
    found = {path: PathChange(path) for path in (PINNED_PATH, *TORCH_PATHS)}
    load_torch()
    with in_one_thread():
        for case in cases:
            problem = record.problems[case]
            for path, change in found.items():
                then = record.results.get((f"{OUTPUT}{path}", digest(problem)))
                if then is not None:
                    change.add(problem, then.get("output"), _output(problem, path))
    return [each for each in found.values() if each != PathChange(each.path)]


def _output(problem: Problem, path: str) -> Array | None:
    try:
        return np.ascontiguousarray(installed_torch_output(problem, path))
    except mha_torch.PathNotTakenError:
        return None


def _units(problem: Problem, then: Array, now: Array) -> float:
    """Return the largest difference in units of what is allowed; infinity where kinds differ."""
    if not same_kind(then.astype(np.float64), now.astype(np.float64)).all():
        return float("inf")
    reference = reference_answer(problem)
    judged = judged_array("output", problem, reference)
    allowed = allowed_error(problem, reference, judged)
    with np.errstate(all="ignore"):
        signed = now.astype(np.longdouble) - then.astype(np.longdouble)
        difference = np.where(np.isfinite(signed), signed, 0)
        return float(np.nan_to_num(judged.worst(difference) / allowed, nan=0.0).max(initial=0))
