"""Import a file: in its package, with its folder on the path, or its definitions alone."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import sys
import traceback
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mha_parity.targets.loading import definitions, library_stubs, notebook
from mha_parity.targets.loading.skipped_statements import LeftOut, keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PREFIX = "mha_parity_target_"
MOST_MISSING = 32  # libraries and folders that one target may lack
DEFINITIONS_ALONE = "its imports, functions, classes and constants alone were executed."
TRAINS = f"importing the file would train a model: {DEFINITIONS_ALONE}"
LEVELS = 12  # folders above a file in which its imports are looked for


def from_file(path: Path, attribute: str) -> ModuleType:
    """Return the module of a file or of a notebook.

    A file in a package is imported as part of it, with the package's folder on ``sys.path``; any
    other one is a module of its own, with its own folder there. From where executing the file
    raises, and of one that would train a model, definitions alone are executed, if ``attribute`` is
    among them. A library that is missing is looked for in the folders above, and replaced by a
    stand-in.
    """
    package = _package(path)
    _search(path, package)
    if path.suffix == ".ipynb":
        name = f"{PREFIX}{path.stem}"
        return _with_missing(path, lambda: notebook.load_notebook(path, name))
    if definitions.has_training_loop(path) and (
        module := _definitions(path, package, attribute, LeftOut(why=TRAINS))
    ):
        return module
    try:
        return _with_missing(path, lambda: _executed(path, package))
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError) or _lacks_module(error):
            raise
        line = _raised_at(path, error)
        said = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        where = f" [{path.name}:{line}]: from there on" if line else ":"
        why = f"importing the file raises {said}{where} {DEFINITIONS_ALONE}"
        if module := _definitions(path, package, attribute, LeftOut(why=why), line):
            return module
        raise


def _lacks_module(error: BaseException) -> bool:
    """Return whether a module is missing: not the metadata of a package that is there, as source.

    A package may ask for its own version, which it has where it is installed.
    """
    of_metadata = isinstance(error, importlib.metadata.PackageNotFoundError)
    return isinstance(error, ModuleNotFoundError) and not of_metadata


def _raised_at(path: Path, error: BaseException) -> int:
    """Return the line of a file at whose execution an exception was raised; 0 if at none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(path) and f.name == "<module>"]
    return (lines[-1] or 0) if lines else 0


def _definitions(
    path: Path, package: tuple[str, ...], attribute: str, left_out: LeftOut, after: int = 0
) -> ModuleType | None:
    """Return the definitions of a file, None where ``attribute`` is not among them.

    What was executed before line ``after``, which raised, stays as it is.
    """
    begun = sys.modules.get(_name(path, package)) if after else None
    with suppress(Exception):
        module = _with_missing(path, lambda: _defined(path, package, left_out, begun, after))
        if hasattr(module, attribute.partition(".")[0]):
            return module
    return None


def _package(path: Path) -> tuple[str, ...]:
    """Return the packages around a file, outermost first.

    They have an ``__init__.py``, or the file's relative imports lead to them. One that has the name
    of a library that is meant is a part of the folder above: the library would be gone.
    """
    depth = 0
    while depth < LEVELS and (path.parents[depth] / "__init__.py").is_file():
        depth += 1
    if path.suffix == ".py":
        depth = max(depth, _deepest_relative_import(path))
    while 0 < depth < LEVELS and _names_a_library(path.parents[depth - 1], path):
        depth += 1
    names = [each.name for each in path.parents[:depth]]
    return tuple(reversed(names))


def _names_a_library(folder: Path, path: Path) -> bool:
    """Return whether a folder has the name of a library that is imported, or that a file means.

    What the file imports of that name is then none of the folder's own modules.
    """
    wanted = [each for each in _imported(path) if _root(each) == folder.name]
    own = any("." in each and _holds(folder.parent, each) for each in wanted)
    if folder.name not in sys.modules and (own or not wanted):
        return False
    spec = None
    with suppress(ImportError, ValueError):  # of what stands in sys.modules without a spec
        spec = importlib.util.find_spec(folder.name)
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    return spec is not None and not any(
        each and Path(each).is_relative_to(folder) for each in places
    )


def _deepest_relative_import(path: Path) -> int:
    """Return how many folders around it the relative imports of a file, and of those, reach."""
    parents, deepest = list(path.parents), 0
    seen, waiting = {path}, [path]
    while waiting:
        each = waiting.pop()
        for node in _relative_imports(each):
            top = each.parents[node.level - 1]
            deepest = max(deepest, parents.index(top) + 1 if top in parents else 0)
            file = top.joinpath(*(node.module or "").split(".")).with_suffix(".py")
            if node.module and file.is_file() and file not in seen:
                seen.add(file)
                waiting.append(file)
    return deepest


def _relative_imports(path: Path) -> list[ast.ImportFrom]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level)
    return [node for node in found if node.level <= len(path.parents)]


def _search(path: Path, package: tuple[str, ...]) -> None:
    """Put the folder that the file's imports start from on ``sys.path``.

    Last where a file in it has the name of a library that is meant: one of Python's own, or one
    that the target has itself and imports.
    """
    folder = path.parents[len(package)]
    stems = {each.stem for each in folder.glob("*.py")}
    shadows = stems & sys.stdlib_module_names
    if not package and path.suffix == ".py" and path.stem in map(_root, _imported(path)):
        shadows |= {path.stem}
    if str(folder) not in sys.path:
        sys.path.insert(len(sys.path) if shadows else 0, str(folder))


def _imported(path: Path) -> set[str]:
    """Return the modules that a file imports absolutely."""
    with suppress(SyntaxError, ValueError):
        return set(_absolute_imports(ast.walk(ast.parse(path.read_bytes()))))
    return set()


def _absolute_imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _root(module: str) -> str:
    return module.partition(".")[0]


def _with_missing(path: Path, run: Callable[[], ModuleType]) -> ModuleType:
    """Run, and run again with what was missing: a folder above the file, or a stand-in.

    What the file itself is known to lack is provided before, so that it is executed once.
    """
    with library_stubs.imports_allowed():
        for name in _not_found(path):
            _provide(name, path)
        for _ in range(MOST_MISSING):
            known = set(sys.modules)
            try:
                return run()
            except ModuleNotFoundError as error:
                if not (_lacks_module(error) and error.name) or error.name in sys.modules:
                    raise
                _provide(error.name, path)
                found = set(sys.modules) - known
                half_imported = [
                    name
                    for name in found
                    if _root(name) == error.name or _is_of_package(name, path)
                ]
                # A package without `__init__.py` asks its parent for its path: none is gone yet.
                for name in half_imported:
                    del sys.modules[name]
        return run()


def _not_found(path: Path) -> list[str]:
    """Return the packages that a file imports outside of any block, and that are nowhere yet."""
    with suppress(SyntaxError, ValueError):
        tree = ast.parse(path.read_bytes())
        roots = dict.fromkeys(map(_root, _absolute_imports(tree.body)))
        return [name for name in roots if name not in sys.modules and not _has_spec(name)]
    return []


def _has_spec(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # of what stands in sys.modules without a spec
        return False


def _is_of_package(name: str, path: Path) -> bool:
    """Return whether a module lies in the folder around a file that is called as its package.

    An installed library may be called so too: torch, of a package with a folder `torch`.
    """
    parts, root = path.parts, _root(name)
    if root not in parts:
        return False
    folder, module = Path(*parts[: parts.index(root) + 1]), sys.modules[name]
    file = getattr(module, "__file__", None)
    places = [file] if file else list(getattr(module, "__path__", ()))
    return any(Path(place).is_relative_to(folder) for place in places)


def _provide(name: str, path: Path) -> None:
    """Find a missing module in a folder above the file, or let a stand-in take its place.

    First where all modules of its that the file imports are.
    """
    root = _root(name)
    wanted = [each for each in _imported(path) if _root(each) == root]
    holders = [
        folder
        for folder in path.parents[:LEVELS]
        if _holds(folder, root) and str(folder) not in sys.path
    ]
    if not holders:
        own = (folder / root for folder in path.parents[:LEVELS] if (folder / root).is_dir())
        library_stubs.stand_in_for(root, next(own, None))
        return
    holders.sort(key=lambda folder: not all(_holds(folder, each) for each in wanted))
    sys.path.append(str(holders[0]))
    # A file of this name that came first is no package, and has not what is asked of it.
    folder = holders[0] / root
    if root in sys.modules and not hasattr(sys.modules[root], "__path__") and folder.is_dir():
        _bare_packages(folder / "any.py", (root,))
    importlib.invalidate_caches()


def _holds(folder: Path, module: str) -> bool:
    place = folder.joinpath(*module.split("."))
    return place.with_name(f"{place.name}.py").is_file() or place.is_dir()


def _executed(path: Path, package: tuple[str, ...]) -> ModuleType:
    if not package:
        return _alone(path, _name(path, package))
    name = _name(path, package)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = getattr(error, "name", "") if _lacks_module(error) else ""
        if _is_own(error, path) or (missing and _root(missing) != package[0]):
            raise
    # A package's own __init__ may raise anything.
    _bare_packages(path, package)
    return _alone(path, name)


def _is_own(error: BaseException, path: Path) -> bool:
    """Return whether a file raised by itself, and would again; an import may be circular."""
    frames = traceback.extract_tb(error.__traceback__)
    return not isinstance(error, ImportError) and frames[-1].filename == str(path)


def _name(path: Path, package: tuple[str, ...]) -> str:
    """Return under which name a file is imported."""
    stem = () if path.stem == "__init__" else (path.stem,)
    return ".".join((*package, *stem)) if package else f"{PREFIX}{path.stem}"


def _bare_packages(path: Path, package: tuple[str, ...]) -> None:
    """Make the packages around a file without executing them, so that relative imports work."""
    for depth in range(1, len(package) + 1):
        name = ".".join(package[:depth])
        made = ModuleType(name)
        made.__path__ = [str(path.parents[len(package) - depth])]
        sys.modules[name] = made


def _alone(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, path, loader=SourceFileLoader(name, str(path))
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    spec.loader.exec_module(module)
    return module


def _defined(
    path: Path,
    package: tuple[str, ...],
    left_out: LeftOut,
    begun: ModuleType | None,
    after: int,
) -> ModuleType:
    """Return a module of the definitions of a file that cannot be executed, or not to its end."""
    if begun is None:
        _bare_packages(path, package)
    module = ModuleType(_name(path, package)) if begun is None else begun
    module.__file__ = str(path)
    module.__package__ = ".".join(package)
    keep(module, left_out)
    sys.modules[module.__name__] = module
    scope, text = vars(module), path.read_text("utf-8")
    definitions.execute(text, str(path), "", scope, left_out, after if begun else 0)
    return module
