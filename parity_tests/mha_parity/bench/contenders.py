"""The contenders that are timed, and why one is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mha_parity.bench.tasks import SEPARABLE
from mha_parity.core.features import label
from mha_torch import Path

if TYPE_CHECKING:
    from mha_parity.bench.tasks import Task
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer

Library = Literal["numpy", "torch", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to compute a task. ``weights``: it returns the averaged attention weights too.

    ``form`` is that of its tasks; ``kernel`` the one that torch is to use on projected heads, in
    place of its own choice.
    """

    name: str
    label: str
    library: Library
    weights: bool = False
    inference: bool = False
    path: Path | None = None
    form: str = "mha"
    kernel: str = ""


CONTENDERS = (
    Contender(name="numpy-weights", label="NumPy, weights", library="numpy", weights=True),
    Contender(name="numpy", label="NumPy", library="numpy"),
    Contender(name="numpy-prepared", label="NumPy prepared", library="numpy", inference=True),
    Contender(
        name="torch-weights", label="torch, weights", library="torch", weights=True,
        path=Path.WEIGHTS,
    ),
    Contender(
        name="torch-eval-weights", label="torch eval, weights", library="torch", weights=True,
        inference=True, path=Path.EVAL,
    ),
    Contender(name="torch", label="torch", library="torch", path=Path.NO_WEIGHTS),
    Contender(
        name="torch-fast", label="torch fast path", library="torch", inference=True,
        path=Path.FAST,
    ),
)  # fmt: skip
KERNELS = (
    Contender(name="numpy", label="NumPy", library="numpy", form="qkv"),
    Contender(name="torch-sdpa", label="torch sdpa", library="torch", form="qkv"),
    Contender(
        name="torch-sdpa-math", label="torch sdpa, math", library="torch", form="qkv", kernel="MATH"
    ),
)


def target_contender(text: str, form: str = "mha") -> Contender:
    """Return the target as a contender."""
    label = text.rpartition(":")[2] or text
    return Contender(name="target", label=label, library="target", form=form)


def reason_left_out(
    contender: Contender, task: Task, case: Case, free: int | None, offer: Offer | None = None
) -> str:
    """Return why the contender is left out of the task, or an empty sentence.

    ``free`` is the machine's free memory in bytes, where it is known; all are loaded at once, so
    none gets more than half of it. ``offer`` is the target's.
    """
    if offer is not None and contender.library == "target" and (lacks := _lacks(case, offer)):
        return f"does not offer: {lacks}{_other_dtype(case, lacks, offer)}"
    reasons = {
        "has no backward": contender.inference and task.backward,
        "its gradients are too many to be judged": (task.backward and task.parameters >= SEPARABLE),
        "torch does not take it for an odd number of heads": (
            contender.path is Path.FAST and bool(task.size.num_heads % 2)
        ),
        "torch does not take it without biases": (
            contender.path is Path.FAST and case.bias == "no"
        ),
    }
    found = next((reason for reason, holds in reasons.items() if holds), "")
    needed = memory_needed(contender, task)
    if not found and free is not None and needed > free / 2:
        return f"would take {needed / 2**30:.0f} of {free / 2**30:.0f} GiB of free memory"
    return found


def _other_dtype(case: Case, lacks: str, offer: Offer) -> str:
    """Return which option times a target that lacks the dtype alone."""
    other = [each for each in ("float64", "float32") if each in offer["dtype"]]
    if lacks != label("dtype", case.dtype) or not other:
        return ""
    return f"; --dtype {other[0]} times it"


def _lacks(case: Case, offer: Offer) -> str:
    """Return what of the case is not offered."""
    missing = [label(axis, v) for axis, v in case.features().items() if v not in offer[axis]]
    if case.layout == "unbatched" and case.batch > 1:
        missing.append("several samples at once")
    return ", ".join(missing)


def memory_needed(contender: Contender, task: Task) -> int:
    """Return about how many bytes the contender takes at most.

    torch with weights holds all logits, and their softmax (once more each where a mask
    is added, or gradients are kept); NumPy returns the mean over the heads without holding them.
    Our layer is drawn before it is given its weights; prepared, it holds them four times.
    """
    size = task.size
    item = 8 if task.dtype == "float64" else 4
    rows = 16 * size.batch * size.length * size.embed_dim
    copies = {"numpy": 3, "torch": 1, "target": 3}[contender.library]
    if contender.name == "numpy-prepared":
        copies = 4
    scores = size.scores // size.num_heads if contender.weights else 0
    if contender.library == "torch" and contender.weights:
        scores = size.scores * (2 + task.causal + 2 * task.backward)
    if contender.library == "target" or contender.kernel == "MATH":
        scores = 2 * size.scores
    return item * (rows + copies * task.parameters + scores)
