"""Draw changes of the code that decides verdicts: which modules, which places, which change.

cosmic-ray says what can be changed (an operator, a comparison, a number, a condition, a loop) and
changes it. What no run can see is left out.
"""

from __future__ import annotations

import ast
import difflib
import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HARNESS = "parity_tests/mha_parity"
# What decides a verdict, and the folders of tests that are asked about it, nearest first.
ROOMS = {
    f"{HARNESS}/core": ("core", "cases", "report"),
    f"{HARNESS}/cases": ("cases",),
    f"{HARNESS}/oracle": ("oracle", "judging"),
    f"{HARNESS}/judging": ("judging", "checks"),
    f"{HARNESS}/checks": ("checks", "judging"),
    f"{HARNESS}/run": ("run", "report"),
    "reference/mha_torch": ("oracle", "judging"),
    "impl/mha_numpy/engines": ("numpy",),
    "impl/mha_numpy/grad": ("numpy",),
}
# Of the reference: what torch was seen to do and where, and problems to show it on. No verdict.
NO_RUN = ("trial", "_trial_masks", "_trial_values", "_evidence", "_report", "example")
SAME = ("_Eq_Is", "_Is_Eq", "_NotEq_IsNot", "_IsNot_NotEq")

Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change of the code: ``line`` as it stands in ``path``, and ``changed`` in its stead."""

    path: str
    line: str
    changed: str
    why: str = ""  # no test can see it

    @property
    def key(self) -> tuple[str, str, str]:
        """Path, line and changed line, which identify the change."""
        return self.path, self.line, self.changed

    @property
    def room(self) -> str:
        """The room it stands in."""
        return next(room for room in ROOMS if self.path.startswith(room))


def mutation_places(source: str) -> dict[Place, list[tuple[str, int]]]:
    """Return what cosmic-ray can change in a module, as (operator, occurrence) by place.

    Left out is what no run can see: annotations, imports for them, options of a dataclass, the
    `strict` of a zip; and identity for equality, of which Python decides (equal texts and small
    numbers are one object).
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    unseen = list(_unseen(ast.parse(source)))
    nodes = list(ast_nodes(get_ast(source)))
    found: dict[Place, list[tuple[str, int]]] = {}
    for name in operator_names():
        if get_operator(name).arguments() or name.endswith(SAME):
            continue
        operator = get_operator(name)()
        starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, start in enumerate(starts):
            if not any(first <= start < last for first, last in unseen):
                found.setdefault(start, []).append((name, occurrence))
    return found


def apply(source: str, name: str, occurrence: int) -> str:
    """Return the source with one change."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return str(mutate_code(source, get_operator(name)(), occurrence))


def changed_lines(path: str, source: str, changed: str) -> Mutation:
    """Return the lines that differ."""
    delta = list(difflib.ndiff(source.splitlines(), changed.splitlines()))
    old, new = ([x[2:].strip() for x in delta if x[0] == sign] for sign in "-+")
    return Mutation(path=path, line=" ".join(old), changed=" ".join(new))


def draw(root: Path, count: int, seed: int, rooms: Sequence[str]) -> Iterator[tuple[Mutation, str]]:
    """Yield changes with the new text: a module by its length, a place of it, a change there."""
    rng = random.Random(seed)
    files = (path for room in rooms for path in (root / room).rglob("*.py"))
    modules = sorted(path for path in files if path.stem not in NO_RUN)
    lengths = [len(path.read_bytes()) for path in modules]
    sources = cache(lambda path: path.read_text("utf-8"))
    of_module = cache(lambda path: mutation_places(sources(path)))
    drawn: set[tuple[Path, Place]] = set()
    while len(drawn) < count and modules:
        (number,) = rng.choices(range(len(modules)), lengths)
        module = modules[number]
        left = sorted(place for place in of_module(module) if (module, place) not in drawn)
        if left:
            place = rng.choice(left)
            drawn.add((module, place))
            text = apply(sources(module), *rng.choice(of_module(module)[place]))
            yield changed_lines(module.relative_to(root).as_posix(), sources(module), text), text
        else:
            del modules[number], lengths[number]


def _unseen(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    for node in ast.walk(tree):
        hidden: Sequence[ast.expr | ast.stmt | None] = ()
        if isinstance(node, ast.FunctionDef):
            hidden = [node.returns]
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            hidden = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            hidden = [one for one in node.decorator_list if "dataclass" in ast.dump(one)]
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            hidden = [node.value]  # it asserts that lengths are equal, as they are
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            hidden = [node.test, *node.body]
        for part in hidden:
            if part is not None:
                # The sign @ of a decorator stands one place before what the tree has.
                start = (part.lineno, max(part.col_offset - 1, 0))
                yield start, (part.end_lineno or part.lineno, part.end_col_offset or 0)
