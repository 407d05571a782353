"""Who is timed, and why somebody is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mha_torch import Path

if TYPE_CHECKING:
    from mha_parity.bench.sizes import Task

Library = Literal["numpy", "torch", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to compute a task. ``weights``: it returns the averaged attention weights too."""

    name: str
    label: str
    library: Library
    weights: bool = False
    inference: bool = False
    path: Path | None = None


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


def target(text: str) -> Contender:
    """Return somebody's attention as a contender."""
    return Contender(name="target", label=text.rpartition(":")[2] or text, library="target")


def obstacle(contender: Contender, task: Task, free: int | None) -> str:
    """Return why the contender is left out of the task, or an empty sentence.

    ``free`` is the machine's free memory in bytes, where it is known.
    """
    if contender.inference and task.backward:
        return "has no backward"
    if contender.path is Path.FAST and task.size.num_heads % 2:
        return "torch does not take it for an odd number of heads"
    needed = memory_needed(contender, task)
    if free is not None and needed > free:
        return f"needs about {needed / 2**30:.0f} GiB of memory, {free / 2**30:.0f} are free"
    return ""


def memory_needed(contender: Contender, task: Task) -> int:
    """Return about how many bytes the contender takes at most.

    torch with weights holds all logits, and their softmax beside them (once more each where a mask
    is added, or gradients are kept); NumPy returns the mean over the heads without holding them.
    Our layer is drawn before it is given its weights; prepared, it holds them five times.
    """
    size = task.size
    item = 8 if task.dtype == "float64" else 4
    rows = 16 * size.batch * size.length * size.embed_dim
    copies = {"numpy": 3, "torch": 1, "target": 3}[contender.library]
    if contender.name == "numpy-prepared":
        copies = 5
    cells = size.cells // size.num_heads if contender.weights else 0
    if contender.library == "torch" and contender.weights:
        cells = size.cells * (2 + task.causal + 2 * task.backward)
    if contender.library == "target":
        cells = 2 * size.cells
    return item * (rows + copies * size.parameters + cells)
