"""The rooms of the harness import one way only, and its modules form no circle.

Every import counts: at the top of a module, in a function, under TYPE_CHECKING, and the parent
packages that an import of a submodule runs.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from import_graph import circle, import_graph, sources

PACKAGE = Path(__file__).resolve().parents[2] / "mha_parity"
# A room may import those to its left, and itself.
LAYERS = (
    "core", "cases", "oracle", "targets", "judging", "answers", "catalogue", "checks", "worker",
    "diagnose", "run", "report", "commands", "selftest", "api", "pytest_plugin", "bench", "cli",
    "command_line", "__main__",
)  # fmt: skip
# The rooms of `targets`, and the modules above them.
TARGETS = (
    "backends", "static", "loading", "calls", "layers", "interpretations", "libraries",
    "convention_base", "masks", "caches", "trials", "features_offered", "conventions", "adapters",
    "instances", "programs", "onnx", "method_targets", "load", "source_facts", "convention_names",
    "convention_by_signature", "recognition", "bind",
)  # fmt: skip
# The rooms of `diagnose.experiments`, and the modules above them.
EXPERIMENTS = (
    "designs", "arrays", "scores", "masks", "conditions", "gradients", "returned", "weights",
    "examination", "run_experiments",
)  # fmt: skip
# The package itself: its version, and names that it loads on first use.
ROOT = "mha_parity"
# What a user imports or types: one box of the picture in CONTRIBUTING.
INTERFACE = {"api", "pytest_plugin", "cli", "command_line", "__main__"}
MOST_IMPORTED = 21  # modules of the harness that one module may import


def room(name: str) -> str:
    """Return the room that a module stands in."""
    return name.split(".")[1] if "." in name else ROOT


def against_layers(graph: dict[str, set[str]], layers: tuple[str, ...]) -> list[str]:
    """List the imports of a room by an earlier one, and the modules outside every room."""
    places = {name: place for place, name in enumerate(layers)}
    rows = [f"{name} is in no room" for name in graph if room(name) not in places]
    for name, imported in graph.items():
        own = places.get(room(name), len(layers))
        later = sorted(each for each in imported if places.get(room(each), 0) > own)
        rows += [f"{name} imports {each}" for each in later]
    return rows


def wide_imports(graph: dict[str, set[str]], most: int = MOST_IMPORTED) -> list[str]:
    """List the modules that import more modules of the package than ``most``."""
    packages = {name.rpartition(".")[0] for name in graph}
    counts = {name: len(imported - packages) for name, imported in graph.items()}
    return [f"{name} imports {n} modules" for name, n in counts.items() if n > most]


def within(graph: dict[str, set[str]], outer: str) -> dict[str, set[str]]:
    """Return the imports among the modules of one room, named as if its rooms were the first."""
    own = {name for name in graph if name.startswith(f"{ROOT}.{outer}.")}
    short = {name: f"{ROOT}{name.removeprefix(f'{ROOT}.{outer}')}" for name in own}
    return {short[name]: {short[each] for each in graph[name] & own} for name in own}


@cache  # parsing all modules takes seconds
def harness() -> dict[str, set[str]]:
    """Return the import graph of the harness, without what the package itself loads late."""
    graph = import_graph(sources(PACKAGE))
    del graph[ROOT]
    return {name: imported - {ROOT} for name, imported in graph.items()}


def test_rooms_import_one_way() -> None:
    """No room imports a later one, and every module stands in a room."""
    assert [] == against_layers(harness(), LAYERS)


@pytest.mark.parametrize(
    ("outer", "layers"), [("targets", TARGETS), ("diagnose.experiments", EXPERIMENTS)]
)
def test_rooms_of_a_room_go_one_way(outer: str, layers: tuple[str, ...]) -> None:
    """An inner room imports those before it in its tuple alone, and the tuple names each once."""
    graph = within(harness(), outer)
    assert [] == against_layers(graph, layers)
    assert sorted(layers) == sorted({room(name) for name in graph})


def test_an_import_against_inner_rooms_is_found() -> None:
    """A module of an inner room that imports a later one is named; other rooms do not count."""
    modules = {
        f"{ROOT}.targets": "",
        f"{ROOT}.targets.low.a": f"import {ROOT}.targets.high.b",
        f"{ROOT}.targets.high.b": f"import {ROOT}.core.case",
        f"{ROOT}.core.case": "",
    }
    graph = within(import_graph(modules), "targets")
    found = against_layers(graph, ("low", "high"))
    assert [f"{ROOT}.low.a imports {ROOT}.high.b"] == found


def drawn_arrows(text: str) -> set[tuple[str, str]]:
    """Return the arrows of a Mermaid flowchart."""
    return set(re.findall(r"^ *(\w+)(?:\[.*\])? --> (\w+)$", text, flags=re.MULTILINE))


def unlike_picture(graph: dict[str, set[str]], arrows: set[tuple[str, str]]) -> list[str]:
    """List the imports along no path of the arrows, and the arrows that no import follows."""

    def box(name: str) -> str:
        return "interface" if room(name) in INTERFACE else room(name)

    imports = {(box(name), box(each)) for name in graph for each in graph[name]}
    imports = {(a, b) for a, b in imports if a != b}
    paths = arrows
    while len(longer := paths | {(a, d) for a, b in paths for c, d in arrows if b == c}) > len(
        paths
    ):
        paths = longer
    undrawn = [f"{a} imports {b}, and no arrow says so" for a, b in sorted(imports - paths)]
    return undrawn + [f"no import of {a} is of {b}" for a, b in sorted(arrows - imports)]


def test_the_picture_of_the_rooms_is_true() -> None:
    """The arrows in CONTRIBUTING are imports, and every import goes along them."""
    text = (PACKAGE.parents[1] / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [] == unlike_picture(harness(), drawn_arrows(text))


def test_an_untrue_picture_is_found() -> None:
    """An import that is not drawn and an arrow that no import follows are named."""
    modules = {
        "pkg.core.case": "x = 1",
        "pkg.run.check": "import pkg.core.case",
        "pkg.cli": "import pkg.run.check",
    }
    arrows = drawn_arrows('flowchart BT\n  cases["cases: arrays"] --> core\n  run --> cases\n')
    assert [
        "interface imports run, and no arrow says so",
        "no import of cases is of core",
        "no import of run is of cases",
    ] == unlike_picture(import_graph(modules), arrows)


def test_modules_form_no_circle() -> None:
    """The modules of the harness have an order in which each imports only earlier ones."""
    assert [] == circle(harness())


def beyond_core(graph: dict[str, set[str]]) -> list[str]:
    """List the imports of the room ``report`` from any room but ``core`` and itself."""
    return [
        f"{name} imports {each}"
        for name, imported in graph.items()
        if room(name) == "report"
        for each in sorted(imported)
        if room(each) not in {"core", "report"}
    ]


def test_reports_are_made_from_a_verdict_alone() -> None:
    """No module of ``report`` imports any room but ``core``."""
    assert [] == beyond_core(harness())


def test_a_report_that_imports_another_room_is_found() -> None:
    """A late import of the catalogue by a report is named."""
    modules = {
        "pkg.core.verdict": "x = 1",
        "pkg.catalogue.bugs": "x = 1",
        "pkg.report.page": "import pkg.core.verdict\ndef f():\n    import pkg.catalogue.bugs",
    }
    found = beyond_core(import_graph(modules))
    assert ["pkg.report.page imports pkg.catalogue.bugs"] == found


def test_no_module_imports_many() -> None:
    """No module but the table of the catalogue's families imports more than 21 others."""
    graph = harness()
    del graph["mha_parity.catalogue"]
    assert [] == wide_imports(graph)


def test_every_layer_exists() -> None:
    """The tuple of layers names the rooms that exist, each once."""
    assert sorted(LAYERS) == sorted({room(name) for name in harness()})


@pytest.mark.parametrize(
    "source",
    [
        "from pkg.top import high",
        "import pkg.top.high",
        "def f():\n    from pkg.top.high import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg.top.high import X",
        "from ..top import high",
        "from ..top.high import x",
        "import importlib\nimportlib.import_module('pkg.top.high')",
    ],
    ids=["from", "plain", "late", "type-only", "relative", "name of relative", "by name"],
)
def test_an_import_against_the_layers_is_found(source: str) -> None:
    """An import of a later room is found however it is written, late and for types too."""
    graph = import_graph({"pkg.low.base": source, "pkg.top.high": "x = 1"})
    assert ["pkg.low.base imports pkg.top.high"] == against_layers(graph, ("low", "top"))


def test_an_import_of_the_own_package_counts() -> None:
    """A package and its module that take names from each other are a circle."""
    modules = {"pkg.a": "from .b import x", "pkg.a.b": "from . import y"}
    assert {"pkg.a", "pkg.a.b"} == set(circle(import_graph(modules)))


def test_an_implied_parent_counts() -> None:
    """Importing a submodule runs its package, so that the package's own imports count."""
    modules = {
        "pkg.a": "from pkg.b.inner import x",
        "pkg.b": "from pkg.a import y",
        "pkg.b.inner": "x = 1",
    }
    assert {"pkg.a", "pkg.b"} == set(circle(import_graph(modules)))


def test_a_module_outside_every_room_is_found() -> None:
    """A module beside the rooms is named."""
    graph = import_graph({"pkg.low.base": "", "pkg.attic": ""})
    assert ["pkg.attic is in no room"] == against_layers(graph, ("low",))


def test_a_wide_module_is_found() -> None:
    """A module that imports 22 others is named, one that imports 21 is not."""
    modules = {f"pkg.m{n}": "" for n in range(22)}
    modules |= {
        "pkg.wide": "\n".join(f"import pkg.m{n}" for n in range(22)),
        "pkg.fair": "\n".join(f"import pkg.m{n}" for n in range(21)),
    }
    assert ["pkg.wide imports 22 modules"] == wide_imports(import_graph(modules))
