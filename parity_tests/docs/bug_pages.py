"""Write the pages of the catalogue of bugs: an index, and a page a family, with pictures."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import catalogue
from mha_parity.catalogue.registry import FAMILIES
from mha_parity.commands.bug_example import bug_example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.catalogue import Bug
    from mha_parity.commands.bug_example import BugExample
    from mha_parity.core.arrays import Array

ROWS, COLUMNS = 9, 10  # of a picture at most
NO_PICTURE = "No picture: no case of the suite shows it at once."
SEVERAL_CALLS = (
    "No picture: it takes more than one call, or a look at what a call does besides its answer."
)


def bug_pages(picture: Callable[[Bug], BugExample | None]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each page: the index `bugs`, then `bugs/FAMILY`."""
    by_family: dict[int, list[Bug]] = {}
    for bug in sorted(catalogue().values(), key=lambda each: bool(each.equivalent)):
        by_family.setdefault(bug.family, []).append(bug)
    by_family = dict(sorted(by_family.items()))
    yield "bugs", "\n".join(_index(by_family)) + "\n"
    for family, bugs in by_family.items():
        yield f"bugs/{slug(family)}", "\n".join(_family(family, bugs, picture)) + "\n"


def slug(family: int) -> str:
    """Return the file name of a family."""
    return re.sub(r"\W+", "-", FAMILIES[family].lower())


def _index(by_family: dict[int, list[Bug]]) -> Iterator[str]:
    wrong = [bug for bug in catalogue().values() if not bug.equivalent]
    variants = len(catalogue()) - len(wrong)
    seen = sum(bool(bug.sources) for bug in wrong)
    yield from ("# The catalogue of bugs", "")
    yield (
        f"{len(wrong)} wrong attentions and {variants} unusual right ones, which pass. Of the "
        f"wrong ones {seen} name threads of real projects; of the others no thread is known. "
        "`mha-parity explain ID` prints an entry."
    )
    yield from ("", "```{toctree}", ":hidden:", "")
    yield from (f"bugs/{slug(family)}" for family in by_family)
    yield from ("```", "")
    for family, bugs in by_family.items():
        page = f"bugs/{slug(family)}.md"
        yield from (
            f"## {FAMILIES[family].capitalize()}",
            "",
            "| bug | what it does |",
            "|---|---|",
        )
        yield from (f"| [{bug.id}]({page}#{bug.id}) | {_escaped(bug.title)} |" for bug in bugs)
        yield ""


def _family(
    family: int, bugs: list[Bug], picture: Callable[[Bug], BugExample | None]
) -> Iterator[str]:
    yield f"# Bugs: {FAMILIES[family]}"
    for bug in bugs:
        yield from ("", f"## {bug.id}", "")
        right = " A right variant, which passes." if bug.equivalent else ""
        yield from (f"{bug.title[0].upper()}{_escaped(bug.title[1:])}.{right}", "")
        rows = {
            "computes": f"`{bug.wrong}`",
            "instead of": f"`{bug.right}`",
            "visible": _escaped(bug.visible_when),
            "equal because": _escaped(bug.equivalent or ""),
            "remedy": _escaped(bug.remedy),
            "seen in": ", ".join(link(source) for source in bug.sources),
        }
        yield from (f"- **{name}**: {text}" for name, text in rows.items() if text)
        yield from ("", *_picture(bug, picture))


def _picture(bug: Bug, picture: Callable[[Bug], BugExample | None]) -> Iterator[str]:
    """Yield the maps of right, wrong and difference, or the sentence why there are none."""
    if bug.equivalent:
        return
    if bug.make is not None:
        yield SEVERAL_CALLS
        return
    found = picture(bug)
    if found is None:
        yield NO_PICTURE
        return
    sample, head = _worst(found)
    of = f", head {head}" if head is not None else ""
    of = f", sample {sample}{of}" if len(found.right) > 1 else of
    what = "Attention weights" if found.what == "weights" else "Output"
    # Where it takes many keys, the example has smaller constants than the bug.
    other = bug_example(bug, found.problem.case) is None
    constants = ", with smaller blocks than it has" if other else ""
    yield f"{what}{of}, of `{found.problem.case.id}`{constants}:"
    yield ""
    yield '<div class="maps">'
    right = _plate(found.right, sample, head)
    yield heat_map(right, "right", diverging=found.what != "weights")
    if found.wrong is None:
        yield "<p>wrong: none, it raises an error</p>"
    else:
        wrong = _plate(found.wrong, sample, head)
        yield heat_map(wrong, "wrong", diverging=found.what != "weights")
        if wrong.shape == right.shape:
            with np.errstate(all="ignore"):
                yield heat_map(wrong - right, "wrong − right", diverging=True, kind="difference")
    yield "</div>"
    if max(right.shape[0] - ROWS, right.shape[1] - COLUMNS) > 0:
        yield from ("", f"Shown: the first {ROWS} rows and {COLUMNS} columns at most.")


def _worst(found: BugExample) -> tuple[int, int | None]:
    """Return sample and head of the largest difference; None for what has no heads."""
    has_heads = found.right.ndim == 4
    difference = found.difference
    if difference is None or not difference.size:
        return 0, 0 if has_heads else None
    size = np.nan_to_num(np.abs(difference), nan=np.inf)
    index = np.unravel_index(int(size.argmax()), size.shape)
    return (int(index[0]) if size.ndim > 2 else 0), (int(index[1]) if has_heads else None)


def _plate(array: Array, sample: int, head: int | None) -> Array:
    """Return one matrix in float64."""
    plate = array[min(sample, len(array) - 1)] if array.ndim > 2 else array
    plate = plate[head] if head is not None and plate.ndim == 3 else plate
    return np.atleast_2d(np.asarray(plate, dtype=np.float64))


def heat_map(values: Array, title: str, *, diverging: bool, kind: str = "") -> str:
    """Return a matrix as a table whose cells are coloured by their share of the largest number."""
    shown = values[:ROWS, :COLUMNS]
    known = np.abs(shown[np.isfinite(shown)])
    most = float(known.max(initial=0)) or 1.0
    most = most if diverging else max(most, 1e-2)
    rows = "".join(
        f"<tr>{''.join(_cell(float(value), most) for value in row)}</tr>" for row in shown
    )
    names = " ".join(filter(None, ("map", kind)))
    return f'<table class="{names}"><caption>{html.escape(title)}</caption>{rows}</table>'


def _cell(value: float, most: float) -> str:
    if not np.isfinite(value):
        return f'<td class="none">{"?" if np.isnan(value) else "∞" if value > 0 else "−∞"}</td>'
    sign = ' class="minus"' if value < 0 else ""
    return f'<td{sign} style="--share:{abs(value) / most:.2f}">{short(value)}</td>'


def short(value: float) -> str:
    """Return a number in five characters at most."""
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.005 or size >= 99.5:
        text = re.sub(r"e([+-])0*", r"e\1", f"{value:.0e}").replace("e+", "e")
    else:
        text = re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
    return text.replace("-", "−")


def _escaped(text: str) -> str:
    """Return text whose marks Markdown leaves alone."""
    return re.sub(r"([*_<|])", r"\\\1", text)


def link(source: str) -> str:
    """Return a Markdown link for `owner/repo#number`, any other source as it is."""
    repository, mark, number = source.partition("#")
    if repository.count("/") == 1 and mark and number.isdecimal():
        return f"[{source}](https://github.com/{repository}/issues/{number})"
    return f"`{source}`"
