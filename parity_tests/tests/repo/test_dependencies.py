"""What the packages import is declared: as a dependency, or in an extra."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("impl", "reference", "parity_tests/mha_parity")
OWN = {"mha_numpy", "mha_parity", "mha_torch"}
# Distributions that are called otherwise than the module that they bring.
CALLED = {"haiku": "dm-haiku", "tensorflow": "tensorflow-cpu"}
# A notebook runs in it: it is imported only where it is there already.
PRESENT = {"IPython"}


def imported(texts: dict[str, str]) -> dict[str, str]:
    """Return the libraries that files import, late ones too, each with the first such file."""
    found: dict[str, str] = {}
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in (each.partition(".")[0] for each in names):
                if name not in sys.stdlib_module_names | OWN | PRESENT:
                    found.setdefault(name, path)
    return found


def declared() -> set[str]:
    """Return the names of all dependencies, those of extras too, as pip compares them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    listed = [*project["dependencies"], *(each for extra in extras for each in extra)]
    return {normal(re.split(r"[\[<>=~! ]", each)[0]) for each in listed}


def normal(name: str) -> str:
    """Return a name of a distribution as pip compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def undeclared(texts: dict[str, str]) -> list[str]:
    """List the libraries that files import and no requirement names."""
    known = declared()
    found = imported(texts).items()
    return [
        f"{path}: {name}" for name, path in found if normal(CALLED.get(name, name)) not in known
    ]


def test_every_import_is_declared() -> None:
    """A library that another one brings along may be gone with its next release."""
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files}
    assert len(texts) > 300
    assert [] == undeclared(texts)


def test_an_import_that_is_not_declared_is_found() -> None:
    """Late ones too, of which nothing but the code that runs them tells."""
    late = "def load():\n    from scipy.special import erf\n    return erf\n"
    assert ["late.py: scipy"] == undeclared({"late.py": late, "own.py": "import mha_numpy, os"})
