"""The identity card of a layer that is built already is measured on it, and says what is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.identify import identify
from mha_parity.targets import load
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS, load_subject

if TYPE_CHECKING:
    from mha_parity.core.identity_card import IdentityCard

FILE = "built_layers.py"


def card(name: str) -> IdentityCard:
    """Return the card of a layer of the subjects."""
    target = f"{FILE}:{name}"
    return identify(bind_in_process(load_subject(target), Options()), target)


def measured(found: IdentityCard) -> dict[str, str]:
    """Return the sentences of a card by experiment."""
    return {each.experiment: each.sentence for each in found.measures}


def test_a_changed_scale_is_measured() -> None:
    """The layer's own scale is said at its own D, and not the one that its class has."""
    found = card("scaled")
    assert not found.as_torch
    assert found.sentence.startswith("softmax(s q k^T) v with s = 1 at D = 8, wrong with its own")
    assert "the effective scale is 1 at D = 8, expected 1/sqrt(D) = 0.3536" == found.causes[0].title


def test_a_right_layer_is_right_in_its_own_sizes() -> None:
    """The sentence is torch's, and a line says which sizes were not varied."""
    found = card("right")
    assert found.as_torch, str(found.measures)
    assert found.sentence.startswith("softmax(q k^T / sqrt(D)) v")
    said = measured(found)
    assert said["own weights"].startswith("right in 12 calls of L = 1 … 65")
    assert said["not varied"].startswith("D = 8, H = 3, E = 24: the layer is built with them")
    assert "with D = 8 alone" in said["scale"]
    assert said["sizes"].endswith("L = S 1 … 257, N 1 … 5")


def test_a_wiped_mask_is_seen() -> None:
    """Each row sees all keys, though the class hides those behind it."""
    found = card("wiped")
    assert not found.as_torch
    said = (
        "row i sees keys 0 … S-1 (within 0 … S-1), expected 0 … i; row 0 sees keys 0–11, expected 0"
    )
    assert said == measured(found)["keys of a row"]
    assert found.causes


def test_no_new_layer_is_built_for_a_card() -> None:
    """The constructor counts its calls."""
    subject = load.load(f"{SUBJECTS}/{FILE}:scaled")
    candidate = bind_in_process(subject, Options())
    before = type(subject).count
    identify(candidate, "scaled")
    assert before == type(subject).count


def test_what_no_copy_answers_is_said() -> None:
    """Where a copy takes no other weights, the layer's own are all that is asked."""
    found = card("held")
    assert "right with its own weights, the only ones asked" == found.sentence
    assert ["own weights", "not varied", "other weights"] == [*measured(found)]
    assert "another w_q has no effect" in measured(found)["other weights"]


@pytest.mark.parametrize("name", ["of_torch", "of_numpy", "linear"])
def test_right_layers_of_other_kinds_stay_right(name: str) -> None:
    """Separate projections, NumPy's layer and a Linear without a bias are measured as well."""
    target = f"loaded.py:{name}"
    found = identify(bind_in_process(load_subject(target), Options()), target)
    assert found.as_torch, str(found.measures)
