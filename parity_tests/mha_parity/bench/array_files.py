"""Arrays that several processes read, laid down once: objects pickled, their buffers in files."""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path
from typing import Any

HEAD = "object.pickle"
SHARED = 1 << 30  # bytes from which a process maps a file in place of reading it


def write_arrays(thing: Any, folder: str) -> None:
    """Write ``thing`` into the folder, each of its array buffers as a file of its own."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    (Path(folder) / HEAD).write_bytes(head)
    for number, buffer in enumerate(buffers):
        with buffer.raw() as bytes_of, (Path(folder) / str(number)).open("wb") as file:
            file.write(bytes_of)


def read_arrays(folder: str) -> Any:
    """Return what was laid down: a copy, or large arrays mapped and shared until written into."""
    paths = [
        Path(folder) / str(number) for number in range(sum(1 for _ in Path(folder).iterdir()) - 1)
    ]
    large = sum(path.stat().st_size for path in paths) >= SHARED
    buffers = [_mapped(path) if large else bytearray(path.read_bytes()) for path in paths]
    return pickle.loads((Path(folder) / HEAD).read_bytes(), buffers=buffers)  # noqa: S301  (written by our own code)


def _mapped(path: Path) -> mmap.mmap | bytearray:
    if not path.stat().st_size:
        return bytearray()
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
