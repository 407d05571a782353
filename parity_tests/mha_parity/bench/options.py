"""The options of ``mha-parity bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.bench.stats import MIN_VALUES
from mha_parity.bench.tasks import parse_sizes
from mha_parity.core.option_values import positive_integer

if TYPE_CHECKING:
    import argparse

EPILOG = (
    "Every contender has a process of its own, is judged on the same inputs before it is timed, "
    "and all are timed in rounds; what counts are the ratios within the rounds. "
    "Exit status: 0 done, 1 an answer is wrong or --compare found a regression, 2 could not start."
)
BOTH = {"no": (False,), "yes": (True,), "both": (False, True)}


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """Add everything that the command takes."""
    add = parser.add_argument
    add("target", nargs="?", metavar="TARGET", help="one more contender: whose attention")
    add(
        "--sizes",
        type=parse_sizes,
        metavar='"N,L,E,H;..."',
        help="problems, or sets of them: default, small, middle, large, lengths, gpt3",
    )
    add("--quick", action="store_true", help="three sizes, as few rounds as bound a median")
    add(
        "--rounds",
        type=positive_integer,
        metavar="N",
        help=f"rounds a task, {MIN_VALUES} or more (default: as many as fit 8 s)",
    )
    add(
        "--threads",
        type=positive_integer,
        metavar="N",
        help="of each contender (default: all cores)",
    )
    for name, what in (
        ("causal", "with the causal mask"),
        ("padded", "with padded keys"),
        ("backward", "forward and backward"),
    ):
        add(
            f"--{name}",
            nargs="?",
            const="yes",
            default="no",
            choices=tuple(BOTH),
            help=f"{what}: yes, no or both (without a word: yes)",
        )
    add(
        "--projected",
        action="store_true",
        help="attention on projected q, k and v alone, beside torch's "
        "scaled_dot_product_attention (by itself where the target takes those alone)",
    )
    add("--dtype", choices=("float32", "float64"), default="float32", help="(%(default)s)")
    add("--convention", metavar="NAME", help="how the target is called (default: recognised)")
    add("--json", metavar="FILE", help="write times, ratios and machine, for --compare and scripts")
    add("--markdown", metavar="FILE", help="write a table of ratios as Markdown")
    add("--plot", metavar="FOLDER", help="write pictures of time, memory and ratios as SVG")
    add("--compare", metavar="BASELINE", help="fail where a ratio grew beyond its interval there")
