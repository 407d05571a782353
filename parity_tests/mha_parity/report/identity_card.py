"""An identity card in a terminal and as JSON: a line for each experiment."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from rich.panel import Panel
from rich.text import Text

from mha_parity.core.features import label
from mha_parity.report import wording
from mha_parity.report.columns import Pairs, ReportText

if TYPE_CHECKING:
    from rich.console import Console

    from mha_parity.core.identity_card import ExperimentResult, IdentityCard
    from mha_parity.core.verdict import Diagnosis

MASK_AXES = ("padding", "attn")
SCHEMA = "mha-parity-identity/1"
STATUS = {True: "pass", False: "fail", None: "inconclusive"}  # of a measure, in the report's words


def print_identity_card(card: IdentityCard, console: Console) -> None:
    """Print the card: what the target computes, a line for each experiment, then what departs."""
    page = ReportText(console.width, names=max(len(named(each)[0]) for each in card.measures) + 2)
    page.block([_line(each) for each in card.measures])
    for cause in card.causes:
        page.block(_cause(cause))
    status = STATUS[card.as_torch]
    heading = Text(card.sentence, style=f"bold {wording.COLOUR[status]}")
    setting = Text(f"{card.target} · {card.convention} · {card.calls} calls", "dim")
    console.print()
    console.print(
        Panel(
            Text.assemble(heading, "\n", setting),
            border_style=wording.COLOUR[status],
            expand=False,
        )
    )
    for line in page.lines:
        console.print(line, soft_wrap=True)
    console.print()


def _line(each: ExperimentResult) -> tuple[str, Text]:
    status = STATUS[each.as_torch]
    name, sentence = named(each)
    return f"{wording.SIGN[status]} {name}", Text(sentence)


def named(each: ExperimentResult) -> tuple[str, str]:
    """Return the name of an experiment and its sentence; a feature's own words start that."""
    axis, _, value = each.experiment.partition("=")
    if not value:
        return each.experiment, each.sentence
    kind = "mask" if axis in MASK_AXES else "feature"
    return kind, f"{label(axis, value)}: {each.sentence}"


def _cause(cause: Diagnosis) -> Pairs:
    rows = (("departs", cause.title), ("evidence", cause.evidence), ("remedy", cause.remedy))
    return [
        (name, Text(text, style="bold" if name == "departs" else "")) for name, text in rows if text
    ]


def identities_as_json(cards: list[IdentityCard]) -> str:
    """Return one card's document, or several under ``runs``."""
    documents = [identity_document(card) for card in cards]
    whole: Any = documents[0] if len(documents) == 1 else {"schema": SCHEMA, "runs": documents}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def identity_document(card: IdentityCard) -> dict[str, Any]:
    """Return the card as plain JSON values."""
    points = card.transfer
    return {
        "schema": SCHEMA,
        "target": card.target,
        "convention": card.convention,
        "as_torch": card.as_torch,
        "sentence": card.sentence,
        "experiments": [_measure(each) for each in card.measures],
        "departures": [
            {"title": each.title, "remedy": each.remedy, "evidence": each.evidence}
            for each in card.causes
        ],
        "transfer": None if points is None else {
            "scores": points.scores.tolist(), "log_weights": points.found.tolist(),
        },
        "influence": [
            {"title": each.title, "rows": each.rows, "columns": each.columns,
             "reached": each.reached.tolist(), "expected": each.expected.tolist()}
            for each in card.influence
        ],
        "calls": card.calls,
        "seconds": round(card.seconds, 3),
        "environment": dict(card.environment),
    }  # fmt: skip


def _measure(each: ExperimentResult) -> dict[str, Any]:
    value = each.value
    finite = value is not None and math.isfinite(value)
    return {
        "experiment": each.experiment,
        "as_torch": each.as_torch,
        "sentence": each.sentence,
        "value": value if finite else None,
        "unit": each.unit,
    }
