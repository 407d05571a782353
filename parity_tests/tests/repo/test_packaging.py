"""What is shipped, what an import loads, and what the Makefile says on a bare machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("mha_numpy", "mha_torch", "mha_parity")
TOP_LEVEL = {"LICENSE", "Makefile", "README.md", "conftest.py", "pyproject.toml"}
SOURCE_ROOTS = {"impl", "reference", "parity_tests"}
HEAVY = ("numpy", "torch", "matplotlib", "hypothesis")


def fresh(code: str, path: Path | None = None) -> str:
    """Run code in a Python of its own, isolated from this one, and return what it prints."""
    if path is not None:
        code = f"import sys; sys.path.insert(0, {str(path)!r})\n{code}"
    command = [sys.executable, "-I", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


def loaded_by(module: str, names: Iterable[str], path: Path | None = None) -> set[str]:
    """Return which of the named modules one import brings into a fresh process."""
    printed = fresh(f"import sys, {module}; print(*sys.modules)", path)
    return set(printed.split()) & set(names)


@pytest.fixture(scope="module")
def wheel(built: Path) -> list[str]:
    """Return the names in the wheel."""
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


@pytest.fixture(scope="module")
def sdist(built: Path) -> list[str]:
    """Return the names in the sdist, without its one folder."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def strangers(names: Iterable[str]) -> list[str]:
    """List what has no business in a wheel: other top-level names than ours, tests, caches."""
    ours = re.compile(rf"({'|'.join(PACKAGES)}|mha_parity-[^/]*\.dist-info)/")
    alien = re.compile(r"(^|/)(test_[^/]*|conftest)\.py$|__pycache__")
    return [name for name in names if not ours.match(name) or alien.search(name)]


def test_wheel_holds_the_three_packages(wheel: list[str]) -> None:
    """Its top-level names are the three packages and the metadata; no test is shipped."""
    version = importlib.metadata.version("mha-parity")
    assert {*PACKAGES, f"mha_parity-{version}.dist-info"} == {name.split("/")[0] for name in wheel}
    assert [] == strangers(wheel)


@pytest.mark.parametrize(
    "name",
    [
        "impl/mha_numpy/__init__.py",
        "parity_tests/tests/repo/test_packaging.py",
        "mha_parity/test_case.py",
        "mha_parity/conftest.py",
        "mha_numpy/__pycache__/costs.cpython-311.pyc",
        "conftest.py",
    ],
)
def test_stranger_in_the_wheel_is_found(wheel: list[str], name: str) -> None:
    """A source root, a test or a cache in the wheel is found."""
    assert [name] == strangers([*wheel, name])


def required(built: Path) -> list[str]:
    """Return the requirements that the wheel names, those of extras too."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    return re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)


def test_only_extras_require_torch(built: Path) -> None:
    """Extras bring it, one of them its namesake; nothing that is installed without them does."""
    torch = [each for each in required(built) if re.match(r"torch\b", each)]
    assert any(re.search(r"extra == ['\"]torch['\"]", each) for each in torch)
    assert all("extra ==" in each for each in torch)


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_is_typed_and_whole(wheel: list[str], package: str) -> None:
    """Every file of a package that is no cache is in the wheel, and so are its types."""
    (folder,) = ROOT.glob(f"*/{package}")
    files = {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    names = {path.relative_to(folder.parent).as_posix() for path in files}
    assert f"{package}/py.typed" in names
    assert names == {name for name in wheel if name.startswith(f"{package}/")}


def test_sdist_is_complete(sdist: list[str]) -> None:
    """Whoever unpacks the sdist can run `make test`: it has the tests and all they need."""
    tests = {
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("parity_tests/tests/**/test_*.py")
    }
    needed = tests | TOP_LEVEL | {".ci/run"}
    assert set() == needed - set(sdist)


def test_top_level_of_the_tree() -> None:
    """The top level holds the named files and folders, and beyond them dotfiles only."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("only a checkout knows which files belong to the project")
    listed = subprocess.check_output([git, "-C", str(ROOT), "ls-files"], text=True).splitlines()
    names = {name.split("/")[0] for name in listed}
    assert set() == {name for name in names if name[0] != "."} - TOP_LEVEL - SOURCE_ROOTS


def test_entry_points() -> None:
    """The distribution brings the command and the pytest plugin, and both can be loaded."""
    points = importlib.metadata.distribution("mha-parity").entry_points
    ours = {(point.group, point.name): point for point in points}
    assert {("console_scripts", "mha-parity"), ("pytest11", "mha_parity")} == set(ours)
    assert callable(ours["console_scripts", "mha-parity"].load())
    assert "mha_parity.pytest_plugin" == ours["pytest11", "mha_parity"].load().__name__


@pytest.mark.parametrize("package", PACKAGES)
def test_version_is_the_metadata(package: str) -> None:
    """`__version__` of each package is the version of the distribution."""
    version = importlib.metadata.version("mha-parity")
    assert version == importlib.import_module(package).__version__


# A finder that stands first and refuses all but the standard library and the modules named.
ONLY = """
import sys
class Only:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | {allowed}:
            raise ModuleNotFoundError(f"refused {{name}}", name=name)
sys.meta_path.insert(0, Only())
"""
ATTEND = """
import mha_numpy, numpy as np
module = mha_numpy.MultiheadAttention(6, 3, batch_first=True)
x = np.random.default_rng(0).standard_normal((2, 5, 6), dtype=np.float32)
print(*module(x, x, x)[0].shape, *module(x, x, x, need_weights=False)[0].shape)
"""


def test_numpy_attention_needs_numpy_and_threadpoolctl() -> None:
    """It loads and attends, with weights and without, where all other libraries are refused."""
    only = ONLY.format(allowed={"mha_numpy", "numpy", "threadpoolctl"})
    assert "2 5 6 2 5 6" == fresh(only + ATTEND)


def test_refusing_finder_refuses() -> None:
    """Behind that finder torch, installed as it is, cannot be imported."""
    only = ONLY.format(allowed={"numpy"})
    code = "\ntry:\n    import torch\nexcept ModuleNotFoundError as error:\n    print(error)"
    assert "refused torch" == fresh(only + code)


def test_numpy_attention_loads_without_torch() -> None:
    """In a fresh process `import mha_numpy` brings numpy in, and neither torch nor a harness."""
    names = ("numpy", "torch", "mha_torch", "mha_parity", "matplotlib", "ml_dtypes")
    assert {"numpy"} == loaded_by("mha_numpy", names)


@pytest.mark.parametrize("name", ["costs", "plot", "textbook"])
def test_modules_come_when_asked_for(name: str) -> None:
    """`mha_numpy.NAME` loads a module that `import mha_numpy` left out."""
    code = f"""
import sys, mha_numpy
before = "mha_numpy.{name}" in sys.modules
print(before, mha_numpy.{name}.__name__)
"""
    assert f"False mha_numpy.{name}" == fresh(code)


def test_plugin_loads_nothing_heavy() -> None:
    """The pytest plugin of whoever installed us loads neither numpy nor torch with itself."""
    assert set() == loaded_by("mha_parity.pytest_plugin", HEAVY)


PLUGIN_LIMIT = 0.02  # seconds of processor time


def import_seconds(module: str, path: Path | None = None, tries: int = 5) -> float:
    """Return the processor time that an import adds to pytest's, the median of fresh processes."""
    code = f"""
import time, pytest
start = time.process_time()
import {module}
print(time.process_time() - start)
"""
    return statistics.median(float(fresh(code, path)) for _ in range(tries))


def test_the_plugin_costs_little(tmp_path: Path) -> None:
    """A run of pytest that asks nothing of the plugin pays less than 20 ms for it."""
    (tmp_path / "nothing.py").touch()
    nothing = import_seconds("nothing", tmp_path)
    assert PLUGIN_LIMIT > import_seconds("mha_parity.pytest_plugin") - nothing


def test_a_plugin_that_costs_much_is_seen(tmp_path: Path) -> None:
    """One that imports numpy takes longer."""
    (tmp_path / "costly.py").write_text("import numpy", encoding="utf-8")
    assert PLUGIN_LIMIT < import_seconds("costly", tmp_path)


def test_heavy_import_is_seen(tmp_path: Path) -> None:
    """A plugin that imports numpy, even by way of another module, is seen."""
    (tmp_path / "leaky.py").write_text("import leak", encoding="utf-8")
    (tmp_path / "leak.py").write_text("import numpy", encoding="utf-8")
    assert {"numpy"} == loaded_by("leaky", HEAVY, tmp_path)


def adds_little(module: str, path: Path | None = None, tries: int = 9) -> bool:
    """Return whether an import takes less than half of the processor time of numpy's before it.

    One of the processes has to show it: whoever else is at work makes both longer, not always
    alike, and the first one may have to fill the caches.
    """
    code = f"""
import time
start = time.process_time()
import numpy
middle = time.process_time()
import {module}
print((time.process_time() - middle) / (middle - start))
"""
    return any(float(fresh(code, path)) < 0.5 for _ in range(tries))


def test_import_adds_little_to_numpy() -> None:
    """`import mha_numpy` takes less than half of what `import numpy` takes."""
    assert adds_little("mha_numpy")


def test_slow_import_is_measured(tmp_path: Path) -> None:
    """A module that imports nothing and computes for 0.5 s is measured as slow, each time."""
    source = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    (tmp_path / "slow.py").write_text(source, encoding="utf-8")
    assert not adds_little("slow", tmp_path, tries=2)


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the Makefile, untouched by a make that this test itself may run under."""
    program = shutil.which("make")
    if program is None:
        pytest.skip("make is not installed")
    outer = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VENV", "PYTHON"}
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = [program, "-C", str(ROOT), "--no-print-directory", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_make_lists_its_targets() -> None:
    """Bare `make` changes nothing and lists the targets, each with a word on what it does."""
    done = make()
    listed = set(re.findall(r"^  make ([a-z-]+) +\S", done.stdout, re.MULTILINE))
    assert 0 == done.returncode
    assert set() == {"parity", "test", "bench", "lint", "help", "test-frameworks"} - listed


def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    """Without a usable Python one sentence says what was looked for and what to do."""
    done = make("parity", f"VENV={tmp_path / 'venv'}", "PYTHON=no-such-python")
    assert 0 != done.returncode
    expected = r"Got no usable Python from no-such-python; it should be 3\.11 or newer .*: install"
    assert re.search(expected, done.stderr)
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("version", "usable"),
    [((3, 9, 19), False), ((3, 10, 14), False), ((3, 11, 0), True), ((3, 13, 1), True)],
    ids=str,
)
def test_make_wants_python_3_11(
    tmp_path: Path, version: tuple[int, int, int], usable: bool
) -> None:
    """A Python that starts is refused if it is older than 3.11, and used from there on."""
    python = tmp_path / "python"
    source = f"import sys; sys.version_info = {version}; exec(sys.argv[2])"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] || exit 0\nexec {sys.executable} -c "{source}" "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    venv = tmp_path / "venv"
    done = make(f"{venv}/bin/python", f"VENV={venv}", f"PYTHON={python}")
    assert usable == (done.returncode == 0)
    assert usable == done.stdout.startswith(f"Creating {venv}")
    assert usable != ("it should be 3.11 or newer" in done.stderr)
