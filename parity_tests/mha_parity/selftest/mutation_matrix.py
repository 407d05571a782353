"""Say which checks see which entries of the catalogue: in sentences, tables and Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.table import Table

from mha_parity.catalogue import FAMILIES
from mha_parity.checks import call_effects
from mha_parity.checks.metamorphic import RELATIONS
from mha_parity.core.check_result import MASKED_ROWS, SYSTEMATIC
from mha_parity.run.case_run import ANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

NOT_RUN = "–"
GRADIENTS = "gradients"
CHECKS = (
    "output", "weights", GRADIENTS, MASKED_ROWS, SYSTEMATIC, ANSWERED, *RELATIONS,
    *call_effects.CHECKS,
)  # fmt: skip
# Why a check stays that sees no bug alone.
REASONS: Mapping[str, str] = {
    **dict.fromkeys(RELATIONS, "it needs no oracle; relations together see bugs alone, below"),
    ANSWERED: "a call that raises has no output to judge",
    call_effects.FURTHER: "a further call that raises has no answer to compare",
    "determinism": "it names the cause of a wrong output: two equal calls differ",
    "statelessness": "it names the cause of a wrong output: an earlier call",
    "memory layout": "it names the cause of a wrong output: how the arrays lie in memory",
    "dropout off": "it names the cause of a wrong output: the mode",
}


class EntryKind(StrEnum):
    """Kind of an entry, and so its expected outcome: bugs fail, equivalents and controls do not."""

    BUG = "bug"
    EQUIVALENT = "equivalent"
    BEYOND = "beyond"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class MutantResult:
    """Which checks saw one entry in one dtype, in how many cases.

    ``first`` is the number of cases after which it was seen, ``cases`` how many it met; ``proof``
    says why an equivalent, or a bug beyond the cases drawn, cannot be seen.
    """

    bug: str
    dtype: str
    by: Mapping[str, int]
    cases: int
    first: int | None
    role: EntryKind = EntryKind.BUG
    family: int = 0
    proof: str = ""

    @property
    def killed(self) -> bool:
        """Whether any check saw it."""
        return bool(self.by)

    @property
    def sentence(self) -> str:
        """The checks that saw it, each with its number of cases."""
        if not self.killed:
            return f"survives {self.cases} cases"
        return ", ".join(f"{name} {count}" for name, count in self.by.items())


@dataclass(frozen=True, slots=True)
class KillMatrix:
    """The kills of a run over the catalogue."""

    kills: tuple[MutantResult, ...]

    def of(self, role: EntryKind) -> tuple[MutantResult, ...]:
        """Return the kills of one role."""
        return tuple(kill for kill in self.kills if kill.role is role)

    @property
    def survivors(self) -> tuple[MutantResult, ...]:
        """Bugs that no check saw."""
        return tuple(kill for kill in self.of(EntryKind.BUG) if not kill.killed)

    @property
    def false_alarms(self) -> tuple[MutantResult, ...]:
        """Equivalents and controls that some check failed."""
        right = (*self.of(EntryKind.CONTROL), *self.of(EntryKind.EQUIVALENT))
        return tuple(kill for kill in right if kill.killed)

    @property
    def void(self) -> bool:
        """Whether a check failed a control: then a kill means nothing."""
        return any(kill.killed for kill in self.of(EntryKind.CONTROL))

    @property
    def holds(self) -> bool:
        """Whether every bug was seen, and nothing right was."""
        return not self.survivors and not self.false_alarms

    def seen_by(self, check: str) -> list[str]:
        """Return the bugs that a check sees."""
        return sorted({kill.bug for kill in self.of(EntryKind.BUG) if check in kill.by})

    def seen_only_by(self, *checks: str) -> list[str]:
        """Return the bugs that these checks see, in some dtype, and no other check does."""
        bugs = (kill for kill in self.of(EntryKind.BUG) if kill.killed)
        return sorted({kill.bug for kill in bugs if set(kill.by) <= set(checks)})

    @property
    def idle(self) -> tuple[str, ...]:
        """Checks that see no bug alone, those that see none at all among them."""
        return tuple(check for check in CHECKS if not self.seen_only_by(check))

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Checks that see no bug alone, and for which no reason to stay is given."""
        return tuple(check for check in self.idle if check not in REASONS)


def print_matrix(
    matrix: KillMatrix, dtypes: Sequence[str], seed: int, console: Console, *, whole: bool
) -> None:
    """Print the matrix of one seed whole, or its sums alone."""
    if whole:
        console.print(entry_table(matrix, dtypes))
        console.print(check_table(matrix))
        for line in matrix_sentences(matrix):
            console.print(line, highlight=False)
        return
    console.print(f"seed {seed}: {' '.join(verdict(matrix))}", highlight=False)


def entry_table(matrix: KillMatrix, dtypes: Sequence[str]) -> Table:
    """Return the matrix for a terminal: a row per entry, a column per dtype."""
    header = ("wrong attention", *(f"{dtype}: seen by (cases)" for dtype in dtypes))
    return rich_table(header, ((name, *row) for name, row in entry_rows(matrix, dtypes)))


def entry_rows(matrix: KillMatrix, dtypes: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each entry with the checks that saw it in every dtype."""
    sentences = {(kill.bug, kill.dtype): kill.sentence for kill in matrix.kills}
    for name in dict.fromkeys(kill.bug for kill in matrix.kills):
        yield name, [sentences.get((name, dtype), NOT_RUN) for dtype in dtypes]


def check_table(matrix: KillMatrix) -> Table:
    """Return a row for every check, for a terminal."""
    return rich_table(CHECK_COLUMNS, bugs_by_check(matrix))


CHECK_COLUMNS = ("check", "bugs seen", "seen by it alone, or why it stays")


def bugs_by_check(matrix: KillMatrix) -> Iterator[tuple[str, str, str]]:
    """Yield every check, the number of bugs it sees, and those it alone sees, or its reason."""
    for check in CHECKS:
        alone = ", ".join(matrix.seen_only_by(check))
        yield check, str(len(matrix.seen_by(check))), alone or REASONS.get(check, "no reason")


def matrix_sentences(matrix: KillMatrix) -> Iterator[str]:
    """Yield the results of a matrix in sentences."""
    yield from verdict(matrix)
    for kills in _by_name(matrix.of(EntryKind.EQUIVALENT)):
        yield f"Equivalent: {kills[0].bug} ({_dtypes(kills)}): {kills[0].proof}."
    for kill in matrix.of(EntryKind.BEYOND):
        yield f"Beyond the cases drawn: {kill.bug} ({kill.dtype}), {kill.sentence}: {kill.proof}."
    by_relations = ", ".join(matrix.seen_only_by(*RELATIONS))
    yield f"Bugs that relations alone see: {by_relations or 'none'}."
    unexplained = ", ".join(matrix.unexplained)
    yield f"Checks that see no bug alone, with no reason to stay: {unexplained or 'none'}."


def verdict(matrix: KillMatrix) -> Iterator[str]:
    """Yield the controls, the survivors and the false alarms."""
    for kills in _by_name(matrix.of(EntryKind.CONTROL)):
        failed = [f"{kill.sentence} in {kill.dtype}" for kill in kills if kill.killed]
        result = f"fails by {'; '.join(failed)}" if failed else "survives"
        yield f"Control: the {kills[0].bug} {result} ({kills[0].cases} cases, {_dtypes(kills)})."
    if matrix.void:
        yield "The matrix is void: a suite that fails the right attention proves nothing."
    bugs = matrix.of(EntryKind.BUG)
    seen = sorted((k.first, k.bug, k.dtype) for k in bugs if k.first is not None)
    last = f", the last ({seen[-1][1]}) after {seen[-1][0]} cases" if seen else ""
    yield f"{len(seen)} of {len(bugs)} wrong attentions are seen{last}."
    names = ", ".join(f"{kill.bug} in {kill.dtype}" for kill in matrix.survivors)
    yield f"Survivors: {names}." if names else "No observable bug survives."
    alarms = ", ".join(f"{k.bug} in {k.dtype} ({k.sentence})" for k in matrix.false_alarms)
    yield f"False alarms: {alarms}." if alarms else "No equivalent raises a false alarm."


def _by_name(kills: Sequence[MutantResult]) -> list[list[MutantResult]]:
    """Return the kills of each entry together."""
    names = dict.fromkeys(kill.bug for kill in kills)
    return [[kill for kill in kills if kill.bug == name] for name in names]


def _dtypes(kills: Sequence[MutantResult]) -> str:
    return ", ".join(kill.dtype for kill in kills)


def matrix_markdown(matrices: Sequence[KillMatrix], dtypes: Sequence[str]) -> str:
    """Return the first matrix as Markdown: families and checks, then every bug, folded."""
    first = matrices[0]
    lines = [
        *markdown_table(("family", "bugs", *dtypes, "seen by"), family_rows(first, dtypes)),
        "",
        *markdown_table(CHECK_COLUMNS, bugs_by_check(first)),
        "",
        *(f"- {line}" for line in matrix_sentences(first)),
    ]
    if len(matrices) > 1:
        held = sum(matrix.holds for matrix in matrices)
        lines.append(f"- Under {len(matrices)} seeds: as it should be under {held}.")
    bugs = ((f"`{name}`", *row) for name, row in entry_rows(first, dtypes))
    lines += ["", "<details><summary>every bug, every check, every dtype</summary>", ""]
    lines += markdown_table(("bug", *dtypes), bugs)
    return "\n".join([*lines, "", "</details>"]) + "\n"


def rich_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return the rows as a table for a terminal."""
    table = Table(*header, box=None)
    for row in rows:
        table.add_row(*row)
    return table


def markdown_table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def family_rows(matrix: KillMatrix, dtypes: Sequence[str]) -> Iterator[list[str]]:
    """Yield a row for every family: its name, how many bugs, how many are seen in each dtype."""
    bugs = matrix.of(EntryKind.BUG)
    for number, name in FAMILIES.items():
        own = [kill for kill in bugs if kill.family == number]
        if not own:
            continue
        seen = [_seen([kill for kill in own if kill.dtype == dtype]) for dtype in dtypes]
        checks = dict.fromkeys(check for kill in own for check in kill.by)
        yield [name, str(len({kill.bug for kill in own})), *seen, ", ".join(checks)]


def _seen(own: Sequence[MutantResult]) -> str:
    return f"{sum(kill.killed for kill in own)} of {len(own)}"
