"""A compact file holds the same record in less room, to the bit."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.__main__ import main
from mha_parity.answers import answers_file, array_storage
from mha_parity.answers.array_storage import PACKED, pack_arrays, unpack_arrays
from mha_parity.cases.generate import make_problem
from mha_parity.core.safetensors import FormatError, dump, load_tensors
from subject_checks import LAYER, RIGHT, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

GRADIENTS = (LAYER, "--grad", "--cases", "40")


@pytest.mark.parametrize("words", [GRADIENTS, (RIGHT, "--cases", "40")], ids=["layer", "function"])
def test_what_is_packed_comes_back_to_the_bit(
    record: Callable[..., str], words: tuple[str, ...]
) -> None:
    """Names, order, dtypes, shapes, NaN and signs of zero, in less than half of the room."""
    block = Path(record(*words)).read_bytes()
    arrays, metadata = load_tensors(block)
    packed = pack_arrays(arrays, metadata["manifest"])
    again, text = unpack_arrays(packed)
    assert (metadata["manifest"], list(arrays)) == (text, list(again))
    for name, array in arrays.items():
        found = again[name]
        assert (array.dtype, array.shape) == (found.dtype, found.shape), name
        assert array.tobytes() == found.tobytes(), name
    assert packed[PACKED].nbytes < len(block) / 2


def test_a_compact_file_is_the_same_record(record: Callable[..., str], tmp_path: Path) -> None:
    """A file and its compact form have one checksum, and equal problems and results."""
    plain, compact = record(*GRADIENTS), tmp_path / "compact.safetensors"
    arrays, metadata = load_tensors(Path(plain).read_bytes())
    packed = pack_arrays(arrays, metadata.pop("manifest"))
    compact.write_bytes(dump(packed, metadata))
    first, second = answers_file.read_record(plain), answers_file.read_record(str(compact))
    assert first.results.keys() == second.results.keys()
    assert first.problems.keys() == second.problems.keys()
    for key, result in first.results.items():
        for name, array in result.items():
            found = second.results[key][name]
            assert (array.dtype, array.shape) == (found.dtype, found.shape)
            assert ((array == found) | (np.isnan(array) & np.isnan(found))).all()
    for case, problem in first.problems.items():
        again = second.problems[case]
        assert (problem.query is problem.key) == (again.query is again.key)
        assert (problem.key is problem.value) == (again.key is again.value)


def test_layers_of_their_own_weights_keep_them(record: Callable[..., str]) -> None:
    """What the seed does not draw is stored: the weights of a layer that is built already."""
    path = record(f"{SUBJECTS / 'loaded.py'}:linear", "--cases", "5", "--compact")
    record_ = answers_file.read_record(path)
    assert 1 == len({problem.w_q.tobytes() for problem in record_.problems.values()})  # type: ignore[union-attr]


def test_other_draws_are_seen_by_the_checksum(
    record: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where this version draws other numbers the file is refused, and no case judged by it."""
    path = record(RIGHT, "--cases", "40", "--compact")

    def other(case: Case) -> Problem:
        problem = make_problem(case)
        return problem.replace(value=problem.value + 1)

    monkeypatch.setattr(array_storage, "make_problem", other)
    capsys.readouterr()
    assert 2 == main(["check", RIGHT, "--in-process", "--answers", path])
    errors = capsys.readouterr().err
    assert 1 == errors.count("\n")
    assert "that it names, or this mha-parity draws other cases; write it anew" in errors


CASE = "qkv-N1-L2-S2-H2-D1-unbatched-float64-s0"
CASES = f'{{"cases":[{{"id":"{CASE}","inputs":{{}},"results":[]}}]}}'
# What stands in the place of the manifest and of the list of arrays.
HEADS = (
    "", "null", "[]", "[1,2]", '["null",[]]', '["[]",[]]', '["{}",[]]',
    json.dumps(['{"cases":[{}]}', []]),
    json.dumps(['{"cases":[{"id":"mha","inputs":{},"results":[]}]}', []]),
    json.dumps([CASES.replace("{}", "[]"), []]),
    json.dumps([CASES, [["a"]]]),
    json.dumps([CASES, [["a", "float31", [2], "whole", ""]]]),
    json.dumps([CASES, [["a", "float64", [2], "whole", ""]]]),
    json.dumps([CASES, [["a", "float64", [-1], "whole", ""]]]),
    json.dumps([CASES, [["a", "float64", "2", "whole", ""]]]),
    json.dumps([CASES, [["a", "float64", [2], "drawn", ""]]]),
    json.dumps([CASES, [["a", "float64", [2], "same", "b"]]]),
    json.dumps([CASES, [["a", "float64", [2], "nothing", ""]]]),
    "[" * 100_000,
)  # fmt: skip


def _deflated(head: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    text = head.encode()
    block = len(text).to_bytes(8, "little") + text
    return np.frombuffer(zlib.compress(block), dtype=np.uint8)


def test_a_damaged_packing_is_one_sentence(record: Callable[..., str]) -> None:
    """A flipped bit, missing bytes and an array that is no packing raise one sentence each."""
    arrays, _ = load_tensors(Path(record(RIGHT, "--cases", "40", "--compact")).read_bytes())
    data = arrays[PACKED]
    turned = data.copy()
    turned[len(turned) // 2] ^= 1
    foreign = [_deflated(head) for head in HEADS]
    for damaged in (turned, data[:-7], data[:0], *foreign):
        with pytest.raises(FormatError, match="is damaged: it cannot be unpacked"):
            unpack_arrays({PACKED: damaged})
