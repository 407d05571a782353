"""The identity card: what each experiment measures of right attentions and of wrong ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.designs.perturbation import influences
from mha_parity.diagnose.experiments.scores.exponential import exponential_errors
from mha_parity.diagnose.identify import identify
from mha_parity.oracle.eval_orders_vjp import VJP
from mha_parity.report import identity_card, identity_page
from mha_parity.worker.open_target import bind_in_process
from subject_checks import load_subject

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.identity_card import IdentityCard

PROJECTED = make_offer(form="qkv", projection="none", inputs=("cross",))
CAUSAL_LOOSE = "softmax(q k^T / sqrt(D)) v, but with attn=causal: row i sees keys 0 … i+1"
LAYER = make_offer(inputs=("distinct",), bias=("no", "yes"), attn=("none", "bool2d", "causal"))


def caller(kind: type[Attention], offered: dict[str, tuple[str, ...]] = PROJECTED) -> Caller:
    """Return the caller of an attention, without a limit of time."""
    return Caller(FunctionCandidate("planted", lambda p: answer_of(kind, p), offered), lambda: True)


def card(kind: type[Attention], offered: dict[str, tuple[str, ...]] = PROJECTED) -> IdentityCard:
    """Return the identity card of an attention."""
    return identify(FunctionCandidate("planted", lambda p: answer_of(kind, p), offered), "planted")


class SharedExp(Attention):
    """Base 2 with a factor log2(e) of 20 bits: the exponential is 1e-7 off."""

    def exp(self, x: Array) -> Array:
        """Return 2^(x log2(e))."""
        return np.exp2(x * np.float64(round(np.log2(np.e) * 2**20) / 2**20))


class NextHead(Attention):
    """Head h has the values of head h + 1."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Roll the heads."""
        return super().apply_weights(weights, np.roll(v, -1, axis=1))


def test_the_exponential_of_a_right_attention_is_exact_to_an_ulp() -> None:
    """Scores without rounding errors leave those of exp and of one division."""
    for offered in (PROJECTED, LAYER):
        found = exponential_errors(caller(Attention, offered))
        assert found is not None
        assert found.worst < 3
        assert -60 == found.scores.min()


def test_where_lengths_cannot_differ_the_exponential_is_not_measured() -> None:
    """The design has 6 queries and 16 keys; a target of as many queries as keys has neither."""
    own = make_offer(form="qkv", projection="none", inputs=("self",), layout=("unbatched",))
    assert exponential_errors(caller(Attention, own)) is None


def test_an_exponential_of_too_few_digits_is_measured() -> None:
    """An exp2 of a rounded factor is off by as much as the factor, times the score."""
    found = exponential_errors(caller(SharedExp))
    assert found is not None
    relative = abs(round(np.log2(np.e) * 2**20) / 2**20 / np.log2(np.e) - 1)
    assert found.worst == pytest.approx(60 * relative * 2**52, rel=1e-3)
    assert -60 == found.at


def test_each_part_of_a_right_attention_reaches_itself_alone() -> None:
    """Samples, heads and query rows of a layer."""
    found = list(influences(caller(Attention, LAYER)))
    assert ["sample", "head", "query row"] == [each.word for each in found]
    assert all(each.independent for each in found)


@pytest.mark.parametrize(
    ("kind", "word", "sentence"),
    [
        (NextHead, "head", "changing head 0 changes the outputs of heads 0, 2"),
        (
            catalogue()["softmax-batch-axis"].kinds[0], "sample",
            "each of 3 samples reaches the outputs of all",
        ),
        (
            catalogue()["softmax-query-axis"].kinds[0], "query row",
            "each of 5 query rows reaches the outputs of all",
        ),
    ],
    ids=["head", "sample", "row"],
)  # fmt: skip
def test_a_part_that_reaches_others_is_found(
    kind: type[Attention], word: str, sentence: str
) -> None:
    """The first part that does not reach itself alone is said with what it reaches."""
    (found,) = (each for each in influences(caller(kind, LAYER)) if each.word == word)
    assert not found.independent
    assert sentence == found.sentence


def test_what_one_object_keeps_is_said() -> None:
    """Experiments call new objects; what one answers to its second call is its state as well."""
    target = bind_in_process(load_subject("half_only.py:GrowsAfterTheFirstCall"), Options())
    found = identify(target, "Grows")

    assert "keeps state between calls" in found.sentence
    assert "stateless" not in found.sentence
    assert not found.as_torch


def test_a_finding_on_calls_has_a_line() -> None:
    """An input that is written into is no matter of a formula, and has a line by its check."""
    target = bind_in_process(load_subject("misbehaving.py:writes_inputs"), Options())
    (line,) = (
        e for e in identify(target, "writes_inputs").measures if e.experiment == "inputs unchanged"
    )

    assert "the call wrote into" in line.sentence
    assert line.as_torch is False


def test_the_card_of_a_right_layer_says_what_it_computes() -> None:
    """One sentence, in which every clause was measured, and no line that departs."""
    found = card(Attention, LAYER)
    assert (
        "softmax(q k^T / sqrt(D)) v, exp exact to 1 ulp, no window, samples independent, heads "
        "independent, causal mask keeps j <= i, stateless"
    ) == found.sentence
    assert found.as_torch
    assert {True} == {each.as_torch for each in found.measures}


@pytest.mark.parametrize(
    ("name", "sentence", "departing"),
    [
        ("scale-dmodel", "softmax(q k^T / sqrt(E)) v",
         {"scale", "transfer curve", "sizes", "digits"}),
        ("causal-loose", CAUSAL_LOOSE, {"attn=causal"}),
    ],
)  # fmt: skip
def test_the_card_of_a_wrong_layer_says_what_departs(
    name: str, sentence: str, departing: set[str]
) -> None:
    """What is right stays so, what departs is said with its rule."""
    found = card(catalogue()[name].kinds[0], LAYER)
    assert found.sentence.startswith(sentence)
    assert departing == {each.experiment for each in found.measures if each.as_torch is False}
    assert not found.as_torch


@pytest.mark.parametrize(
    ("bug", "sentence"),
    [
        (None, "all as torch's, at 3 sizes and with each mask"),
        ("grad-no-scale", "gradient dQ, gradient dK are sqrt(D) (3.317) times the right one"),
    ],
    ids=["right", "no scale"],
)
def test_the_card_has_a_line_for_gradients(bug: str | None, sentence: str) -> None:
    """The factor on a wrong gradient, with its formula; of right ones that they are."""
    function = catalogue()[bug].function() if bug else with_gradients(VJP)()
    offered = PROJECTED | {"gradients": ("no", "yes")}
    found = identify(FunctionCandidate("planted", function, offered), "planted")
    (line,) = (each for each in found.measures if each.experiment == "gradients")
    assert sentence in line.sentence
    assert (bug is None) is line.as_torch is found.as_torch


def test_what_could_not_be_measured_is_said() -> None:
    """Without time for a second experiment the card says so, and is not taken for a right one."""
    found = identify(
        FunctionCandidate("planted", lambda p: answer_of(Attention, p), PROJECTED), "planted", 0.0
    )
    open_lines = [each for each in found.measures if each.as_torch is None]
    assert "0 s are over: some experiments made fewer calls, or none" == open_lines[-1].sentence


def test_the_document_and_the_page_have_every_experiment() -> None:
    """JSON has the numbers, the page a point of the curve each and outlines what departs."""
    found = card(NextHead)
    written = json.loads(identity_card.identities_as_json([found]))
    assert [each.experiment for each in found.measures] == [
        each["experiment"] for each in written["experiments"]
    ]
    assert written["as_torch"] is False
    shown = identity_page.render_identity_page([found])
    assert "<h1>Departs from torch</h1>" in shown
    assert f"<h1>{card(Attention).sentence}" in identity_page.render_identity_page(
        [card(Attention)]
    )
    assert found.transfer is not None
    finite = np.isfinite(found.transfer.found).sum()
    assert finite == shown.count("<circle")
    odd = sum(int((m.reached != m.expected).sum()) for m in found.influence)
    assert odd == shown.count('stroke="var(--bad)"') > 0


class NearKeys(Attention):
    """Keys further than 8 places away are not seen."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what is far."""
        i, j = np.indices(scores.shape[-2:])
        return np.where(np.abs(i - j) <= 8, super().mask_scores(scores), -np.inf)


@pytest.mark.parametrize(("kind", "measured"), [(NearKeys, False), (Attention, True)])
def test_an_exponential_is_no_cause_of_keys_that_are_not_seen(
    kind: type[Attention], measured: bool
) -> None:
    """What a window hides has no weight, whatever the exponential."""
    line = next(each for each in card(kind).measures if each.experiment == "exponential")
    assert (line.as_torch is True) is measured
    assert line.as_torch is not False
