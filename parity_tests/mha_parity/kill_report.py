"""What a kill matrix looks like: on a terminal, in sentences, and in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from mha_parity.wrong import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from mha_parity.kill_matrix import Kill, Matrix

NOT_RUN = "–"


def show(
    matrix: Matrix, wanted: Sequence[str], seed: int, console: Console, *, whole: bool
) -> None:
    """Print the matrix of one seed, or, of a further one, what it comes to alone."""
    if whole:
        console.print(table(matrix, wanted))
        for line in summary(matrix):
            console.print(line, highlight=False)
        return
    console.print(f"seed {seed}: {' '.join(verdict(matrix))}", highlight=False)


def table(matrix: Matrix, wanted: Sequence[str]) -> Table:
    """Return the matrix for a terminal: a row an entry, a column a dtype."""
    shown = Table("wrong attention", *(f"{dtype}: seen by (cases)" for dtype in wanted), box=None)
    for name, row in rows(matrix, wanted):
        shown.add_row(name, *row)
    return shown


def rows(matrix: Matrix, wanted: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each entry with what became of it in every dtype."""
    told = {(kill.bug, kill.dtype): words(kill) for kill in matrix.kills}
    for name in dict.fromkeys(kill.bug for kill in matrix.kills):
        yield name, [told.get((name, dtype), NOT_RUN) for dtype in wanted]


def words(kill: Kill) -> str:
    """Say which checks saw an entry, and in how many cases."""
    if not kill.killed:
        return f"survives {kill.cases} cases"
    return ", ".join(f"{name} {count}" for name, count in kill.by.items())


def summary(matrix: Matrix) -> Iterator[str]:
    """Yield what the matrix comes to, in sentences."""
    yield from verdict(matrix)
    for kills in _by_name(_each(matrix, "equivalent")):
        yield f"Equivalent: {kills[0].bug} ({_dtypes(kills)}): {kills[0].proof}."
    for kill in _each(matrix, "beyond"):
        yield f"Beyond the cases drawn: {kill.bug} ({kill.dtype}), {words(kill)}: {kill.proof}."
    for name, bugs in sorted(matrix.alone.items(), key=lambda item: (-len(item[1]), item[0])):
        if bugs:
            yield f"Only the check of {name} sees: {', '.join(bugs)}."
    if matrix.idle:
        yield f"Checks that see nothing another does not see: {', '.join(sorted(matrix.idle))}."


def verdict(matrix: Matrix) -> Iterator[str]:
    """Yield the control, the survivors and the false alarms."""
    for kills in _by_name(_each(matrix, "control")):
        taken = [f"{words(kill)} in {kill.dtype}" for kill in kills if kill.killed]
        fate = f"is taken for wrong by {'; '.join(taken)}" if taken else "survives"
        yield f"Control: the {kills[0].bug} {fate} ({kills[0].cases} cases, {_dtypes(kills)})."
    if matrix.void:
        yield "The matrix is void: a suite that kills the right attention tells nothing."
    due = _each(matrix, "bug")
    seen = sorted((k.first, k.bug, k.dtype) for k in due if k.first is not None)
    last = f", the last ({seen[-1][1]}) after {seen[-1][0]} cases" if seen else ""
    yield f"{len(seen)} of {len(due)} wrong attentions are seen{last}."
    names = ", ".join(f"{kill.bug} in {kill.dtype}" for kill in matrix.survivors)
    yield f"Survivors: {names}." if names else "No observable bug survives."
    alarms = ", ".join(f"{k.bug} in {k.dtype} ({words(k)})" for k in matrix.false_alarms)
    yield f"Taken for wrong: {alarms}." if alarms else "Nothing equivalent is taken for wrong."


def _by_name(kills: Sequence[Kill]) -> list[list[Kill]]:
    """Return the kills of each entry together."""
    names = dict.fromkeys(kill.bug for kill in kills)
    return [[kill for kill in kills if kill.bug == name] for name in names]


def _dtypes(kills: Sequence[Kill]) -> str:
    return ", ".join(kill.dtype for kill in kills)


def _each(matrix: Matrix, role: str) -> list[Kill]:
    return [kill for kill in matrix.kills if kill.role == role]


def markdown(matrices: Sequence[Matrix], wanted: Sequence[str]) -> str:
    """Return the first matrix as Markdown: a row a family, the rows of all bugs folded away."""
    first = matrices[0]
    lines = [
        f"| family | bugs | {' | '.join(wanted)} | seen by |",
        f"|---|{'---|' * (len(wanted) + 2)}",
    ]
    lines += [f"| {' | '.join(row)} |" for row in families(first, wanted)]
    lines += ["", *(f"- {line}" for line in summary(first))]
    if len(matrices) > 1:
        held = sum(matrix.holds for matrix in matrices)
        lines.append(f"- Under {len(matrices)} seeds: as it should be under {held}.")
    lines += ["", "<details><summary>every bug, every check, every dtype</summary>", ""]
    lines += [f"| bug | {' | '.join(wanted)} |", f"|---|{'---|' * len(wanted)}"]
    lines += [f"| `{name}` | {' | '.join(row)} |" for name, row in rows(first, wanted)]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def families(matrix: Matrix, wanted: Sequence[str]) -> Iterator[list[str]]:
    """Yield a row for every family: its name, how many bugs, how many are seen in each dtype."""
    bugs = _each(matrix, "bug")
    for number, name in FAMILIES.items():
        own = [kill for kill in bugs if kill.family == number]
        if not own:
            continue
        seen = [_seen([kill for kill in own if kill.dtype == dtype]) for dtype in wanted]
        checks = dict.fromkeys(check for kill in own for check in kill.by)
        yield [name, str(len({kill.bug for kill in own})), *seen, ", ".join(checks)]


def _seen(own: Sequence[Kill]) -> str:
    return f"{sum(kill.killed for kill in own)} of {len(own)}"
