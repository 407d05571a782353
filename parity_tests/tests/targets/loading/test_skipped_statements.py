"""What of a file is not executed is said, and a target that it may change is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.loading import skipped_statements
from mha_parity.worker.open_target import bind_in_process

ATTENTION = """
import numpy as np
CONFIG = {"power": 1.0}
def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** CONFIG["power"]
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True) @ v
def set_up():
    CONFIG["power"] = 0.5
def report():
    other = dict(CONFIG)
    other["power"] = 3
    return other
"""
TRAINS = "for _ in range(3):\n    attention(1, 2, 3).backward()\n"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("import sys\nsys.exit(3)\n", "raises SystemExit: 3 [written.py:17]: from there on"),
        ("raise ImportError('no GPU')\n", "raises ImportError: no GPU [written.py:16]"),
        (TRAINS, ""),
    ],
    ids=["exits", "raises", "trains behind its set-up"],
)
def test_what_a_file_does_before_it_raises_is_done(
    write: Callable[..., str], end: str, said: str
) -> None:
    """The set-up above that line counts, and the report says from where on nothing does."""
    target = write(f"{ATTENTION}\nset_up()\n{end}", "attention")
    if not said:
        with pytest.raises(TargetError, match=r"line 15 may change `CONFIG`, which the target rea"):
            load.load(target)
        return
    subject, asked = load.load(target), Options(cases=60, diagnose=False, shrink=False)
    verdict = check(bind_in_process(subject, asked), asked)
    assert Outcome.PASS == verdict.outcome, verdict
    assert said in skipped_statements.remark_on(subject)
    assert skipped_statements.remark_on(subject) in verdict.notes


CHANGES = {
    "an entry": "CONFIG['power'] = float('0.5')",
    "a method": "CONFIG.update(power=0.5)",
    "a deletion": "del CONFIG['power']",
    "a function that changes": "set_up()",
    "the name": "CONFIG = dict(power=0.5)",
    "an attribute of the target": "attention.factor = float('2')",
    "an attribute of that name": "attention.backends = float('2')",
    "setattr": "setattr(attention, 'factor', 2)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_target_that_may_be_changed_is_refused(write: Callable[..., str], change: str) -> None:
    """Its definitions alone would be judged as something that the file does not have."""
    with pytest.raises(TargetError, match=r"may change `(CONFIG|attention)`, which the "):
        load.load(write(f"{ATTENTION}{change}\n{TRAINS}", "attention"))


@pytest.mark.parametrize(
    "rest",
    [
        "print(CONFIG['power'])",
        "report()",
        "other = attention(1, 2, 3)",
        "others.append(1)",
        "print(np.append([1], 2))",
        "np.backends.cudnn.deterministic = bool(report())",
    ],
)
def test_what_changes_nothing_that_the_target_reads_is_no_obstacle(
    write: Callable[..., str], rest: str
) -> None:
    """To read it, or to change something else, leaves the target as it is defined.

    Nor does a setting of a library's backends, which stands beside its seed.
    """
    assert callable(load.load(write(f"{ATTENTION}others = []\n{rest}\n{TRAINS}", "attention")))


def test_a_partial_function_is_a_definition(write: Callable[..., str]) -> None:
    """It calls nothing: a file that cannot be executed has it all the same."""
    text = f"import functools\n{ATTENTION}\nattention = functools.partial(attention)\n{TRAINS}"
    assert "partial" == type(load.load(write(text, "attention"))).__name__
