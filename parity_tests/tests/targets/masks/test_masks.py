"""Masks are passed to every convention in the form that it takes, and judged as torch's are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mha_parity.core.parameters import Role, Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.masks import finite_fill
from subject_checks import SUBJECTS, check_subject, checks_of

KEEPS = "True keeps, the opposite of torch.nn.MultiheadAttention's"
HIDES = "True hides, as in torch.nn.MultiheadAttention"
# Right ones: what is said of their first mask, and features that are drawn.
RIGHT = {
    "TorchNames": (HIDES, {"attn=bool2d", "attn=float2d", "attn=causal", "padding=float"}),
    "Reshaped": (HIDES, {"attn=bool2d", "attn=causal", "padding=bool"}),
    "Keeps": (KEEPS, {"attn=bool2d", "attn=bool3d", "padding=bool", "attn=causal"}),
    "KeepsByFilledZeros": (
        "1 keeps, the opposite of torch.nn",
        {"padding=bool", "padding=lengths"},
    ),
    "KeepsFlipped": (HIDES, {"attn=bool2d", "padding=bool"}),
    "TokenMask": (HIDES, {"padding=bool", "padding=lengths"}),
    "PairMask": (HIDES, {"attn=bool2d", "padding=bool", "attn=causal"}),
    "SelfMask": (KEEPS, {"attn=bool2d", "attn=causal"}),
    "CausalInside": (KEEPS, {"attn=causal", "attn=none", "padding=bool"}),
    "lengths_of_keys": ("the number of visible keys", {"padding=lengths", "attn=causal"}),
    "Lowered": (KEEPS, {"padding=bool", "padding=lengths"}),
    "scaled": ("floats are added to the scores", {"attn=float2d", "padding=bool"}),
    "added": ("floats are added to the scores", {"attn=float2d"}),
}
WRONG = (
    "TorchNamesInverted", "TorchNamesIgnored", "TokenMaskFirstHead", "KeepsByAxes", "KeepsByDtype",
    "PairMaskOfOthers", "SelfMaskTransposed", "SelfMaskShifted", "CausalLoose", "lengths_inclusive",
    "added_before_scaling", "filled_too_high", "LoweredTooLittle", "scaled_masks",
    "multiplied", "after_softmax", "drops_queries_and_keys",
)  # fmt: skip


judged = cache(checks_of("mask_meanings.py", cases=40, dtypes=("float64",)))


def test_floats_that_are_no_addends_are_said_to_be_none() -> None:
    """By torch's name they are added; what raises on them, or adds them, has no such remark."""
    said = "`attn_mask`: floats are answered, and not added to the scores as torch adds them."
    assert said in judged("TruthOfFloats").notes
    assert said not in judged("TorchNames").notes


def test_booleans_that_are_added_under_torchs_name_are_said() -> None:
    """A mask of floats holds; what a True does there is not what torch's does."""
    said = (
        "`attn_mask`: booleans are answered, and do not hide where they are True, as torch's do; "
        "pass floats."
    )
    verdict = judged("TorchNamesAdded")
    assert verdict.outcome is Outcome.PASS, verdict.sentence
    assert said in verdict.notes
    assert said not in judged("TorchNames").notes


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", RIGHT)
def test_right_masks_are_understood_and_hold(name: str) -> None:
    """The meaning found is said, cases pass masks, and the verdict is green."""
    verdict = judged(name)
    said, drawn = RIGHT[name]
    assert Outcome.PASS == verdict.outcome, verdict
    meanings = [each.meaning for each in verdict.parameters if each.meaning]
    assert any(said in each for each in meanings), meanings
    found = {f"{row.axis}={row.value}" for row in verdict.features if row.cases}
    assert drawn == drawn & found


def test_what_a_name_promises_says_how_to_mean_the_opposite() -> None:
    """A layer's `key_padding_mask` is judged as torch's; what other names mean was found."""
    meanings = {each.name: each.meaning for each in judged("TorchNames").parameters}
    said = "; judged so by its name, unless --masks {}=keeps"
    for name in ("attn_mask", "key_padding_mask"):
        assert said.format(name) in meanings[name]
    (mask,) = (each for each in judged("Keeps").parameters if each.meaning.startswith(KEEPS))
    assert mask.meaning.endswith(
        f"; found by trial, --masks {mask.name}=hides demands the opposite"
    )


def test_a_function_promises_by_torchs_names_too() -> None:
    """`key_padding_mask` of a function hides where it is True: one that keeps there is wrong."""
    verdict = checks_of("returned_scores.py", cases=80, dtypes=("float64",))("keeps_padding")
    assert Outcome.FAIL == verdict.outcome, verdict
    (said,) = [each.meaning for each in verdict.parameters if each.meaning]
    assert "judged so by its name" in said


def test_an_attn_mask_beside_the_module_s_padding_is_the_module_s() -> None:
    """True hides in both: kills the meaning of torch's function by the shape of inputs alone."""
    of_scores = checks_of("returned_scores.py", cases=40, dtypes=("float64",))
    verdict = of_scores("with_module_masks")
    assert Outcome.PASS == verdict.outcome, verdict
    (said,) = (each.meaning for each in verdict.parameters if "attn_mask" == each.name)
    assert "True hides, as in torch.nn.MultiheadAttention" in said
    assert Outcome.FAIL == of_scores("keeps_beside_padding", fail_fast=True).outcome


@pytest.mark.repeats(4)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_masks_are_never_green(name: str) -> None:
    """A mask that is wrong in one way is given its nearest meaning, and fails by it."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


@pytest.mark.parametrize("name", ["TokenMaskOfQueries", "unknown"])
def test_what_has_no_near_meaning_is_not_green(name: str) -> None:
    """A mask that raises or that nothing explains leaves the verdict open."""
    assert Outcome.PASS is not judged(name).outcome
    assert Outcome.INCONCLUSIVE == judged("unknown").outcome
    assert "no call was answered with `mask` as " in judged("unknown").sentence


def test_a_mask_of_queries_is_no_mask_of_keys() -> None:
    """Its rows become zero: the verdict stays open by that reason, and is green without it."""
    verdict = judged("drops_queries")
    assert (Outcome.INCONCLUSIVE, 0) == (verdict.outcome, verdict.failed), verdict
    assert "`query_mask` sets rows of queries to zero" in verdict.sentence
    assert Outcome.PASS == judged("drops_queries", without=("query_mask",)).outcome


def test_a_meaning_may_be_given() -> None:
    """What an option says is demanded, and what it contradicts is a failure."""
    assert Outcome.FAIL == judged("Keeps", fail_fast=True, masks=(("mask", "hides"),)).outcome
    verdict = judged("Keeps", masks=(("mask", "keeps:(N,1,L,S)"),))
    assert Outcome.PASS == verdict.outcome
    (mask,) = [each for each in verdict.parameters if each.name == "mask"]
    assert "taken as (N, 1, L, S)" in mask.meaning
    assert [] == [each for each in verdict.parameters if each.is_untried]


def test_a_mask_left_out_knowingly_is_not_passed() -> None:
    """``--without`` passes none, and the verdict says so."""
    verdict = judged("TokenMask", without=("pad_mask",))
    assert "excluded: pad_mask" in verdict.sentence
    assert [Status.EXCLUDED] == [p.status for p in verdict.parameters if p.role is Role.MASK]


def test_an_unknown_shape_is_one_sentence() -> None:
    """A shape that no mask has is refused with those that there are."""
    subject = load.load(f"{SUBJECTS}/mask_meanings.py:Keeps")
    with pytest.raises(ValueError, match=r"got a mask of shape \(Q\), but should be one of \(N, H"):
        bind(subject, masks=(("mask", "keeps:(Q)"),))


@pytest.mark.parametrize("meaning", ["keeps", "hides"])
def test_a_meaning_of_true_is_refused_for_a_mask_that_is_added(meaning: str) -> None:
    """Both were accepted, and neither was asked: a True that is added hides nothing."""
    subject = load.load(f"{SUBJECTS}/mask_meanings.py:Adds")
    with pytest.raises(ValueError, match=r"`mask` is added to the scores, where a True neither"):
        bind(subject, masks=(("mask", meaning),))
    bound = bind(subject, masks=(("mask", "additive"),))
    assert {"float2d"} <= {*bound.offer["attn"]}


def test_a_mask_whose_content_does_nothing_is_not_taken_for_lengths() -> None:
    """Any mask makes it causal: no meaning is found, and the verdict stays open."""
    verdict = judged("causal_whatever")
    assert Outcome.INCONCLUSIVE == verdict.outcome, verdict
    assert 0 == verdict.failed


def test_regimes_below_a_fill_of_ten_thousands_are_taken_back_and_said() -> None:
    """Scores of 10^5 lie below a usual fill: a note, and no failure; of other regimes all hold."""
    verdict = judged("filled")
    assert Outcome.PASS == verdict.outcome, verdict
    assert finite_fill.REMARK in verdict.notes
    bound = bind(load.load(f"{SUBJECTS}/mask_meanings.py:filled"))
    assert "its scores lie below the fill of the masks" == bound.reasons["regime", "wide_range"]
    assert "wide_range" in bind(load.load(f"{SUBJECTS}/mask_meanings.py:Keeps")).offer["regime"]


SPLIT_WRONGLY = """
import numpy as np

class Layer:
    def __init__(self, d_model, num_heads):
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = np.random.randn(4, d_model, d_model)

    def forward(self, x, mask=None):
        n, length, width = x.shape
        q, k, v = ((x @ w).reshape(n, self.num_heads, length, self.d_k)
                   for w in (self.W_q, self.W_k, self.W_v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(self.d_k)
        scores = scores if mask is None else np.where(mask == 0, -1e9, scores)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        rows = (p / p.sum(axis=-1, keepdims=True) @ v).swapaxes(1, 2)
        return rows.reshape(n, length, width) @ self.W_o
"""
BAND = """
import numpy as np

def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    rows, keys = scores.shape[-2:]
    near = np.abs(np.arange(rows)[:, None] - np.arange(keys)) < 3
    p = np.exp(np.where(near, scores, -np.inf) - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True) @ v
"""


def test_a_meaning_that_no_trial_shows_exactly_is_not_said_to_be_found(tmp_path: Path) -> None:
    """The weights of heads that are split wrongly are a jumble, in which either may come nearer."""
    (tmp_path / "split.py").write_text(SPLIT_WRONGLY, "utf-8")
    verdict = check_subject(f"{tmp_path}/split.py:Layer", cases=24)
    (mask,) = (each for each in verdict.parameters if each.name == "mask")
    assert "; the nearest meaning, which no trial shows exactly: --masks mask=" in mask.meaning


def test_a_window_on_both_sides_is_not_taken_for_a_causal_rule(tmp_path: Path) -> None:
    """Its first row sees none of the last keys, as under a causal rule; and so the other way."""
    (tmp_path / "band.py").write_text(BAND, "utf-8")
    verdict = check_subject(f"{tmp_path}/band.py:attention", cases=24)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert not any("judged as causal attention" in note for note in verdict.notes)
