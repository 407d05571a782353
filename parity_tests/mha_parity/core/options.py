"""The options of a run: what a run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_TARGET = "mha_numpy:MultiheadAttention"
# Judged as well where no target is named: small cases, left alone, meet one engine only.
FORCED_ENGINES = ("mha_numpy.forced:PlainAttention", "mha_numpy.forced:FlashAttention")
Policy = Literal["nan", "zero", "uniform"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
MEANINGS = ("hides", "keeps", "additive")  # of a True or 1 in a mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run, field by field those of the command line.

    With ``draw`` the verdict has the pictures that a page shows.
    """

    cases: int = 500
    seed: int = 0
    dtypes: tuple[str, ...] = ()
    features: tuple[tuple[str, str], ...] = ()
    convention: str | None = None
    timeout: float = 10.0
    memory: float = 4.0
    in_process: bool = False
    forbid: tuple[str, ...] = ()
    fully_masked: Policy | None = None
    max_times_torch: float | None = None
    grad: bool = False
    device: str = "cpu"
    path: str | None = None
    diagnose: bool = True
    shrink: bool = True
    draw: bool = False
    jobs: int | None = None
    without: tuple[str, ...] = ()
    masks: tuple[tuple[str, str], ...] = ()
    state_dict: str | None = None
    num_heads: int | None = None
    strict_overflow: bool = False
    strict_padding: bool = False
    answers: str | None = None
    fail_fast: bool = False
    max_failures: int = 40  # as many as a diagnosis reads

    @property
    def last_failure(self) -> int | None:
        """The number of the failing case that ends the run; None where every case is asked."""
        return 1 if self.fail_fast else self.max_failures or None


class OptionKeywords(TypedDict, total=False):
    """The fields of ``Options`` as keywords of a call; lists also as text, ``"float32,float64"``.

    Parameters
    ----------
    cases
        Number of cases drawn (500). The target is called more often: some 75 to 170 times before
        and with the first case, to find how it is called, then 2 or 3 times a case, and some 30
        times on each of the first 12 cases, whose calls are repeated and altered.
    seed
        Seed of the draw (0).
    dtypes
        Only these dtypes, as ``"float32"`` or ``("float32", "float64")``.
    features
        Only these features, as ``"attn=causal,bias=yes"``.
    convention
        How the target is called (default: recognised from its signature).
    timeout, memory
        Seconds that a call, and GiB that a case may take in a process of its own.
    in_process
        Run a target that is given as text in this process.
    forbid
        Modules through which the target may not compute.
    fully_masked
        What rows without a visible key have to be: ``"nan"``, ``"zero"`` or ``"uniform"``.
    max_times_torch
        Fail errors above this factor times torch's own.
    grad
        Judge gradients too.
    device
        Device of a torch module (``"cpu"``).
    path
        Path through torch.nn.MultiheadAttention, where that is the target.
    diagnose, shrink, draw
        Look for the bug's name; shrink failing cases; draw the pictures of the page.
    jobs
        Processes to judge in.
    without
        Masks, lengths or causal switches of the target that are knowingly left untried, and parts
        of it (methods, functions, modules) that return what they are given.
    masks
        What masks of the target mean, as ``"mask=keeps:(N,1,L,S)"``: hides, keeps or additive.
    state_dict, num_heads
        File (.safetensors) of the weights that a layer is judged with, and its number of heads.
    strict_overflow
        Fail a float16 product q k^T that overflows before it is scaled.
    strict_padding
        Judge the output in rows of padded queries too, as torch's layer answers them.
    answers
        File of recorded answers to judge by, without torch.
    fail_fast
        Stop at the first case that fails; of the 500 first cases, telling ones come first.
    max_failures
        Stop at this number of failing cases (40, as many as a diagnosis reads); 0: ask every case.
        Answers to float64 that float32 in its place explains are not among them.

    """

    cases: int
    seed: int
    dtypes: str | Sequence[str]
    features: str | Sequence[tuple[str, str]]
    convention: str | None
    timeout: float
    memory: float
    in_process: bool
    forbid: str | Sequence[str]
    fully_masked: Policy | None
    max_times_torch: float | None
    grad: bool
    device: str
    path: str | None
    diagnose: bool
    shrink: bool
    draw: bool
    jobs: int | None
    without: str | Sequence[str]
    masks: str | Sequence[tuple[str, str]]
    state_dict: str | None
    num_heads: int | None
    strict_overflow: bool
    strict_padding: bool
    answers: str | None
    fail_fast: bool
    max_failures: int
