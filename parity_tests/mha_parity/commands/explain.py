"""``mha-parity explain BUG``: one bug, with numbers computed on the spot."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import FAMILIES, Attention, answer_of, catalogue, whole_offer
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.compare import equal_up_to_rounding, max_difference
from mha_parity.core.features import label
from mha_parity.report.columns import ReportText
from mha_parity.run.shrink import smallest_failing_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from mha_parity.catalogue import Bug
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

TRIED = 150  # cases of the suite: in how many the bug shows, and from which the example is shrunk
RUNS = range(4)  # seeds whose cases are tried one after the other, until one shows the bug
MANY = 16  # too many keys to print
VISIBLE = 1e-3  # of the largest value: less is too small to see, used only if there is no other


@dataclass(frozen=True, eq=False)
class BugExample:
    """A problem on which a bug shows, what is shown of it, and both answers; None: no answer."""

    problem: Problem
    what: str
    right: Array
    wrong: Array | None


def bug_named(name: str) -> Bug:
    """Return the bug called ``name``.

    Raises
    ------
    ValueError
        The catalogue has none of that name.

    """
    bugs = catalogue()
    if name in bugs:
        return bugs[name]
    close = difflib.get_close_matches(name, bugs, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "see mha-parity list bugs."
    raise ValueError(f"got the bug {name!r}, but the catalogue has no such one; {hint}")


def print_bug(name: str, console: Console) -> None:
    """Print the description of the bug called ``name``."""
    bug = bug_named(name)
    said = list(bug_rows(bug))
    page = ReportText(console.width, names=max(len(each) for each, _ in said))
    page.block(said)
    for line in page.lines[1:]:
        console.print(line, soft_wrap=True)
    console.print()
    if bug.equivalent:
        console.print(" No example: no problem drawn here tells it from the right attention.")
    elif bug.make is not None:
        console.print(
            " No example: it takes more than one call, or a look at conduct. A check of the target "
            "watches for it."
        )
    else:
        _example(bug, console)


def bug_rows(bug: Bug) -> Iterator[tuple[str, Text]]:
    """Yield what the catalogue knows about the bug, a row each."""
    yield "bug", Text(f"{bug.title}  [{bug.id}]", style="bold")
    yield "family", Text(FAMILIES[bug.family])
    yield "right", Text(bug.right, style="green")
    yield "wrong", Text(bug.wrong, style="red")
    yield "shows", Text(bug.visible_when)
    if bug.needs:
        yield "hidden", Text(f"unless the problem has: {_needed(bug)}")
    if bug.equivalent:
        yield "proof", Text(f"equal: {bug.equivalent}")
    if bug.beyond:
        yield "beyond", Text(f"the cases drawn here: {bug.beyond}")
    yield "remedy", Text(bug.remedy)
    if bug.aliases:
        yield "alias", Text(", ".join(a.replace("(right)", "the right one") for a in bug.aliases))
    yield "seen in", Text(", ".join(bug.sources) or "the work of students; no thread is known")


def _needed(bug: Bug) -> str:
    axes = (" or ".join(label(a, value) for value in values) for a, values in bug.needs.items())
    return "; and: ".join(axes)


def _example(bug: Bug, console: Console) -> None:
    """Print in how many cases the bug shows, and the smallest of them with both answers."""
    examples: list[BugExample] = []
    tried = 0
    for seed in RUNS:
        examples += [e for case in _cases(bug, seed) if (e := bug_example(bug, case)) is not None]
        tried += TRIED
        if examples:
            break
    console.print(f" It shows in {len(examples)} of {tried} cases of the suite.", highlight=False)
    if not examples:
        return
    # Sorting keeps what shows plainly in front, and inputs that can be printed before layers.
    first = min(examples, key=_order)
    least = min((_shrunk(each, first) for each in _spellings(bug, first)), key=_order)
    console.print(Text(f" The smallest found: {least.problem.case.id}\n", style="bold"))
    for title, array in _arrays(least):
        console.print(Text(f" {title}", style="dim"))
        console.print(Text(_printed(array)))


def _spellings(bug: Bug, first: BugExample) -> Iterator[Bug]:
    """Yield the bug; where it takes many keys, with other constants too, such as smaller blocks."""
    yield bug
    if first.problem.case.keys > MANY:
        for kind in bug.kinds[1:]:
            other = dataclasses.replace(bug, kinds=(kind,))
            if bug_example(other, first.problem.case) is not None:
                yield other


def _cases(bug: Bug, seed: int) -> Iterator[Case]:
    dtype = "float64" if "float64" in bug.dtypes else bug.dtypes[0]
    for case in draw_cases(whole_offer() | {"dtype": (dtype,)}, TRIED, seed):
        yield case if "memory" in bug.needs else case.replace(memory="c")


def bug_example(bug: Bug, case: Case) -> BugExample | None:
    """Return what the bug shows on a case; None where it shows nothing."""
    problem = make_problem(case)
    right = answer_of(Attention, problem)
    try:
        wrong = bug.attend(problem)
    except (CandidateError, ValueError, IndexError):
        return BugExample(problem, "output", right.output, None)
    for what in ("output", "weights"):
        found, expected = _of(wrong, what), _of(right, what)
        if found is not None and expected is not None and not equal_up_to_rounding(expected, found):
            return BugExample(problem, what, expected, found)
    return None


def _of(answer: Answer, what: str) -> Array | None:
    array: Array | None = answer.output if what == "output" else answer.weights
    return array


def _large(found: BugExample) -> bool:
    if found.wrong is None or found.wrong.shape != found.right.shape:
        return True
    largest = float(np.abs(np.nan_to_num(found.right)).max(initial=0))
    return max_difference(found.right, found.wrong) > VISIBLE * largest


def _shrunk(bug: Bug, first: BugExample) -> BugExample:
    """Return the smallest example of the same kind that shrinking finds."""
    best = first

    def still(case: Case) -> bool:
        nonlocal best
        found = bug_example(bug, case)
        if found is None or _large(first) > _large(found) or found.what != first.what:
            return False
        if (found.wrong is None) is not (first.wrong is None) or _empty(found) > _empty(first):
            return False
        best = found
        return True

    smallest_failing_case(first.problem.case, still, lambda case: case.gradients == "no")
    return best


def _empty(found: BugExample) -> bool:
    return found.right.size == 0


def _order(found: BugExample) -> tuple[bool, bool, bool, bool, int, str]:
    """Return what makes an example a good one to start from, best first."""
    case = found.problem.case
    narrow = min(case.queries, case.keys) < 2
    elements = case.batch * case.queries * case.keys * case.embed_dim
    return _empty(found), not _large(found), narrow, case.form == "mha", elements, case.id


def _arrays(found: BugExample) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of an example that are small enough to print, of its first sample."""
    problem = found.problem
    if problem.case.form == "qkv":
        for name in ("query", "key", "value"):
            yield name, getattr(problem, name)[:1]
    for name in ("key_padding_mask", "attn_mask"):
        mask = getattr(problem, name)
        if mask is not None:
            text = f"{name} (True: hidden)" if mask.dtype == np.bool_ else name
            yield text, mask if name == "attn_mask" and mask.ndim == 2 else mask[:1]
    yield f"{found.what}, right ({found.right.dtype})", found.right[:1]
    if found.wrong is None:
        yield f"{found.what}, wrong: none, it raises an error", np.zeros(0)
    else:
        yield f"{found.what}, wrong ({found.wrong.dtype})", found.wrong[:1]


def _printed(array: Array) -> str:
    if not array.size:
        return ""
    rows = array[0] if array.ndim > 2 else array
    with np.printoptions(precision=4, suppress=True, threshold=60, edgeitems=3, linewidth=74):
        return "\n".join(f"   {line}" for line in str(rows).splitlines())
