"""One thread for problems that are too small for two."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def torch_in_one_thread() -> Iterator[None]:
    """Let torch compute in the calling thread, and leave it as it was found.

    torch's threads wait for each other by spinning: on busy cores a problem as small as a case
    takes ten times as long with them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
