"""Peak rate of the machine, measured in the run: float32 products in NumPy and in torch."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.bench import machine
from mha_parity.bench.client import WorkerClient
from mha_parity.bench.contenders import CONTENDERS, Contender
from mha_parity.core.environment import cpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.bench.timing import BenchSettings

SIZE = 2048  # rows and columns: larger products are no faster
TURNS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMeasurement:
    """The highest rate of each library in flop/s, and the BLAS kernels each one runs."""

    flops: Mapping[str, float]
    kernels: Mapping[str, str]


def measure_peak(threads: int) -> PeakMeasurement:
    """Time a product in each library, alternating, and keep the best of each."""
    first: dict[str, Contender] = {each.library: each for each in reversed(CONTENDERS)}
    best: dict[str, float] = {}
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(WorkerClient(each, threads=threads))
            for name, each in first.items()
        }
        kernels = {name: ", ".join(client.opened().libraries) for name, client in clients.items()}
        for _ in range(TURNS):
            for name, client in clients.items():
                rate = 2 * SIZE**3 / client.sgemm(SIZE)
                best[name] = max(rate, best.get(name, 0.0))
    return PeakMeasurement(flops=best, kernels=kernels)


def peak_environment(settings: BenchSettings, measured: PeakMeasurement) -> dict[str, str]:
    """Return what figures of this run belong to."""
    import numpy as np

    import mha_parity
    import mha_torch

    described = {k: str(v) for k, v in mha_torch.describe().items()}
    found = {
        "cpu": cpu(),
        "cores": str(machine.cores()),
        "threads": str(settings.threads),
        "numpy": np.__version__,
        "numpy_blas": measured.kernels["numpy"],
        "torch": described.get("torch", ""),
        "torch_blas": measured.kernels["torch"],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "mha_parity": mha_parity.__version__,
    }
    named = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_WAIT_POLICY", "MKL_DEBUG_CPU_TYPE")
    return found | {name: os.environ[name] for name in named if name in os.environ}
