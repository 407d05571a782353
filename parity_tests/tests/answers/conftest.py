"""Recorded answers that several tests judge by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that records a target's cases, once each."""
    folder = tmp_path_factory.mktemp("answers")
    kept: dict[tuple[str, ...], str] = {}

    def recorded(*words: str) -> str:
        if words not in kept:
            path = str(folder / f"{len(kept)}.safetensors")
            assert 0 == main(["record", *words, "-o", path, "--in-process"])
            kept[words] = path
        return kept[words]

    return recorded
