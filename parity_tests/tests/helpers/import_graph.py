"""The imports of a package, read from the syntax trees of its modules."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def module_paths(folder: Path) -> dict[str, Path]:
    """Return the modules of a package by dotted name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def sources(folder: Path) -> dict[str, str]:
    """Return the source of every module of a package by its dotted name."""
    return {name: path.read_text(encoding="utf-8") for name, path in module_paths(folder).items()}


def package_of(name: str, modules: Iterable[str]) -> str:
    """Return the package that the relative imports of a module start from."""
    is_package = any(each.startswith(f"{name}.") for each in modules)
    return name if is_package else name.rpartition(".")[0]


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the absolute name of all that a syntax tree imports, late or not.

    Relative imports start from ``package``. `from a import b` yields `a.b`: whether b is a module
    or an attribute is not known here.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(names=names, module=module, level=level):
                above = package.split(".")[: package.count(".") + 2 - level] if level else []
                base = ".".join([*above, *([module] if module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module")
                | ast.Attribute(attr="__import__" | "import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


class DropTypes(ast.NodeTransformer):
    """Takes out what only a type checker imports."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Replace `if TYPE_CHECKING` by its else branch."""
        return node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else node


def import_graph(modules: Mapping[str, str], *, types: bool = True) -> dict[str, set[str]]:
    """Map each module to those of its package that it imports, and to the packages they stand in.

    Importing a submodule runs its packages; those that a module stands in itself have begun before.
    ``types``: whether imports for annotations alone count.
    """
    graph = {}
    for name, source in modules.items():
        tree = ast.parse(source) if types else DropTypes().visit(ast.parse(source))
        wanted = {each for _, each in imported(tree, package_of(name, modules))}
        known = {each if each in modules else each.rpartition(".")[0] for each in wanted}
        implied = {above for each in known & modules.keys() for above in _packages(each)}
        graph[name] = (known | implied - _packages(name)) & modules.keys() - {name}
    return graph


def _packages(name: str) -> set[str]:
    """Return the packages that a module stands in, without the outermost."""
    return {".".join(name.split(".")[:count]) for count in range(2, name.count(".") + 1)}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the modules along one circle of imports, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []
