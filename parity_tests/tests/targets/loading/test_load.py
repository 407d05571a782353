"""Targets: what a text names, and one sentence for everything that can be wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.run import verdict_limits
from mha_parity.targets import load
from mha_parity.targets.bind import KNOWN, bind
from mha_parity.targets.loading import definitions, library_stubs, notebook
from mha_parity.targets.loading.skipped_statements import LeftOut
from subject_checks import SUBJECTS

# Modules that a test leaves behind.
HERE = (
    "written",
    "projected",
    "keep_mask",
    "not_there",
    "pkg_of_test",
    "layers_of_test",
    "not_there_to_draw",
    "nosuchlib",
    "nosuchtoo",
)


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """Take back what loading a target leaves: search path and modules."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("mha_parity_target_") or name.partition(".")[0] in HERE:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mha_numpy:MultiheadAttention", "MultiheadAttention"),
        ("mha_numpy:MultiheadAttention.forward", "MultiheadAttention"),
        (f"{SUBJECTS}/projected.py:f", "f"),
        (f"{SUBJECTS}/keep_mask.py:Looped.heads", "heads"),
        (f"{SUBJECTS}/attention.ipynb:f", "f"),
        (f"{SUBJECTS}/projected.py::f", "f"),
        ("mha_numpy::MultiheadAttention", "MultiheadAttention"),
        (f"{SUBJECTS}/keep_mask.py::Looped::heads", "heads"),
    ],
    ids=[
        "module", "method", "file", "method_in_file", "notebook",
        "as_pytest", "module_as_pytest", "method_as_pytest",
    ],
)  # fmt: skip
def test_names_what_it_says(text: str, name: str) -> None:
    """Modules, files and notebooks are loaded, and attributes of attributes found.

    The method by which an object is called is its class. A name may stand behind two colons, as
    pytest writes it.
    """
    assert load.load(text).__name__ == name


def test_a_file_is_not_the_main_program(write: Callable[[str], str]) -> None:
    """What stands under `if __name__ == "__main__"` is not executed, and the rest is."""
    text = write("ran = []\nif __name__ == '__main__':\n    ran.append(1)\ndef f(): return ran\n")
    assert [] == load.load(text)()


def test_a_file_finds_its_neighbours() -> None:
    """A file imports modules that lie beside it, as it would when run."""
    found = load.load(f"{SUBJECTS}/misbehaving.py:right")
    assert ("f", f"{SUBJECTS}/projected.py") == (found.__name__, found.__code__.co_filename)


REFUSED = {
    "no_colon": ("projected", r"got the target 'projected', but should be `package.module"),
    "no_file_nor_colon": ("nowhere/f.py", r"there is no file nowhere/f.py; check the path\.$"),
    "file_misspelt_no_colon": (f"{SUBJECTS}/projecte.py", r"did you mean .*projected\.py\?$"),
    "a_file_of_several": (f"{SUBJECTS}/projected.py", "is a file, but should be a function or a"),
    "no_attribute_named": ("projected.py:", "but should be `package.module"),
    "no_such_module": ("no_such_thing:f", "there is no module 'no_such_thing'; install it, or"),
    "no_such_submodule": ("mha_numpy.nothing:f", "there is no module 'mha_numpy.nothing'"),
    "no_such_file": ("nowhere/f.py:f", "there is no file nowhere/f.py; check the path"),
    "file_misspelt": (f"{SUBJECTS}/projecte.py:f", "did you mean .*projected.py"),
    "attribute_misspelt": (f"{SUBJECTS}/projected.py:single_haed", "did you mean single_head"),
    "no_such_attribute": (f"{SUBJECTS}/attention.ipynb:zzz", "it has f, needs_data, single_head"),
    "nested_attribute": ("mha_numpy:MultiheadAttention.zzz", "has no attribute 'zzz'"),
    "not_callable": ("numpy:pi", "'numpy:pi' is of type float, but should be a function or"),
    "left_out_of_notebook": (f"{SUBJECTS}/attention.ipynb:size", r"was left out \(cell 2, line 2"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, message: str) -> None:
    """What is wrong with a target is one sentence: what was got, what should be, the remedy."""
    with pytest.raises(TargetError, match=message) as caught:
        load.load(text)
    assert "\n" not in str(caught.value)


BROKEN = {
    "raises": (
        "def g():\n    raise KeyError('k')\ng()\n",
        r"raised KeyError: 'k' \[.*written.py:2",
    ),
    "exits": ("import sys\nsys.exit(4)\n", r"raised SystemExit: 4 \[.*written.py:2\]"),
    "syntax": ("x = 1\ndef f(:\n", r"is no valid Python 3\.\d+: .* \[.*written.py:2\]"),
    "no_text": ("x = 1\0", r"is no valid Python 3\.\d+: .*null bytes \[.*written.py:1\]"),
    "inherits_from_missing": (
        "import not_there.nn as nn\nclass f(nn.Module):\n    pass\n",
        "but f needs not_there, which is not installed; install not_there",
    ),
    "decorated_by_missing": (
        "from not_there import jit\n@jit\ndef f():\n    pass\n",
        "f needs not_there, which is",
    ),
}


@pytest.mark.parametrize(("source", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_does_not_import(
    write: Callable[[str], str], source: str, message: str
) -> None:
    """The last line of the traceback and its place stand in the sentence."""
    with pytest.raises(TargetError, match=message):
        load.load(write(source))


def test_a_module_missing_inside_a_target_is_not_the_target_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a module's own import fails, that import is named and not the module."""
    (tmp_path / "written.py").write_text("import not_there\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    message = r"importing written raised ModuleNotFoundError: .*; install not_there\."
    with pytest.raises(TargetError, match=message):
        load.load("written:f")


def tree(folder: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


@pytest.mark.parametrize(
    "init", ["", "raise RuntimeError('no GPU')\n", "import not_there_at_all\n"],
    ids=["plain", "raising", "missing_library"],
)  # fmt: skip
def test_a_file_is_loaded_in_its_package(tmp_path: Path, init: str) -> None:
    """Relative imports work by path, even where the package itself cannot be imported."""
    tree(tmp_path, {
        "pkg_of_test/__init__.py": init,
        "pkg_of_test/inner/__init__.py": "",
        "pkg_of_test/scores.py": "def f(q, k, v):\n    return q\n",
        "pkg_of_test/inner/layer.py": "from ..scores import f\n",
    })  # fmt: skip
    assert "f" == load.load(f"{tmp_path}/pkg_of_test/inner/layer.py:f").__name__


def test_a_file_far_inside_a_package_is_loaded_in_it(tmp_path: Path) -> None:
    """Nine folders deep it imports its package by name: kills a package of the last few folders."""
    deep = "/".join(f"level{i}" for i in range(8))
    folders = ["deep_of_test", *(f"deep_of_test/{deep[: 7 * i - 1]}" for i in range(1, 9))]
    tree(tmp_path, {
        **{f"{folder}/__init__.py": "" for folder in folders},
        "deep_of_test/scores.py": "def f(q, k, v):\n    return q\n",
        f"deep_of_test/{deep}/layer.py": "from deep_of_test.scores import f\n",
    })  # fmt: skip
    assert "f" == load.load(f"{tmp_path}/deep_of_test/{deep}/layer.py:f").__name__


def test_relative_imports_of_an_imported_file_lead_to_its_package(tmp_path: Path) -> None:
    """Folders without an `__init__.py` are packages where a file that is imported needs them."""
    layers = tmp_path / "nn" / "layers"
    layers.mkdir(parents=True)
    (tmp_path / "nn" / "engine.py").write_text("N = 3\n", encoding="utf-8")
    (layers / "base.py").write_text("from ..engine import N\n", encoding="utf-8")
    (layers / "attend.py").write_text("from .base import N\ndef f(): return N\n", encoding="utf-8")
    assert 3 == load.load(f"{layers / 'attend.py'}:f")()


@pytest.mark.parametrize("missing", ["not_there_at_all", "neither_is_this"])
def test_packages_that_were_half_imported_are_imported_again(tmp_path: Path, missing: str) -> None:
    """Folders without an `__init__.py`, one in another: kills the first gone before the second."""
    inner = tmp_path / f"half_{missing}" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "dense.py").write_text(f"import {missing}\nN = 3\n", encoding="utf-8")
    name = f"half_{missing}.a.b.dense"
    file = inner.parent / "attend.py"
    file.write_text(f"from {name} import N\ndef f(): return N\n", encoding="utf-8")
    assert 3 == load.load(f"{file}:f")()


def test_absolute_imports_are_found_in_a_folder_above(tmp_path: Path) -> None:
    """As if the target had been started from its repository's root."""
    tree(tmp_path, {
        "layers_of_test/scores.py": "def f(q, k, v):\n    return q\n",
        "layers_of_test/deep/layer.py": "from layers_of_test.scores import f\n",
    })  # fmt: skip
    assert "f" == load.load(f"{tmp_path}/layers_of_test/deep/layer.py:f").__name__


def test_a_package_is_found_beside_a_module_of_its_name(tmp_path: Path) -> None:
    """`layers_of_test/layers_of_test.py` is not what `layers_of_test.scores` is imported from."""
    tree(tmp_path, {
        "layers_of_test/layers_of_test.py": "1 / 0\n",
        "layers_of_test/scores.py": "def f(q, k, v):\n    return q\n",
        "layers_of_test/deep/layer.py": "from layers_of_test.scores import f\n",
    })  # fmt: skip
    assert "f" == load.load(f"{tmp_path}/layers_of_test/deep/layer.py:f").__name__


def test_a_folder_above_is_meant_where_a_file_of_its_name_has_no_such_module(
    tmp_path: Path,
) -> None:
    """`utils_of_test.scores` is not to be found in `layers/utils_of_test.py`."""
    tree(tmp_path, {
        "layers/utils_of_test.py": "1\n",
        "layers/layer.py": "from utils_of_test.scores import f\n",
        "utils_of_test/scores.py": "def f(q, k, v):\n    return q\n",
    })  # fmt: skip
    assert "f" == load.load(f"{tmp_path}/layers/layer.py:f").__name__


def test_a_file_may_have_the_name_of_the_library_that_it_imports(tmp_path: Path) -> None:
    """`nbformat.py` that imports nbformat means the library, and not itself."""
    library = pytest.importorskip("nbformat")
    tree(tmp_path, {"nbformat.py": "import nbformat\nf = nbformat.read\n", "random.py": "1 / 0\n"})
    assert library.read is load.load(f"{tmp_path}/nbformat.py:f")


def test_a_library_called_as_a_folder_above_is_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second import of torch, from a package with a folder `torch`, ended the process."""
    folder = tmp_path / "library" / "colorsys"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    text = "import colorsys, sys\nsys.modules.setdefault('first_colorsys', colorsys)\n"
    (folder / "layer.py").write_text(f"{text}import no_such_library\ndef attend(q, k, v): ...\n")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setitem(sys.modules, "first_colorsys", None)  # removed again behind the test
    del sys.modules["first_colorsys"]
    load.load(f"{folder / 'layer.py'}:attend")
    assert sys.modules["first_colorsys"] is sys.modules["colorsys"]


def test_what_a_missing_library_is_not_needed_for_is_loaded(tmp_path: Path) -> None:
    """A plot that cannot be drawn is no obstacle; calling it says what is missing."""
    source = "import not_there.pyplot as plt\nf = lambda q: q\nshow = lambda: plt.plot()\n"
    source += "from torch.utils.tensorboard import SummaryWriter\n"  # wants a version
    tree(tmp_path, {"plots.py": source})
    assert 1 == load.load(f"{tmp_path}/plots.py:f")(1)
    with pytest.raises(ModuleNotFoundError, match="not_there is not installed"):
        load.load(f"{tmp_path}/plots.py:show")()


def test_a_missing_library_that_only_draws_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that draws its weights in every call is called; what reads a drawing raises."""
    monkeypatch.setattr(library_stubs, "DRAWING", frozenset({"not_there_to_draw"}))
    source = "import not_there_to_draw as plt\ndef f(q):\n    plt.heatmap(q).set_title('q')\n"
    source += "    return q\ndef g(q):\n    fig, ax = plt.subplots()\n    return q\n"
    tree(tmp_path, {"draws.py": source})
    assert 2 == load.load(f"{tmp_path}/draws.py:f")(2)
    with pytest.raises(ModuleNotFoundError, match="not_there_to_draw is not installed"):
        load.load(f"{tmp_path}/draws.py:g")(2)


def test_of_a_script_that_raises_the_definitions_are_loaded(tmp_path: Path) -> None:
    """A script that wants a file of data has its functions all the same."""
    source = "text = open('not_there.txt').read()\nsize = len(text)\ndef f(q):\n    return q\n"
    tree(tmp_path, {"script.py": source + "def g(q, n=size):\n    return q\n"})
    assert 3 == load.load(f"{tmp_path}/script.py:f")(3)
    with pytest.raises(TargetError, match=r"raised FileNotFoundError: .* \[.*script.py:1\]"):
        load.load(f"{tmp_path}/script.py:g")


def test_of_a_script_that_trains_the_definitions_are_loaded(write: Callable[[str], str]) -> None:
    """A model that is trained where the file is imported is left out, if the name is defined."""
    loss = "steps = []\nclass Loss:\n    def backward(self):\n        steps.append(1)\n"
    loop = "for _ in range(9):\n    Loss().backward()\n"
    assert [] == load.load(write(f"{loss}{loop}def f():\n    return steps\n"))()
    of_the_program = "made = list((1,))\nif __name__ == '__main__':\n    run().backward()\n"
    assert [1] == load.load(write(of_the_program + "def f():\n    return made\n"))()


def test_a_cell_that_needs_what_was_left_out_is_left_out_too() -> None:
    """Whatever does not need it is kept."""
    found = executed("n = len('abc')", "half = n / 2\nf = abs", "class C:\n    size = half")
    assert found["f"] is abs
    assert {"n", "half", "C"} == set(found["left out"])


def executed(*cells: str) -> dict[str, Any]:
    """Execute cells as those of a notebook and return the names they leave."""
    scope: dict[str, Any] = {}
    left_out = LeftOut()
    for number, cell in enumerate(cells, start=1):
        text = notebook.cell_python(cell)
        definitions.execute(text, f"cell {number}", f"cell {number}", scope, left_out)
    scope.pop("__builtins__", None)
    return scope | {"left out": left_out.names}


def test_a_notebook_is_defined_and_not_run() -> None:
    """Imports, constants, functions and aliases, of an indented cell too; what computes is not."""
    found = executed(
        " import math\n N = 3\n shape = (N, -2 * N)\n root = math.sqrt\n half = lambda x: x / 2",
        "computed = math.sqrt(4)\nfor i in range(3):\n    last = i\nprint('never')",
        "try:\n    import not_there\nexcept ImportError:\n    not_there = None",
    )
    assert (3, -6) == found["shape"]
    assert found["not_there"] is None
    assert {
        "computed": "cell 2, line 1",
        "i": "cell 2, line 2",
        "last": "cell 2, line 2",
    } == found["left out"]


def test_magics_are_no_python() -> None:
    """Lines for the notebook are passed over, cells in other languages left out whole."""
    found = executed("%matplotlib inline\n!ls\nN = 3", "%%bash\nfor f in *; do echo; done")
    assert {"N": 3, "left out": {}} == found


@pytest.mark.parametrize("line", ["?print", "??print", "print?", "math.sqrt??"])
def test_a_question_for_help_is_no_python(line: str) -> None:
    """A line that asks the notebook for help, from either end, leaves the cell's names alone."""
    assert {"N": 3, "left out": {}} == executed(f"{line}\nN = 3")


def test_a_name_left_out_is_explained_where_it_is_missed() -> None:
    """A call that misses a computed name says where the notebook sets it, and why it is absent."""
    subject = load.load(f"{SUBJECTS}/attention.ipynb:needs_data")
    bound = bind(subject, "qkv-heads")
    with pytest.raises(CandidateError, match="cell 2, line 2 sets it, and was left out"):
        bound(make_problem(bound.plain_case()))


def test_a_name_left_out_is_explained_while_loading(tmp_path: Path) -> None:
    """A definition that needs a computed name says so too."""
    nbformat = pytest.importorskip("nbformat")
    cells = ["size = len('abc')", "def f(x, n=size):\n    return x"]
    made = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbformat.write(made, tmp_path / "late.ipynb")
    message = "'f' was left out .*'size' is not defined: cell 1, line 1 sets it"
    with pytest.raises(TargetError, match=message):
        load.load(f"{tmp_path / 'late.ipynb'}:f")


def test_a_notebook_without_nbformat_is_refused_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the extra `notebook` is not installed, one sentence names it; files need none."""
    monkeypatch.setattr(notebook, "installed", lambda name: name != "nbformat")
    with pytest.raises(TargetError, match=r"nbformat.*pip install 'mha-parity\[notebook\]'"):
        load.load(f"{SUBJECTS}/attention.ipynb:f")
    assert "f" == load.load(f"{SUBJECTS}/projected.py:f").__name__


def test_the_notebook_computes_what_the_file_does() -> None:
    """The same mathematics from a notebook and from a file give the same numbers."""
    problem = make_problem(KNOWN["qkv-heads"](np.add).plain_case())
    expected, actual = (
        bind(load.load(f"{SUBJECTS}/{text}"))(problem).output
        for text in ("projected.py:f", "attention.ipynb:f")
    )
    np.testing.assert_array_max_ulp(expected, actual, maxulp=4)


def test_a_library_that_is_missing_is_named(tmp_path: Path) -> None:
    """An import that fails is said of the target whose module has it, but not of drawings."""
    (tmp_path / "lacking.py").write_text(
        "import nosuchlib\nfrom nosuchtoo.part import x\nimport wandb\n\n"
        "def attention(Q, K, V):\n    return Q\n",
        encoding="utf-8",
    )
    (tmp_path / "whole.py").write_text("def attention(Q, K, V):\n    return Q\n", encoding="utf-8")
    lacking = load.load(f"{tmp_path}/lacking.py:attention")
    whole = load.load(f"{tmp_path}/whole.py:attention")
    assert ("nosuchlib", "nosuchtoo") == library_stubs.imported_in_name(lacking)
    assert () == library_stubs.imported_in_name(whole) == library_stubs.imported_in_name(3)
    said = verdict_limits.not_installed("nosuchlib")
    assert said.startswith("the import of `nosuchlib` failed, and the target was judged without")
