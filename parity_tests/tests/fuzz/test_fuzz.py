"""Whatever text, file or message comes in: a sentence or an answer, and no other exception.

Few fixed examples each; `make fuzz` draws a thousand new ones (MHA_PARITY_FUZZ is their number).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from mha_parity.__main__ import main
from mha_parity.answers import answers_file
from mha_parity.bench import compare, json_document
from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer, TargetError
from mha_parity.core.case import ID_WORDS, SIZES, Case, parse
from mha_parity.core.features import AXES
from mha_parity.core.option_flags import FLAGS, with_keywords
from mha_parity.core.options import Options
from mha_parity.core.safetensors import FormatError
from mha_parity.targets.load import load
from mha_parity.worker.framing import BlockReader, frame_block
from mha_parity.worker.messages import PROTOCOL, Calling, Loaded, Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEEP = os.environ.get("MHA_PARITY_FUZZ")
LAYER = "mha_numpy:MultiheadAttention"
PARSED = [name for name, flag in FLAGS.items() if "type" in flag]


def fuzzed(examples: int = 100) -> settings:
    """Return settings of fixed examples, or of as many new ones as MHA_PARITY_FUZZ says."""
    return settings(
        max_examples=int(DEEP) if DEEP else examples,
        derandomize=DEEP is None,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def status(*arguments: str) -> int:
    """Return the exit status of a command, its output thrown away."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return main(arguments)
        except SystemExit as left:  # argparse's way of refusing
            return int(left.code or 0)


WORDS = [word for table in ID_WORDS.values() for word in table.values() if word]
ID_PARTS = st.one_of(
    st.sampled_from(WORDS),
    st.builds("{}{}".format, st.sampled_from([*SIZES]), st.integers(0, 5)),
    st.text(max_size=4),
)
IDS = st.one_of(st.text(max_size=40), st.lists(ID_PARTS, max_size=12).map("-".join))


@given(text=IDS)
@fuzzed()
def test_a_case_id_is_read_back_or_refused(text: str) -> None:
    """What is accepted names one case, whose own id names it again."""
    with contextlib.suppress(ValueError):
        case = parse(text)
        assert case == parse(case.id)


SMALL = st.integers(0, 4)
CASES = st.builds(
    Case,
    seed=st.integers(0, 10**6),
    **dict.fromkeys(("batch", "queries", "keys", "heads_count", "head_dim"), SMALL),
    **dict.fromkeys(("kv_heads_count", "v_head_dim", "kdim", "vdim"), st.sampled_from([0, 0, 3])),
    **{axis: st.sampled_from([*table]) for axis, table in ID_WORDS.items() if axis != "gradients"},
)  # fmt: skip


@given(case=CASES)
@fuzzed(20)
def test_a_case_of_any_sizes_is_replayed_or_refused(case: Case) -> None:
    """What is no problem is refused in a sentence. Kills tracebacks of impossible sizes."""
    assert status("replay", case.id, LAYER, "--in-process") in {0, 1, 2}


FEATURE = st.sampled_from([f"{axis}={value}" for axis in AXES for value in AXES[axis]])
OPTION_TEXTS = st.one_of(
    st.text(max_size=20),
    st.lists(FEATURE, max_size=4).map(",".join),
    st.sampled_from(["1e400", "nan", "-1", "9" * 5000, "a=keeps:(N,1)", "=", ",", "=,=", "²"]),
)


@given(
    name=st.sampled_from([name for name, flag in FLAGS.items() if "type" in flag]),
    text=OPTION_TEXTS,
)
@fuzzed()
def test_the_text_of_an_option_is_taken_or_refused(name: str, text: str) -> None:
    """By the command as by a keyword, with one kind of exception each."""
    by_command = _taken(lambda: FLAGS[name]["type"](text), argparse.ArgumentTypeError)
    by_keyword = _taken(
        lambda: with_keywords(Options(), {name.replace("-", "_"): text}), ValueError
    )
    assert by_command == by_keyword


def _taken(take: Callable[[], object], refusal: type[Exception]) -> bool:
    """Return whether a call returns, and does not raise what refuses."""
    try:
        take()
    except refusal:
        return False
    return True


@given(features=st.lists(FEATURE, min_size=1, max_size=5).map(",".join))
@fuzzed(20)
def test_any_features_are_judged_or_refused(features: str) -> None:
    """A right layer never fails, whatever is left of its cases."""
    options = ("--cases", "2", "--in-process")
    assert status("check", LAYER, *options, "--features", features) in {0, 2, 3}


CODE = st.sampled_from([
    "import numpy as np", "def f(q, k, v):\n    return v", "f = missing", "%matplotlib inline",
    "!ls", "f?", "x = 1 +", "class f: pass", "f = 3", "\x00", "import no_such_module", "raise f",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
CELLS = st.lists(
    st.one_of(
        st.fixed_dictionaries({
            "cell_type": st.sampled_from(["code", "markdown", "raw", "other"]),
            "metadata": st.just({}), "outputs": st.just([]), "execution_count": st.none(),
            "source": st.one_of(CODE, st.lists(CODE, max_size=2), JSON),
        }),
        JSON,
    ),
    max_size=4,
)  # fmt: skip
NOTEBOOKS = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {"cells": CELLS | JSON, "metadata": st.just({}) | JSON},
        optional={"nbformat": st.sampled_from([3, 4, 5, "4", None]), "nbformat_minor": st.just(5)},
    ),
)

READABLE = {
    "cells": [{
        "cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
        "source": "def f(q, k, v):\n    return v",
    }],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 4,
}  # fmt: skip


@given(notebook=NOTEBOOKS, cut=st.integers(0, 30))
@example(notebook=READABLE, cut=0)
@fuzzed(60)
def test_a_notebook_is_read_or_refused(
    notebook: Any, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of any JSON, whole or cut off, comes what its cells name so, or a sentence."""
    path = tmp_path_factory.mktemp("fuzz") / "some.ipynb"
    text = json.dumps(notebook)
    path.write_text(text[: -cut or None], encoding="utf-8")
    with contextlib.suppress(TargetError):
        assert "f" == load(f"{path}:f").__name__


PROBLEM = make_problem(
    Case(seed=1, batch=1, queries=2, keys=3, heads_count=1, head_dim=2, inputs="cross")
)
ANSWER = Answer(output=PROBLEM.query, weights=PROBLEM.key, held=("inputs unchanged",))
BLOCKS = [
    PROTOCOL.encode(3, ANSWER),
    PROTOCOL.encode(None, Refused(sentence="no")),
    PROTOCOL.encode(None, Loaded()),
    PROTOCOL.encode(4, Calling()),
    PROTOCOL.encode(5, PROBLEM),
]
MUTATIONS = st.lists(st.tuples(st.integers(0, 10**4), st.binary(max_size=3)), max_size=4)


def mutated(block: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    """Return a block with some bytes replaced by fewer or more."""
    for place, piece in changes:
        at = place % (len(block) + 1)
        block = block[:at] + piece + block[at + 1 :]
    return block


@given(block=st.sampled_from(BLOCKS), changes=MUTATIONS)
@fuzzed()
def test_a_message_is_of_the_protocol_or_refused(
    block: bytes, changes: list[tuple[int, bytes]]
) -> None:
    """What is read has the types that its class declares, so that nothing fails by it later."""
    with contextlib.suppress(FormatError):
        number, message = PROTOCOL.decode(mutated(block, changes))
        assert number is None or isinstance(number, int)
        again, same = PROTOCOL.decode(PROTOCOL.encode(number, message))
        assert (number, type(message)) == (again, type(same))
        if isinstance(message, Answer):
            assert isinstance(message.output, np.ndarray)


@given(text=st.one_of(st.binary(max_size=60), JSON.map(lambda v: json.dumps(v).encode())))
@fuzzed()
def test_bytes_in_any_pieces_are_blocks_or_refused(text: bytes) -> None:
    """Every cut gives the same blocks. Kills a reader that depends on what a pipe delivers."""
    for stream in (text, frame_block(text) * 2):
        outcomes = set()
        for size in (1, 7, len(stream) or 1):
            reader = BlockReader()
            found: list[bytes] = []
            try:
                for start in range(0, len(stream), size):
                    found += reader.feed(stream[start : start + size])
            except FormatError as error:
                found.append(str(error).encode())
            outcomes.add(tuple(found))
        assert 1 == len(outcomes)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the file of the recorded answers to two small cases."""
    path = tmp_path_factory.mktemp("answers") / "two.safetensors"
    assert 0 == status("record", LAYER, "-o", str(path), "--cases", "2", "--in-process")
    return path.read_bytes()


@given(changes=MUTATIONS.filter(bool))
@fuzzed(60)
def test_recorded_answers_are_read_unchanged_or_refused(
    changes: list[tuple[int, bytes]], answers: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No damage gives other answers: the checksum has names, dtypes, shapes and numbers."""
    path = tmp_path_factory.mktemp("fuzz") / "some.safetensors"
    path.write_bytes(answers)
    whole = answers_file.read_record(str(path))
    # Half of the changes go into the header, which is a small part of the file.
    header = 8 + int.from_bytes(answers[:8], "little")
    changes = [(at % header if at % 2 else at * 97, piece) for at, piece in changes]
    path.write_bytes(mutated(answers, changes))
    with contextlib.suppress(ValueError):
        found = answers_file.read_record(str(path))
        assert whole.problems.keys() == found.problems.keys()
        for case, problem in whole.problems.items():
            for field in fields(problem):
                expected, actual = (getattr(p, field.name) for p in (problem, found.problems[case]))
                assert type(expected) is type(actual)
                if isinstance(expected, np.ndarray):
                    assert (expected.shape, expected.dtype) == (actual.shape, actual.dtype)
                    assert expected.tobytes() == actual.tobytes()


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [("dtype", b'"F64"', b'"I64"'), ("blank", b'"dtype":', b'"dtype": ')],
)
def test_the_checksum_has_the_header(
    field: str, before: bytes, after: bytes, answers: bytes, tmp_path: Path
) -> None:
    """A header that gives the same bytes another dtype is damage; a blank in it is none."""
    path = tmp_path / "some.safetensors"
    assert before in answers
    header = 8 + int.from_bytes(answers[:8], "little")
    text = answers[8:header].replace(before, after).rstrip()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + answers[header:])
    if field == "blank":
        answers_file.read_record(str(path))
        return
    with pytest.raises(ValueError, match="is damaged: its numbers do not have the checksum"):
        answers_file.read_record(str(path))


@given(document=st.dictionaries(st.sampled_from(["tasks", "environment", "schema"]), JSON))
@fuzzed()
def test_a_baseline_of_the_benchmark_is_compared_or_refused(
    document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A document of the right schema and of any content ends in a sentence, or in no change."""
    path = tmp_path_factory.mktemp("fuzz") / "baseline.json"
    path.write_text(json.dumps(document | {"schema": json_document.SCHEMA}), encoding="utf-8")
    found: object = ()
    with contextlib.suppress(ValueError):
        found = compare.changes(
            json_document.read_report(str(path)), {"tasks": [], "environment": {}}
        )
    assert not found
