"""What a mask does instead is said, by kind of mask, sizes and path; nothing of right masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.masks.hidden_scores import HIDE
from mha_parity.diagnose.experiments.masks.masks import mask_pairs, masks
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.run.asked_cases import narrowed_candidate

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem


LAYER = make_offer(
    inputs=("self", "cross", "distinct"),
    bias=("no", "yes"),
    attn=("none", "bool2d", "float2d", "bool3d"),
    padding=("none", "bool"),
)


def leaking(problem: Problem) -> Answer:
    """Return the answer of a causal rule that leaks to random keys."""

    class Leaking(Attention):
        """Three keys in ten are seen besides those expected."""

        def mask_scores(self, scores: Array) -> Array:
            """Hide the others."""
            seen = np.random.default_rng(1).random(scores.shape[-2:]) < 0.3
            seen |= np.tri(*scores.shape[-2:]) > 0
            return np.where(seen, scores, -np.inf)

    return answer_of(Leaking, problem)


def test_what_leaks_to_hidden_keys_is_no_denominator() -> None:
    """Weights of keys that a causal rule should hide take from the others: no row sums to less."""
    forced = make_offer(form="qkv", projection="none", inputs=("self",), attn=("causal",))
    found = cause_findings(
        run_experiments(Caller(FunctionCandidate("leaks", leaking, forced), lambda: True))
    )
    assert found
    assert not any("sum to 0" in each.text or "denominator" in each.text for each in found)
    assert any("by no rule that was tried" in f"{each.text} {each.evidence}" for each in found)


MASKS = {
    "mask-ignored": "the mask has no effect",
    "mask-after-softmax": "hidden weights are set to 0 after the softmax",
    "bool-inverted": "the mask is inverted",
    "mask-transposed": "the mask is applied transposed",
    "mask-minus-10": "hidden keys get",
    "online-inf-minus-inf": "tile of keys is hidden are NaN",
    "scale-includes-mask": "the float mask is multiplied by 0.3015 = 1/sqrt(D)",
}


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", MASKS)
def test_what_a_mask_does_instead_is_said(name: str, caller: Callable[..., Caller]) -> None:
    """For some kind of mask that is offered the sentence is the planted one."""
    sizes = {"inputs": ("self",)} if name == "mask-transposed" else {}
    asked = caller(catalogue()[name].kinds[0], {**LAYER, **sizes})
    assert MASKS[name] in "\n".join(each.effect for each in masks(asked))


def test_nothing_is_said_of_right_masks(caller: Callable[..., Caller]) -> None:
    """All kinds of masks, applied as they should be."""
    found = list(masks(caller(Attention, LAYER)))
    assert ["padding=bool", "attn=bool2d", "attn=float2d", "attn=bool3d"] == [f.name for f in found]
    assert [""] * 4 == [each.effect for each in found]


def test_one_effect_of_several_masks_is_one_line(caller: Callable[..., Caller]) -> None:
    """A transposed mask, whichever kind it is of."""
    kind = catalogue()["mask-transposed"].kinds[0]
    found = cause_findings(run_experiments(caller(kind, {**LAYER, "inputs": ("self",)})))
    assert ["with attn=bool2d, attn=float2d, attn=bool3d: the mask is applied transposed"] == [
        each.text for each in found
    ]


@pytest.mark.parametrize(("bug", "inverted"), [("bool-inverted", True), ("mask-transposed", False)])
def test_only_an_inverted_mask_is_to_be_inverted(
    bug: str, inverted: bool, caller: Callable[..., Caller]
) -> None:
    """A mask that is right but for its polarity is not sent before the softmax, where it is."""
    kind = catalogue()[bug].kinds[0]
    found = cause_findings(run_experiments(caller(kind, {**LAYER, "inputs": ("self",)})))
    assert {inverted} == {"~mask" in each.remedy for each in found if each.stage == "mask"}


PLAIN = make_offer(form="qkv", projection="none", inputs=("cross",), size=("small",))


class TransposedWhereSquare(Attention):
    """A square mask is transposed."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what the transposed mask hides."""
        hidden = self.problem.hidden()
        square = hidden.shape[-1] == hidden.shape[-2]
        return np.where(hidden.swapaxes(-1, -2) if square else hidden, -np.inf, scores)


class FilledBeforeScale(Attention):
    """Hidden keys have the score -100 before it is scaled."""

    def mask_scores(self, scores: Array) -> Array:
        """Fill."""
        return np.where(self.problem.hidden(), -100 * self.problem.scale, scores)


class FilledByRow(Attention):
    """Hidden keys have the least score of their row less 10, or the largest one seen less 9."""

    of_largest = False

    def mask_scores(self, scores: Array) -> Array:
        """Fill."""
        hidden = self.problem.hidden()
        seen = np.where(hidden, -np.inf, scores).max(axis=-1, keepdims=True) - 9.0
        least = scores.min(axis=-1, keepdims=True) - 10.0
        return np.where(hidden, seen if self.of_largest else least, scores)


class FilledByLargest(FilledByRow):
    """The same by the largest score."""

    of_largest = True


class OfFourSamples(Attention):
    """From the fifth sample on the masks are those of the first four."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what the masks of sample n % 4 hide."""
        hidden = self.problem.hidden()
        return np.where(hidden[np.arange(len(hidden)) % 4], -np.inf, scores)


def mask_texts(asked: Caller) -> set[str]:
    """Return what the masks do."""
    return {f"{each.name}: {each.effect}" for each in masks(asked) if each.effect}


def test_masks_are_tried_where_sizes_are_equal(
    caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """What is wrong for L = S alone is found, and said so."""
    found = mask_texts(caller(TransposedWhereSquare, full_offer))
    assert "attn=bool2d where L = S: the mask is applied transposed" in found
    assert "attn=causal where L = S: the mask is applied transposed" in found


def test_masks_are_tried_with_more_samples_than_two(
    caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """What is wrong beyond four samples is not said of N = L: six are tried before that."""
    found = {each for each in mask_texts(caller(OfFourSamples, full_offer)) if "padding" in each}
    assert found
    assert all(" at N = 6: " in each for each in found)


def test_a_fill_is_read_at_a_width_at_which_it_leaks(
    caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """-100/sqrt(11) leaks 1e-13, less than weights can be read to; -100/sqrt(67) leaks 1e-6."""
    texts = mask_texts(caller(FilledBeforeScale, full_offer))
    assert texts
    assert all("at D = 67: hidden keys get the score -12.22 (-100 before" in t for t in texts)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (FilledByRow, "hidden keys get the least score of their row less 10, not -inf"),
        (FilledByLargest, "hidden keys get the largest score of their row that is seen less 9"),
    ],
)
def test_a_fill_by_the_scores_of_a_row_is_read(
    caller: Callable[..., Caller], full_offer: Offer, kind: type[Attention], said: str
) -> None:
    """It was said that rows see hidden keys, as by the bounds of a loop."""
    found = [each.cause for each in masks(caller(kind, full_offer)) if each.cause]
    assert found
    assert all(said in each.text for each in found)
    assert {HIDE} == {each.remedy for each in found}


def test_a_mask_of_one_path_names_the_path(
    caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """Masks that are ignored where no weights are returned, and one that is where they are."""

    def without(problem: Problem) -> Answer:
        case = problem.case
        bare = problem.replace(attn_mask=None, case=case.replace(attn="none", masked_rows="none"))
        shown = case.weights != "none"
        return answer_of(Attention, problem if shown is flag or case.attn != "bool2d" else bare)

    flag = True
    path = "attn=bool2d without returned weights: the mask has no effect"
    assert {path} == mask_texts(caller(without, full_offer))
    flag = False
    path = "attn=bool2d with returned weights: the mask has no effect"
    assert {path} == mask_texts(caller(without, full_offer))


def read_as(reading: str) -> type[Attention]:
    """Return the attention that takes the numbers of a float mask for something else."""

    class Misread(Attention):
        def mask_scores(self, scores: Array) -> Array:
            padding, mask = self.problem.key_padding_mask, self.problem.attn_mask
            mask = padding[:, None, None] if padding is not None else mask
            return scores if mask is None else np.where(READINGS[reading](mask), -np.inf, scores)

    return Misread


READINGS: dict[str, Callable[[Array], Array]] = {
    "is taken as boolean: every number but 0 hides its key": lambda mask: mask != 0,
    "hides every key whose number is negative": lambda mask: mask < 0,
    "hides keys whose number is -inf, and adds no other": np.isneginf,
}


@pytest.mark.parametrize("reading", READINGS)
def test_what_the_numbers_of_a_float_mask_are_taken_for_is_said(
    reading: str, caller: Callable[..., Caller]
) -> None:
    """Also where each is a reason to hide its key, so that no row sees one."""
    offered = {**PLAIN, "padding": ("none", "float"), "attn": ("none", "float2d")}
    found = list(masks(caller(read_as(reading), offered)))
    assert [("padding=float", f"the mask {reading}"), ("attn=float2d", f"the mask {reading}")] == [
        (each.name, each.effect) for each in found
    ]


class NaNWherePadded(Attention):
    """Any padding mask makes all outputs NaN."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide everything."""
        given = self.problem.key_padding_mask is not None
        return np.full_like(scores, -np.inf) if given else super().mask_scores(scores)


def test_samples_that_are_off_as_wholes_show_no_hidden_queries(
    caller: Callable[..., Caller],
) -> None:
    """All rows off under a mask that marks all keys: nothing says that the rows were hidden."""
    found = list(masks(caller(NaNWherePadded, {**PLAIN, "padding": ("none", "float")})))
    assert found
    assert not any("rows of queries" in each.effect for each in found)


class UnmaskedRow(Attention):
    """A single query is not masked."""

    def mask_scores(self, scores: Array) -> Array:
        """Leave the scores of one row."""
        return scores if scores.shape[-2] == 1 else super().mask_scores(scores)


def test_masks_are_tried_with_a_single_query(
    caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """What is wrong at L = 1 alone is found, and said so."""
    found = mask_texts(caller(UnmaskedRow, full_offer))
    assert {"padding=bool at L = 1: the mask has no effect",
            "attn=bool2d at L = 1: the mask has no effect"} <= found  # fmt: skip


class HeadsFirst(Attention):
    """A mask of N * H rows is read as (H, N)."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what each head of the other order should."""
        hidden = self.problem.hidden()
        n, heads = hidden.shape[:2]
        rows = hidden.reshape(heads, n, *hidden.shape[2:]).swapaxes(0, 1)
        return np.where(rows, -np.inf, scores)


def test_a_padding_mask_in_the_order_of_heads_is_said_as_one_of_attn(
    caller: Callable[..., Caller],
) -> None:
    """The same order of N * H rows has one name, whichever mask shows it."""
    offered = {**PLAIN, "padding": ("none", "bool"), "attn": ("none", "bool3d")}
    found = list(masks(caller(HeadsFirst, offered)))
    said = "the mask of N * H rows is read as (H, N) in place of (N, H)"
    assert ["padding=bool", "attn=bool3d"] == [each.name for each in found]
    assert all(each.effect.startswith(said) for each in found), found


class LongestUnmasked(Attention):
    """The sample with the most visible keys is not masked."""

    def mask_scores(self, scores: Array) -> Array:
        """Leave the scores of one sample."""
        counts = (~self.problem.hidden()).sum(axis=(1, 2, 3))
        longest = np.arange(len(counts)) == counts.argmax()
        return np.where(longest[:, None, None, None], scores, super().mask_scores(scores))


def test_a_mask_without_effect_in_one_sample_is_said_to_be_that(
    caller: Callable[..., Caller],
) -> None:
    """In the other sample it has the right one."""
    offered = {**PLAIN, "padding": ("none", "lengths")}
    (found,) = masks(caller(LongestUnmasked, offered))
    said = "the mask has no effect in sample 1 of 2, that of the most visible keys"
    assert said.replace("sample 1", "sample 0") == found.effect.replace("sample 1", "sample 0")


class TimesTheMask(Attention):
    """The weights are multiplied with a float mask as well."""

    def softmax(self, scores: Array) -> Array:
        """Return NaN where a weight of 0 meets -inf."""
        return super().softmax(scores) * np.where(np.isneginf(scores), scores, 1)


def test_rows_that_any_hidden_key_makes_nan_are_said_to_be_these(
    caller: Callable[..., Caller],
) -> None:
    """No tile is named where one key does it."""
    found = masks(caller(TimesTheMask, {**PLAIN, "attn": ("none", "bool2d")}))
    assert {"rows with a hidden key are NaN"} == {each.effect for each in found if each.effect}


def poisoned(tile: int, *, first: bool) -> type[Attention]:
    """Return the attention whose rows are NaN where a tile of keys, or the first, is all hidden."""

    class Poisoned(Attention):
        def softmax(self, scores: Array) -> Array:
            starts = range(0, 1 if first else scores.shape[-1], tile)
            tops = [scores[..., i : i + tile].max(axis=-1, keepdims=True) for i in starts]
            lost = np.isneginf(tops).any(axis=0)
            return np.where(lost, np.nan, super().softmax(scores))

    return Poisoned


@pytest.mark.parametrize("first", [True, False], ids=["first", "any"])
def test_a_hidden_tile_that_makes_its_rows_nan_is_said(
    first: bool, caller: Callable[..., Caller]
) -> None:
    """Keys around a window are hidden among more than 16: whole tiles of 16 are, in some rows."""
    offered = {**PLAIN, "attn": ("none", "bool2d"), "size": ("small", "medium")}
    (found,) = masks(caller(poisoned(16, first=first), offered))
    assert found.understood
    assert found.name.endswith("at L = 131, S = 137")
    assert "rows for which a whole tile of keys is hidden are NaN" == found.effect


class PaddingAsOne(Attention):
    """Padding adds 1 to the scores where there is another mask, and hides no key."""

    def mask_scores(self, scores: Array) -> Array:
        """Add 1 where the padding hides."""
        padding, attn = self.problem.key_padding_mask, self.problem.attn_mask
        if padding is None or attn is None:
            return super().mask_scores(scores)
        return np.asarray(scores + attn + padding[:, None, None])


def test_a_mask_that_is_added_as_it_should_be_has_no_factor(
    caller: Callable[..., Caller],
) -> None:
    """Of two masks the padded keys are seen: that is said, and to hide them is the remedy."""
    offered = LAYER | {"attn": ("none", "float2d"), "inputs": ("self",)}
    asked = caller(PaddingAsOne, offered)
    (found,) = mask_pairs(asked)
    assert "sees keys" in found.effect
    assert "multiplied by" not in found.effect
    (said,) = cause_findings(run_experiments(caller(PaddingAsOne, offered)))
    assert "hide a key where either mask hides it" in said.remedy


@pytest.mark.parametrize("strict", [False, True])
def test_rows_that_a_run_leaves_out_are_no_effect_of_a_mask(*, strict: bool) -> None:
    """Kills a line on rows of padded queries where the run does not judge them."""
    offer = LAYER | {"inputs": ("self",), "attn": ("none",)}
    bug = catalogue()["kpm-zeroes-queries"].kinds[0]
    candidate = FunctionCandidate("zeroes", lambda problem: answer_of(bug, problem), offer)
    asked = narrowed_candidate(candidate, offer, Options(strict_padding=strict))
    effects = [each.effect for each in masks(Caller(asked, lambda: True)) if each.effect]
    assert strict is bool(effects), effects
