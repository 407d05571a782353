"""Tests ask public names, and what they share is written once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from subject_checks import SUBJECTS

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "parity_tests" / "tests"
HELPER = TESTS / "helpers" / "subject_checks.py"
SOURCES = {"mha_numpy": "impl", "mha_parity": "parity_tests", "mha_torch": "reference"}
FILES = sorted(TESTS.rglob("*.py"))
# Whose private names a test may use: of an object's own class, and of protocols of other libraries.
OWN = {"self", "cls", "super()"}
PROTOCOLS = {"_actions", "_field_defaults", "_option_string_actions", "_replace", "_repr_html_"}
ENGINE = "a bug is planted within the engine: the function is called inside it alone"
GUARD = "one of two guards is taken away, which no option does"
# What still reads private names, by its path in this folder, and why.
PRIVATE = {
    "cli/test_default_run.py": (ENGINE, "flash._attend_block", "flash._pass"),
    "numpy/conftest.py": (
        "the number of threads before any choice cannot be set again", "pool._chosen"
    ),
    "numpy/test_blas_threads.py": (
        "a name of threadpoolctl, which the engine calls", "library._real_set_num_threads"
    ),
    "numpy/test_engine_flash_tiles.py": (
        "a file of the system says how large the cache is", "engine_tiles._CACHE"
    ),
    "numpy/test_engine_prepared.py": (
        "both ways give one answer, so that only the choice shows", "prepared._fits"
    ),
    "numpy/test_engine_threads.py": (
        "busy threads, and a BLAS of two threads, stand in the place of the engine's",
        "pool._blas_libraries", "pool._helpers"
    ),
    "worker/test_isolation.py": (
        GUARD, "Process._resident", "candidate._process", "candidate._setup"
    ),
    "worker/test_timeouts.py": ("whether trials were cut short is not said", "candidate._setup"),
}  # fmt: skip


def private_imports(text: str) -> list[str]:
    """Return the private names of our packages that a test imports; a module's name is none."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return [
        f"{node.module}.{each.name}"
        for node in imports
        for each in node.names
        if each.name.startswith("_")
        and not each.name.startswith("__")
        and node.module is not None
        and (source := SOURCES.get(node.module.partition(".")[0])) is not None
        and not (ROOT / source).joinpath(*node.module.split("."), f"{each.name}.py").is_file()
    ]


def private_access(text: str) -> list[str]:
    """Return the private attributes that a test reads or sets of what is not its own.

    Of another library's modules, named tuples, IPython's protocol and argparse they are not ours.
    """
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    foreign = {
        (each.asname or each.name).partition(".")[0]
        for node in imports
        for each in node.names
        if (getattr(node, "module", None) or each.name).partition(".")[0] not in SOURCES
    }
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=holder, attr=name):
                pass
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[holder, ast.Constant(value=str(name)), *_],
            ) if called in {"setattr", "getattr", "delattr", "hasattr"}:
                pass
            case _:
                continue
        owner = ast.unparse(holder)
        private = name.startswith("_") and not name.endswith("__") and name not in PROTOCOLS
        if private and owner not in OWN and re.split(r"\W", owner)[0] not in foreign:
            found.append(f"{owner}.{name}")
    return sorted(set(found))


def late_literals(text: str) -> list[int]:
    """Return the lines that assert an equality with the literal behind the expression."""
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                found += [node.lineno] if is_literal(right) and not is_literal(left) else []
    return sorted(found)


def is_literal(node: ast.expr) -> bool:
    """Return whether an expression is made of constants alone."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def own_folders(text: str) -> list[int]:
    """Return the lines of a test that write anew where the subjects lie, or name something so."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(
                isinstance(each, ast.Name) and each.id == SUBJECTS.name.upper() for each in targets
            ):
                found.append(node.lineno)
        elif isinstance(node, ast.BinOp | ast.JoinedStr):
            parts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            named = any(SUBJECTS.name in str(each).split("/") for each in parts)
            here = any(isinstance(e, ast.Name) and e.id == "__file__" for e in ast.walk(node))
            if named and here:
                found.append(node.lineno)
    return sorted(set(found))


def test_no_test_imports_a_private_name() -> None:
    """What a test holds has a name that others may use too."""
    found = {path.name: private_imports(path.read_text(encoding="utf-8")) for path in FILES}
    assert {} == {name: names for name, names in found.items() if names}


def test_literals_come_first() -> None:
    """An equality is asserted in one order: `assert 0 == count(rows)`."""
    found = {path.name: late_literals(path.read_text(encoding="utf-8")) for path in FILES}
    assert {} == {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("assert count(rows) == 0", [1]),
        ("def test_f():\n    assert f() == -1, 'why'", [2]),
        ("assert f() == {'a': [1, (2, None)]}", [1]),
        ("assert f() == (\n    'text'\n)", [1]),
        ("assert 0 == count(rows)", []),
        ("assert f() == {'a': g()}", []),
        ("assert f() <= 3", []),
        ("assert f() is None", []),
    ],
)
def test_a_late_literal_is_found(text: str, found: list[int]) -> None:
    """Whatever the literal is made of; a comparison with a computed value has no order."""
    assert found == late_literals(text)


def test_where_the_subjects_lie_is_written_once() -> None:
    """Tests take their folder from the module that checks them."""
    found = {path: own_folders(path.read_text(encoding="utf-8")) for path in FILES}
    assert [HELPER] == [path for path, lines in found.items() if lines]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from mha_parity.run.shards import _kept", ["mha_parity.run.shards._kept"]),
        ("def f():\n    from mha_numpy.state import _a, b", ["mha_numpy.state._a"]),
        ("from mha_parity import __version__", []),
        ("from mha_torch import _trial_masks", []),
        ("from mha_torch._paths import Path", []),
        ("from json import _default_decoder", []),
    ],
)
def test_a_private_import_is_found(text: str, found: list[str]) -> None:
    """Wherever it stands; modules of a package that is private as a whole are none."""
    assert found == private_imports(text)


def test_private_attributes_are_read_for_a_reason() -> None:
    """The list of those that are left is complete, and names none that is gone."""
    found = {
        str(path.relative_to(TESTS)): private_access(path.read_text(encoding="utf-8"))
        for path in FILES
    }
    listed = {path: sorted(names) for path, (_, *names) in PRIVATE.items()}
    assert listed == {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from mha_parity.judging import output\noutput._limit", ["output._limit"]),
        ("def test_f():\n    assert 1 == Judge(x)._limit(y)", ["Judge(x)._limit"]),
        ("made._answers.append(1)", ["made._answers"]),
        ("monkeypatch.setattr(pool, '_helpers', None)", ["pool._helpers"]),
        ("getattr(pool, '_helpers')", ["pool._helpers"]),
        ("a._b._c", ["a._b", "a._b._c"]),
        ("class A:\n    def f(self):\n        return self._x", []),
        ("import torch\ntorch._C._get()", []),
        ("from rich import console as shown\nshown._x", []),
        ("call._replace(first=2)", []),
        ("layer.__class__.__name__", []),
    ],
)
def test_a_private_attribute_is_found(text: str, found: list[str]) -> None:
    """Read, called or set by its name; one's own is none, nor is another library's."""
    assert found == private_access(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SUBJECTS = 3", [1]),
        ("SUBJECTS: int = 3", [1]),
        ('\nFILE = Path(__file__).parents[2] / "subjects" / "styles.py"', [2]),
        ('FILE = f"{Path(__file__).parents[2]}/subjects/styles.py"', [1]),
        ('FILE = SUBJECTS / "styles.py"', []),
        ('DOCS = Path(__file__).parents[2] / "docs"', []),
    ],
)
def test_a_second_folder_is_found(text: str, found: list[int]) -> None:
    """By its name, or by its way from the test's own file."""
    assert found == own_folders(text)
