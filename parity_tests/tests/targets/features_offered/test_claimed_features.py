"""What a signature or a shape claims is tried once, and what raises is not offered."""

from __future__ import annotations

import time

import pytest

from mha_parity.cases.clashes import can_coexist
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.report import wording
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.convention import Convention
from mha_parity.targets.features_offered.claimed_features import claimed_cases
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

SUBJECT = f"{SUBJECTS}/partly_served.py"
# What each of them raises on: axis, value, and a word of its own.
RAISES = {
    "self_attention_only": [("inputs", "cross", "reshape")],
    "contiguous_only": [
        ("memory", "fortran", "C-contiguous"),
        ("memory", "negative", "C-contiguous"),
        ("memory", "sliced", "C-contiguous"),
    ],
    "float64_only": [("dtype", each, "expected float64") for each in ("float32", "float16")],
    "Boolean": [
        ("attn", "float2d", "masks must be boolean"),
        ("attn", "float3d", "masks must be boolean"),
        ("padding", "float", "masks must be boolean"),
        ("layout", "unbatched", "query must be a batch"),
    ],
    "grouped_heads_raise": [("kv_heads", "fewer", "enable_gqa")],
    "tiles_of_the_third_axis": [("layout", "unbatched", "dimension")],
}


def bound(name: str) -> Convention:
    """Return a subject, bound and probed."""
    return bind(load(f"{SUBJECT}:{name}"))


def judged(name: str, cases: int = 60) -> Verdict:
    """Return the verdict on a subject."""
    options = Options(cases=cases, dtypes=("float64",), diagnose=False, shrink=False)
    return check(bound(name), options, target=name)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", RAISES)
def test_what_raises_is_not_offered_with_its_own_words(name: str) -> None:
    """Each claimed feature that raises is left out with the reason, and the rest is right."""
    candidate = bound(name)
    for axis, value, word in RAISES[name]:
        assert value not in candidate.offer[axis]
        assert word in candidate.reasons[axis, value]
    verdict = judged(name)
    assert 0 == verdict.failed
    for axis, value, word in RAISES[name]:
        (row,) = [r for r in verdict.features if (r.axis, r.value) == (axis, value)]
        assert "not offered" == row.status
        assert word in row.reason or axis == "dtype"
    sentences = " ".join(wording.not_offered(verdict))
    assert name == "self_attention_only" or RAISES[name][0][2] in sentences or "dtype" in sentences


def test_self_attention_alone_is_said_in_one_line_with_the_remedy() -> None:
    """What raises on S unlike L passes on S = L, and the note has the option for that."""
    verdict = judged("self_attention_only")
    (note,) = [each for each in verdict.notes if "S unlike L" in each]
    assert note.startswith("S unlike L is not served (raised ValueError: cannot reshape")
    assert note.endswith("--features inputs=self")


def test_wrong_numbers_on_unlike_lengths_stay_red_and_are_said() -> None:
    """What answers S unlike L wrongly is offered and fails, and the note names the border."""
    candidate = bound("cuts_the_keys")
    assert "cross" in candidate.offer["inputs"]
    verdict = judged("cuts_the_keys")
    assert Outcome.FAIL is verdict.outcome
    assert any(note.startswith("right where S = L, and fails") for note in verdict.notes)


def test_a_first_axis_of_heads_is_no_batch() -> None:
    """3-D inputs taken as (heads, L, D) are another problem: not offered, and no failure."""
    candidate = bound("first_axis_is_heads")
    assert ("unbatched",) == candidate.offer["layout"]
    reason = candidate.reasons["layout", "batch_first"]
    assert "3-D inputs are taken as (heads, L, D)" == reason
    assert 0 == judged("first_axis_is_heads").failed


def test_a_wrong_batch_stays_offered_and_red() -> None:
    """Samples that are mixed up are no other meaning of the shape."""
    candidate = bound("mixes_samples")
    assert ("unbatched", "batch_first") == candidate.offer["layout"]
    assert Outcome.FAIL is judged("mixes_samples").outcome


def test_what_is_offered_does_not_depend_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that takes 100 s a call by every clock is tried on all that it claims."""
    fast = bound("contiguous_only")
    function, clock = load(f"{SUBJECT}:contiguous_only"), time.perf_counter
    calls = 0

    def contiguous_only(Q: object, K: object, V: object, n_heads: int) -> object:
        nonlocal calls
        calls += 1
        return function(Q, K, V, n_heads)

    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(time, name, lambda: clock() + 100.0 * calls)
    slow = bind(contiguous_only, fast.convention)
    assert calls > len(list(claimed_cases(slow.plain_case(), slow.claims()))) > 3
    assert slow.offer == fast.offer


@pytest.mark.parametrize("name", ["torch.nn:MultiheadAttention", f"{SUBJECT}:contiguous_only"])
def test_every_claimed_case_has_its_feature_and_can_be_drawn(name: str) -> None:
    """Each case has the value that it is to try, and all its features occur together."""
    candidate = bind(load(name))
    tried = list(claimed_cases(candidate.plain_case(), candidate.claims()))
    once = [(axis, value) for axis, value, _ in tried if axis != "memory"]
    assert len(once) == len({*once}) > 2
    # Memory is tried in each layout and with each mask besides: there arrays are viewed otherwise.
    assert len(tried) == len({case for *_, case in tried})
    for axis, value, case in tried:
        assert value == getattr(case, axis)
        assert can_coexist(case.features())
