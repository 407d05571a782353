"""The house keeps its rules: directions of imports, sizes of files and functions, public lists.

Each rule is a function from sources to a list of offences, so that every one can be shown a planted
offender and has to find it.
"""

from __future__ import annotations

import ast
import importlib
import statistics
import sys
from pathlib import Path

import pytest

from import_graph import circle, import_graph, imported, module_paths, package_of, sources

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    "mha_numpy": ROOT / "impl" / "mha_numpy",
    "mha_torch": ROOT / "reference" / "mha_torch",
    "mha_parity": ROOT / "parity_tests" / "mha_parity",
}
SOURCE_ROOTS = {"impl", "reference", "parity_tests"}
FORBIDDEN = {
    "mha_numpy": SOURCE_ROOTS | {"torch", "mha_torch", "mha_parity"},
    "mha_torch": SOURCE_ROOTS | {"mha_numpy", "mha_parity"},
    "mha_parity": SOURCE_ROOTS,
}
# The NumPy attention at import, and the weight it may take on when it is asked for it.
LIGHT = sys.stdlib_module_names | {"mha_numpy", "numpy"}
LATE = LIGHT | {"matplotlib", "ml_dtypes", "threadpoolctl"}

MOST_LINES = 400
packages = pytest.mark.parametrize("package", PACKAGES)


def parse(path: Path) -> ast.Module:
    """Read one module."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def wrong_directions(folder: Path, forbidden: set[str]) -> list[str]:
    """List the imports of a package that go against the one direction."""
    found = module_paths(folder)
    return [
        f"{path.name}:{line} imports {name}"
        for module, path in found.items()
        for line, name in imported(parse(path), package_of(module, found))
        if name.split(".")[0] in forbidden
    ]


def heavy_imports(folder: Path) -> list[str]:
    """List what the NumPy attention imports beyond its few dependencies, at once or late."""
    offences = []
    found = module_paths(folder)
    for module, path in found.items():
        tree, package = parse(path), package_of(module, found)
        at_once = {
            name
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for _, name in imported(node, package)
        }
        for line, name in imported(tree, package):
            if name.split(".")[0] not in (LIGHT if name in at_once else LATE):
                offences.append(f"{path.name}:{line} imports {name}")
    return offences


def long_files(folder: Path, most: int = MOST_LINES) -> list[str]:
    """List the files that are more than one room."""
    counts = {path: len(path.read_text("utf-8").splitlines()) for path in folder.rglob("*.py")}
    return [f"{path.name}: {count} lines" for path, count in counts.items() if count > most]


def docstring_lines(node: ast.AST) -> set[int]:
    """Return the lines that the docstring of a function takes."""
    match node:
        case ast.FunctionDef(body=[first, *_]) | ast.AsyncFunctionDef(body=[first, *_]):
            match first:
                case ast.Expr(value=ast.Constant(value=str())):
                    return set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return set()


def function_lengths(folder: Path) -> dict[str, int]:
    """Count the lines of code of every function: no docstring, no comments, no empty lines."""
    lengths = {}
    for path in folder.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        code = {n for n, text in enumerate(lines, 1) if text.strip() and text.strip()[0] != "#"}
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                span = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                key = f"{path.name}:{node.lineno} {node.name}"
                lengths[key] = len(span & code - docstring_lines(node))
    return lengths


def long_functions(lengths: dict[str, int]) -> list[str]:
    """Hold the house rule: a median under 10 lines, 90 % under 40, none over 80."""
    counts = list(lengths.values())
    rows = [f"{name}: {n} lines, none should pass 80" for name, n in lengths.items() if n > 80]
    if statistics.median(counts) >= 10:
        rows.append(f"median = {statistics.median(counts)} lines, but should be under 10")
    share = statistics.fmean(n < 40 for n in counts)
    if share < 0.9:
        rows.append(f"{share:.0%} of the functions are under 40 lines, but 90 % should be")
    return rows


def bound_names(tree: ast.Module, package: str) -> set[str]:
    """Return the public names that a module defines, or takes from its own package.

    What stands under `if TYPE_CHECKING` counts: it tells of what is loaded on first use.
    """
    names = set()
    for node in [
        *tree.body,
        *(n for top in tree.body if isinstance(top, ast.If) for n in top.body),
    ]:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.ImportFrom(module=base, names=aliases, level=level) if (
                level or (base or "").split(".")[0] == package
            ):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def untrue_list(module: str, path: Path) -> list[str]:
    """Compare the public list of a package with what it offers; no list means nothing."""
    package = importlib.import_module(module)
    listed: list[str] = getattr(package, "__all__", [])
    rows = [f"{name} is listed twice" for name in set(listed) if listed.count(name) > 1]
    rows += [f"{name} is listed and missing" for name in listed if not hasattr(package, name)]
    missing = bound_names(parse(path), module.partition(".")[0]) - set(listed)
    return rows + [f"{name} is offered and not listed" for name in sorted(missing)]


def plant(folder: Path, **sources: str) -> Path:
    """Write modules into a package, each from its source."""
    folder.mkdir()
    for name, source in {"__init__": "", **sources}.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return folder


@packages
def test_imports_go_one_way(package: str) -> None:
    """Implementation and oracle know neither each other nor the harness; no root is a package."""
    offences = wrong_directions(PACKAGES[package], FORBIDDEN[package])
    assert [] == offences


@pytest.mark.parametrize("package", ["conftest", "parity_tests"])
def test_no_test_imports_a_source_root(package: str) -> None:
    """`import impl.mha_numpy` would load a second copy of the package; no test does that."""
    tests = (
        [ROOT / "conftest.py"] if package == "conftest" else ROOT.glob("parity_tests/tests/**/*.py")
    )
    offences = [
        f"{path.name}:{line} imports {name}"
        for path in tests
        for line, name in imported(parse(path), path.parent.name)
        if name.split(".")[0] in SOURCE_ROOTS
    ]
    assert [] == offences


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "import torch.nn.functional as F",
        "from torch import nn",
        "def f():\n    import mha_torch",
        "if True:\n    from mha_parity.core.case import Case",
        "import importlib\nimportlib.import_module('torch.nn')",
        "__import__('torch')",
        "from impl.mha_numpy import textbook",
        "from reference import mha_torch",
    ],
)
def test_wrong_direction_is_found(tmp_path: Path, source: str) -> None:
    """An import against the direction is found, at the top, late, conditional or by its name."""
    folder = plant(tmp_path / "mha_numpy", core=source)
    assert 1 == len(wrong_directions(folder, FORBIDDEN["mha_numpy"]))


def test_numpy_attention_is_light() -> None:
    """The NumPy attention imports NumPy at once, and three more libraries only when asked."""
    assert [] == heavy_imports(PACKAGES["mha_numpy"])


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import numpy as np\nimport math", 0),
        ("def f():\n    import threadpoolctl", 0),
        ("import threadpoolctl", 1),
        ("from matplotlib import pyplot", 1),
        ("def f():\n    import scipy.linalg", 1),
    ],
)
def test_heavy_import_is_found(tmp_path: Path, source: str, count: int) -> None:
    """A library that belongs in a function is found at the top, a strange one everywhere."""
    folder = plant(tmp_path / "mha_numpy", core=source)
    assert count == len(heavy_imports(folder))


@packages
def test_imports_have_no_circle(package: str) -> None:
    """The modules of a package stand in an order in which each needs only earlier ones."""
    assert [] == circle(import_graph(sources(PACKAGES[package]), types=False))


@pytest.mark.parametrize(
    "planted",
    [
        {"a": "from pkg import b", "b": "from pkg.a import f"},
        {"a": "from . import b", "b": "from .a import f"},
        {"a": "import pkg.b", "b": "def f():\n    import pkg.c", "c": "from pkg.a import x"},
    ],
    ids=["absolute", "relative", "late"],
)
def test_circle_is_found(planted: dict[str, str]) -> None:
    """A circle is found however its imports are written, late ones included."""
    modules = {f"pkg.{name}": source for name, source in planted.items()}
    assert set(modules) == set(circle(import_graph(modules, types=False)))


def test_order_is_no_circle() -> None:
    """Modules that need only earlier ones raise no alarm; a name for an annotation is no need."""
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import a"
    modules = {"pkg.a": types, "pkg.b": "from . import a", "pkg.c": "from .b import a"}
    assert [] == circle(import_graph(modules, types=False))


@packages
def test_files_are_one_room(package: str) -> None:
    """No file of a package is longer than 400 lines."""
    assert [] == long_files(PACKAGES[package])


def test_long_file_is_found(tmp_path: Path) -> None:
    """A file of 401 lines is found, one of 400 is not."""
    folder = plant(tmp_path / "pkg", long="x = 1\n" * 401, short="x = 1\n" * 400)
    assert ["long.py: 401 lines"] == long_files(folder)


def test_functions_fit_the_eye() -> None:
    """Over the three packages half the functions are under 10 lines, 90 % under 40, none over 80.

    Docstrings, comments and empty lines do not count.
    """
    lengths: dict[str, int] = {}
    for package, folder in PACKAGES.items():
        lengths |= {f"{package}/{key}": n for key, n in function_lengths(folder).items()}
    assert [] == long_functions(lengths)


def test_docstrings_and_comments_do_not_count(tmp_path: Path) -> None:
    """A function of two lines of code stays one of two, whatever is written about it."""
    source = 'def f(x):\n    """Say.\n\n    More.\n    """\n\n    # Why.\n    return x\n'
    folder = plant(tmp_path / "pkg", module=source)
    assert {"module.py:1 f": 2} == function_lengths(folder)


@pytest.mark.parametrize(
    ("lines", "offence"),
    [
        ([9] * 9 + [39], None),
        ([1] * 99 + [81], "f99: 81 lines, none should pass 80"),
        ([10] * 10, "median = 10.0 lines, but should be under 10"),
        ([1] * 8 + [40] * 2, "80% of the functions are under 40 lines, but 90 % should be"),
    ],
    ids=["good", "one giant", "all too long", "too many long"],
)
def test_long_function_is_found(lines: list[int], offence: str | None) -> None:
    """Each of the three limits on functions fires by itself."""
    offences = long_functions({f"f{index}": n for index, n in enumerate(lines)})
    assert ([offence] if offence else []) == offences


@pytest.mark.parametrize(
    ("package", "path"),
    [
        pytest.param(name, path, id=name)
        for folder in PACKAGES.values()
        for name, path in module_paths(folder).items()
        # The rooms inside the harness offer nothing to code outside it.
        if path.name == "__init__.py" and "mha_parity" not in path.parts[:-2]
    ],
)
def test_public_list_is_true(package: str, path: Path) -> None:
    """`__all__` lists what a package offers: each name exists, and no public name is left out."""
    assert [] == untrue_list(package, path)


@pytest.mark.parametrize(
    ("source", "offence"),
    [
        ("__all__ = ['f']\ndef f(): ...", None),
        ("__all__ = ['f']", "f is listed and missing"),
        ("__all__ = ['f', 'f']\ndef f(): ...", "f is listed twice"),
        ("__all__ = []\nLIMIT = 1", "LIMIT is offered and not listed"),
        ("class Case: ...", "Case is offered and not listed"),
        ("__all__ = []\nfrom .core import f", "f is offered and not listed"),
        ("__all__ = []\nif 0:\n    from .core import f", "f is offered and not listed"),
    ],
)
def test_untrue_list_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, offence: str | None
) -> None:
    """A public list that says too much, too little or something twice is found."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"planted_{abs(hash(source))}"
    plant(tmp_path / name, core="def f(): ...")
    (tmp_path / name / "__init__.py").write_text(source, encoding="utf-8")
    offences = untrue_list(name, tmp_path / name / "__init__.py")
    assert ([offence] if offence else []) == offences
