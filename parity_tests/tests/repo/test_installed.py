"""The wheel, installed in an environment of its own: the README's examples run there.

The environment has pip's copy of the wheel and, by a ``.pth`` file, the libraries that are
installed here. Python reads no ``.pth`` file of a folder that a ``.pth`` file names, so that the
editable install, and with it the checkout, stays out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LOCATED = """
from importlib.util import find_spec
print(*(find_spec(name).origin for name in ("mha_numpy", "mha_parity", "mha_torch")))
"""


class Installed:
    """An environment with the wheel, and a folder with what the README has one write."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        """Install the wheel by pip, without dependencies."""
        self.folder = folder / "work"
        self.folder.mkdir()
        self.environment = folder / "environment"
        venv.create(self.environment, symlinks=True)
        self.bin = self.environment / "bin"
        (packages,) = self.environment.glob("lib/python*/site-packages")
        here = sysconfig.get_paths()["purelib"]
        (packages / "libraries.pth").write_text(f"{here}\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        quiet = ["-q", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([*pip, *quiet, "--ignore-installed", str(wheel)], check=True, timeout=300)
        (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
        (self.folder / "test_attention.py").write_text(example, encoding="utf-8")
        plain = example.replace("from mha_parity import assert_parity\n", "")
        plain = plain.partition("def test_")[0]
        (self.folder / "attention.py").write_text(plain, encoding="utf-8")

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the folder."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON"))}
        return subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=self.folder, env=kept, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return the environment."""
    (wheel,) = built.glob("*.whl")
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_the_packages_come_from_the_wheel(installed: Installed) -> None:
    """All three are imported from the environment; none comes from the checkout."""
    done = installed.run("python", "-c", LOCATED)
    assert 0 == done.returncode, done.stderr
    found = [Path(each) for each in done.stdout.split()]
    assert 3 == len(found)
    assert all(each.is_relative_to(installed.environment) for each in found)


def test_a_package_of_the_checkout_is_not_found(installed: Installed) -> None:
    """Without the wheel's copy there would be none: the editable install does not reach there."""
    finder = "import sys; sys.path = [p for p in sys.path if 'environment' not in p]; "
    done = installed.run("python", "-c", f"{finder}import numpy; print(1); import mha_parity")
    assert "1" == done.stdout.strip()
    assert "No module named 'mha_parity'" in done.stderr


def test_the_test_of_the_readme_passes_and_fails_for_a_wrong_attention(
    installed: Installed,
) -> None:
    """The ten lines are run by pytest with the installed plugin.

    Without the scale the same test fails and names the bug: the wheel has the catalogue.
    """
    right = (installed.folder / "test_attention.py").read_text(encoding="utf-8")
    wrong = right.replace(" / np.sqrt(q.shape[-1]).astype(Q.dtype)", "").replace("=100", "=40")
    assert wrong != right
    (installed.folder / "test_wrong.py").write_text(wrong, encoding="utf-8")
    done = installed.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "the scores are not scaled  [scale-none]" in done.stdout


def test_the_command_of_ci_writes_its_page(installed: Installed) -> None:
    """Templates, style sheet and schemas are in the wheel: annotations and the page are made."""
    (line,) = re.findall(r"- run: mha-parity (check .*)", README)
    done = installed.run("mha-parity", *line.split(), "--cases", "40", "--json", "parity.json")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "Parity holds: attention.py:attention" in done.stdout
    page = (installed.folder / "parity.html").read_text(encoding="utf-8")
    assert "Parity holds" in page
    assert (installed.folder / "parity.json").is_file()
