"""Write and read the file of recorded answers: safetensors with a manifest in its metadata.

``schema.json`` describes the manifest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.answers.array_storage import PACKED, pack_arrays, unpack_arrays
from mha_parity.answers.tensors import Restored, split_long_double
from mha_parity.core.case import parse
from mha_parity.core.errors import UsageError
from mha_parity.core.problem import Problem
from mha_parity.core.safetensors import FormatError, dump, load_tensors
from mha_parity.oracle.error_bound import BOUND
from mha_parity.oracle.torch_answers import Record, digest, known_digests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.answers.record_case import RecordedCase
    from mha_parity.core.arrays import Array

SCHEMA = "mha-parity-answers/1"
NAME, VERSION = SCHEMA.split("/")
REMEDY = "write it anew by `mha-parity record`"


def write_record(
    path: str, record: Record, cases: list[RecordedCase], *, compact: bool = False
) -> int:
    """Write the record and what is allowed in each case; return the number of bytes.

    A ``compact`` file takes less room, and is read by this package alone: it has the same arrays,
    but for the bounds of single elements, which are computed anew.
    """
    arrays: dict[str, Array] = {}
    left_out = {BOUND} if compact else set()
    listed = [_listed(number, each, arrays, left_out) for number, each in enumerate(cases)]
    manifest = {
        "schema": SCHEMA,
        "environment": record.environment,
        "shares_nan": list(record.shares_nan),
        "cases": listed,
    }
    text = json.dumps(manifest, separators=(",", ":"))
    metadata = {"schema": SCHEMA, "sha256": _checksum(text, arrays), "manifest": text}
    if compact:
        metadata.pop("manifest")
        arrays = pack_arrays(arrays, text)
    block = dump(arrays, metadata)
    Path(path).write_bytes(block)
    return len(block)


def _listed(
    number: int, each: RecordedCase, arrays: dict[str, Array], left_out: set[str]
) -> dict[str, Any]:
    """Return the entry of a case in the manifest, and put its arrays among ``arrays``."""

    def put(name: str, array: Array) -> str:
        arrays.update(split_long_double(f"{number}/{name}", array))
        return f"{number}/{name}"

    names: dict[int, str] = {}  # one array that goes in twice stays one array
    inputs = {}
    for field in dataclasses.fields(Problem):
        array = getattr(each.problem, field.name)
        if isinstance(array, np.ndarray):
            inputs[field.name] = names.setdefault(id(array), f"{number}/{field.name}")
            arrays[names[id(array)]] = array
    results = [
        {
            "kind": kind,
            "problem": problem,
            "arrays": {k: put(f"{place}.{kind}.{k}", a) for k, a in found.items()},
        }
        for place, ((kind, problem), found) in enumerate(each.results.items())
        if kind not in left_out
    ]
    return {
        "id": each.problem.case.id,
        "problem": digest(each.problem),
        "options": each.options,
        "inputs": inputs,
        "results": results,
        "allowed": {name: put(f"allowed.{name}", a) for name, a in each.allowed.items()},
        "exposes": list(each.exposes),
        "bound": {name: put(f"bound.{name}", a) for name, a in each.bound.items()},
    }


def read_record(path: str) -> Record:
    """Return the record that a file holds; it is closed.

    Raises
    ------
    UsageError
        There is no such file; it is damaged, no such record, or of a later version.

    """
    try:
        arrays, metadata = load_tensors(Path(path).read_bytes(), copied=False)
        return _record(arrays, metadata)
    except OSError as error:
        raise UsageError(
            f"got --answers {path}, which cannot be read: {error.strerror}; {REMEDY}."
        ) from None
    except FormatError as error:
        raise UsageError(f"got --answers {path}, which {error}; {REMEDY}.") from None


def _record(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> Record:
    name, _, version = metadata.get("schema", "").partition("/")
    if name != NAME:
        raise FormatError("has no recorded answers in it")
    if version != VERSION:
        raise FormatError(
            f"has answers of version {version}, but this mha-parity reads version {VERSION}: "
            "upgrade it, or downgrade what wrote them"
        )
    text = metadata.get("manifest", "")
    drawn_here = ""
    if PACKED in arrays:
        arrays, text = unpack_arrays(arrays)
        drawn_here = ", or this mha-parity draws other cases"
    if _checksum(text, arrays) != metadata.get("sha256"):
        raise FormatError(
            f"is damaged: its numbers do not have the checksum that it names{drawn_here}"
        )
    manifest = json.loads(text)
    record = Record(
        environment=manifest["environment"], shares_nan=tuple(manifest["shares_nan"]), closed=True
    )
    for entry in manifest["cases"]:
        problem = _problem(entry, arrays)
        if "problem" in entry:
            known_digests[problem] = entry["problem"]
        record.problems[problem.case] = problem
        record.exposed[problem.case] = frozenset(entry["exposes"])
        for result in entry["results"]:
            found = Restored(result["arrays"], arrays)
            record.results[result["kind"], result["problem"]] = found
    return record


def _problem(entry: Mapping[str, Any], arrays: Mapping[str, Array]) -> Problem:
    case = parse(entry["id"])
    scale = float(entry["options"]["scale"]) if case.scale == "given" else None
    copies: dict[str, Array] = {}  # one array that goes in twice stays one array
    inputs = {
        name: copies.setdefault(each, arrays[each].copy()) for name, each in entry["inputs"].items()
    }
    return Problem(case=case, given_scale=scale, single_call=False, **inputs)


def _checksum(text: str, arrays: Mapping[str, Array]) -> str:
    found = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name}:{array.dtype.name}:{array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
