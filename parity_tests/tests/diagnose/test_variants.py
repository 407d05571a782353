"""A wrong answer that is the right one to a changed problem is said by the change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.arrays.projection_parts import parts_read
from mha_parity.diagnose.experiments.conditions.features import features
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.masks.masks import mask_pairs, masks
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.diagnose.experiments.scores.head_count import head_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

PROJECTED = make_offer(form="qkv", projection="none", inputs=("cross",))
LAYER = make_offer(inputs=("distinct",), attn=("none", "bool2d"), padding=("none", "bool"),
              bias_kv=("no", "yes"))  # fmt: skip


def caller(kind: type[Attention], offered: dict[str, tuple[str, ...]]) -> Caller:
    """Return the caller of an attention, without a limit of time."""
    return Caller(FunctionCandidate("planted", lambda p: answer_of(kind, p), offered), lambda: True)


class Joined(Attention):
    """Two masks are joined as ``join`` says; float masks are added."""

    join: Callable[[Array, Array], Array] = staticmethod(lambda padding, attn: padding | attn)

    def mask_scores(self, scores: Array) -> Array:
        """Hide what the masks hide together."""
        p = self.problem
        padding, attn = (
            p.replace(**{name: None}).hidden() for name in ("attn_mask", "key_padding_mask")
        )
        if p.key_padding_mask is None or p.attn_mask is None:
            return super().mask_scores(scores)
        added = scores + p.additive()
        return np.where(type(self).join(padding, attn), -np.inf, added)


def joined(join: Callable[[Array, Array], Array]) -> type[Attention]:
    """Return the attention that joins the keys hidden by padding and by attn_mask."""
    return type("JoinedBy", (Joined,), {"join": staticmethod(join)})


PAIRS: dict[str, tuple[Callable[[Array, Array], Array], str]] = {
    "either": (lambda padding, attn: padding | attn, ""),
    "both": (lambda padding, attn: padding & attn, "a key is hidden only where both masks hide it"),
    "one": (lambda padding, attn: padding ^ attn, "a key is hidden where just one of the masks"),
    "padding": (lambda padding, attn: padding | (attn & False), "attn_mask has no effect"),
    "attn": (lambda padding, attn: attn | (padding & False), "key_padding_mask has no effect"),
    "inverted": (lambda padding, attn: ~padding | attn, "key_padding_mask is inverted"),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_masks_that_are_right_alone_are_tried_together(name: str) -> None:
    """How two masks are joined is said, and nothing of the right way."""
    join, sentence = PAIRS[name]
    asked = caller(joined(join), LAYER)
    assert [""] * 2 == [each.effect for each in masks(asked)]
    found = [each.effect for each in mask_pairs(asked)]
    assert [bool(sentence)] * len(found) == [sentence in each for each in found]
    assert len(found) == bool(sentence)


class OtherMasks(Attention):
    """The padding masks of the samples, repeated whole for the heads."""

    def padding_mask(self) -> Array | None:
        """Give row n * H + h of (N H) heads the mask (n H + h) % N."""
        mask = super().padding_mask()
        n, heads = self.case.batch, self.problem.num_heads
        if mask is None:
            return None
        return np.tile(mask[:, 0], (heads, 1, 1)).reshape(n, heads, *mask.shape[2:])


class RowsHidden(Attention):
    """The padding mask stands on the axis of the queries."""

    def padding_mask(self) -> Array | None:
        """Transpose."""
        mask = super().padding_mask()
        same = self.case.queries == self.case.keys
        return mask if mask is None or not same else mask.swapaxes(-1, -2)


class AppendedHidden(Attention):
    """A mask hides the rows of bias_kv too."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what is appended, where there is a mask."""
        masked = super().mask_scores(scores)
        if self.problem.attn_mask is not None and self.problem.appended:
            masked[..., -self.problem.appended :] = -np.inf
        return masked


OTHER_MASKS = {
    "tiled": (OtherMasks, "head h of sample n has the mask of sample (n H + h) % N"),
    "rows": (RowsHidden, "it hides the rows of queries that it marks, not keys"),
    "appended": (AppendedHidden, "the appended key is hidden"),
}


@pytest.mark.parametrize("name", OTHER_MASKS)
def test_a_mask_is_said_to_be_what_it_was_taken_for(name: str) -> None:
    """The right answer to a changed problem is the wrong one to this."""
    kind, sentence = OTHER_MASKS[name]
    effects = {each.effect for each in masks(caller(kind, LAYER))} - {""}
    assert 1 == len(effects)
    assert effects.pop().endswith(sentence)


class TiledLayer(Attention):
    """A whole layer, whose weights hold each key head once for every query head of its group."""

    def repeat_heads(self, x: Array) -> Array:
        """Tile the key heads over the query heads."""
        groups = self.problem.case.kv_heads_count or x.shape[1]
        return x[:, :: x.shape[1] // groups][:, np.arange(x.shape[1]) % groups]


class InThrees(Attention):
    """Query head h reads key head h // G, where h // (H / G) is right."""

    def repeat_heads(self, x: Array) -> Array:
        """Divide by the number of groups."""
        groups = self.problem.case.kv_heads_count or self.problem.num_heads
        heads = np.arange(self.problem.num_heads)
        chosen = np.minimum(heads // groups, groups - 1) if groups < len(heads) else heads
        return x[:, chosen * (x.shape[1] // groups)]


class MixedHeads(InThrees):
    """Keys as that, and values of one head: no key head gives both."""

    def repeat_heads(self, x: Array) -> Array:
        """Take the first head every second time."""
        self.asked = not getattr(self, "asked", False)
        right = super().repeat_heads(x)
        return right if self.asked else np.repeat(x[:, :1], right.shape[1], axis=1)


class TiledKeys(TiledLayer):
    """The keys alone are tiled."""

    tiled = "keys"

    def repeat_heads(self, x: Array) -> Array:
        """Tile every second array, and repeat the others rightly."""
        self.asked = {"": "keys", "keys": "values", "values": "keys"}[getattr(self, "asked", "")]
        if self.asked == self.tiled:
            return super().repeat_heads(x)
        return Attention.repeat_heads(self, x)


class TiledValues(TiledKeys):
    """The values alone are."""

    tiled = "values"


TILED, FIRST = (catalogue()[name].kinds[0] for name in ("gqa-tile", "gqa-first-only"))


@pytest.mark.parametrize(
    ("wrong", "effect", "offered"),
    [
        (TILED, "query head h uses key head h % 3", PROJECTED),
        (FIRST, "query head h uses key head 0", PROJECTED),
        (TiledLayer, "query head h uses key head h % 3", LAYER),
        (
            InThrees,
            "query heads 0 … 5 use key heads 0, 0, 0, 1, 1, 1, as h // 3 gives, expected 0, 0, 1",
            PROJECTED,
        ),
        (MixedHeads, "the output is wrong", PROJECTED),
        (TiledKeys, "query head h uses keys of head h % 3", LAYER),
        (TiledValues, "query head h uses values of head h % 3", LAYER),
    ],
)
def test_which_key_heads_grouped_queries_use_is_said(
    wrong: type[Attention], effect: str, offered: dict[str, tuple[str, ...]]
) -> None:
    """Of three key heads under six query heads; the right attention passes."""
    offered = {**offered, "kv_heads": ("equal", "fewer")}
    for kind, expected in ((wrong, effect), (Attention, "")):
        grouped = [e for e in features(caller(kind, offered)) if e.name == "kv_heads=fewer"]
        assert [True] == [each.effect.startswith(expected) for each in grouped]
        assert [bool(expected)] == [bool(each.effect) for each in grouped]


def test_an_output_of_another_shape_is_said_with_its_feature() -> None:
    """Unbatched inputs that get a batch axis too many on the heads."""

    def answer(problem: Problem) -> Answer:
        found = answer_of(Attention, problem)
        wide = problem.case.layout == "unbatched"
        return Answer(output=np.repeat(found.output, 2, axis=1)) if wide else found

    offered = {**PROJECTED, "layout": ("batch_first", "unbatched")}
    asked = Caller(FunctionCandidate("planted", answer, offered), lambda: True)
    effects = [each.effect for each in features(asked) if each.effect]
    assert ["the output has the shape (1, 10, 18), expected (1, 5, 18)"] == effects


def with_heads(count: Callable[[int, int], int]) -> type[Attention]:
    """Return the attention that splits E into another number of heads, and merges these."""

    class Other(Attention):
        def split(self, x: Array, heads: int) -> Array:
            return super().split(x, count(heads, x.shape[-1] // heads))

        def scale(self) -> float:
            heads = count(self.case.heads_count, self.case.head_dim)
            return float((self.case.embed_dim // heads) ** -0.5)

    return Other


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (lambda h, _: h, ""),
        (lambda h, _: h // 2, "H / 2 heads of width 2 D"),
        (lambda _, d: d, "D heads of width H: num_heads and head_dim are exchanged"),
        (lambda _h, _d: 8, "8 heads of width E / 8, whatever H"),
    ],
)
def test_another_number_of_heads_is_said(count: Callable[[int, int], int], said: str) -> None:
    """One law for two numbers of heads, and nothing of the right number."""
    assert said == head_count(caller(with_heads(count), PROJECTED))


def with_rows(reading: str) -> type[Attention]:
    """Return the attention that parts the stacked rows of in_proj in another way."""

    class Parted(Attention):
        def parameter(self, name: str) -> Array | None:
            kind, _, part = name.partition("_")
            if kind not in {"w", "b"} or part not in {*"qkv"}:
                return super().parameter(name)
            held = [super(Parted, self).parameter(f"{kind}_{p}") for p in "qkv"]
            if held[0] is None:
                return None
            stacked, i = np.concatenate([np.asarray(a) for a in held]), "qkv".index(part)
            if reading == "kqv":
                return held["qkv".index(reading[i])]
            groups = self.case.heads_count if reading == "(H, 3, D)" else len(held[0])
            rows = stacked.reshape(groups, 3, -1, *stacked.shape[1:])[:, i]
            return np.asarray(rows.reshape(held[0].shape))

    return Parted


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        ("(H, 3, D)", "the rows of in_proj are read as (H, 3, D), expected (3, H, D)"),
        ("(H, D, 3)", "the rows of in_proj are read as (H, D, 3), expected (3, H, D)"),
        ("kqv", "q, k and v are projected by the parts k, q, v of in_proj"),
    ],
)
def test_rows_of_in_proj_that_belong_to_another_part_are_said(reading: str, said: str) -> None:
    """One sentence for each other order of stacked rows."""
    assert said == parts_read(caller(with_rows(reading), LAYER))


def test_nothing_is_said_of_rows_in_their_order() -> None:
    """The right attention, and one that is wrong in its softmax."""
    assert not parts_read(caller(Attention, LAYER))
    assert not parts_read(caller(SumOfAll, LAYER))


class SumOfAll(Attention):
    """The largest score of all is subtracted, and a constant added to the row sum."""

    added = 1e-6

    def softmax(self, scores: Array) -> Array:
        """Divide by the sum and the constant."""
        powers = np.exp(scores - scores.max())
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + self.added))


@pytest.mark.parametrize(("constant", "said"), [(1e-6, "1e-06"), (1e3, "1000")])
def test_a_part_of_a_term_is_no_padded_key(constant: float, said: str) -> None:
    """What is added to the denominator shows from which scores the maximum was taken.

    Nor are thousands of terms padded keys, of which no tile has more than 256.
    """
    kind = type("Other", (SumOfAll,), {"added": constant})
    found = cause_findings(run_experiments(caller(kind, PROJECTED)))
    assert found[0].text.startswith(f"{said} is added to the denominator, and the largest score of")


@pytest.mark.parametrize("period", [5, 1_000_003])
def test_a_mask_is_tried_in_each_way_that_the_seed_chooses(period: int) -> None:
    """One way of passing a mask in five sets weights to 0 after the softmax; none does so."""
    late = catalogue()["mask-after-softmax"].kinds[0]

    def answer(problem: Problem) -> Answer:
        return answer_of(late if problem.case.seed % period == 4 else Attention, problem)

    found = masks(Caller(FunctionCandidate("planted", answer, LAYER), lambda: True))
    effects = {each.effect.partition(",")[0] for each in found}
    late_effect = "hidden weights are set to 0 after the softmax"
    assert effects == ({late_effect} if period == 5 else {""})
