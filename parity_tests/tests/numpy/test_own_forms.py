"""Every attention that ships here is proved by its own convention; the wrong ones are caught."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

OWN = {
    "mha_numpy:MultiheadAttention": "torch-module",
    "mha_numpy:scaled_dot_product_attention": "sdpa",
    "mha_numpy.textbook.plain:attention": "qkv-heads",
    "mha_numpy.textbook.projected:compute_qkv": "projections",
    "mha_numpy.textbook.projected:self_attention": "qkv",
    "mha_numpy.textbook.projected:multi_head_attention": "qkv-heads",
    "mha_numpy.textbook.projected:multi_head_attention_loop": "qkv-heads",
    "mha_numpy.textbook.packed:self_attention": "x-weights",
    "mha_numpy.textbook.packed:multi_head_attention": "x-weights-heads",
    "mha_numpy.textbook.packed:multi_head_attention_loop": "x-weights-heads",
    "mha_numpy.textbook.valid_lens:MultiHeadAttention": "module-valid-lens",
    "mha_numpy.textbook.keep_mask:MultiHeadAttention": "module-mask",
    "mha_numpy.textbook.keep_mask:EfficientMultiHeadAttention": "module-mask",
    "torch.nn:MultiheadAttention": "torch-module",
}


@pytest.mark.repeats(4)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)], ids="seed{}".format)
@pytest.mark.parametrize("target", OWN)
def test_it_equals_torch(target: str, seed: int) -> None:
    """The convention is recognised, and parity holds over all features it offers."""
    candidate = bind(load(target))
    verdict = check(candidate, Options(cases=60, seed=seed), target=target)

    assert OWN[target] == candidate.convention
    assert Outcome.PASS is verdict.outcome, verdict.failures


@pytest.mark.repeats(1)
@pytest.mark.parametrize("name", ["wrong_scale", "wrong_split", "wrong_softmax_axis"])
def test_a_wrong_one_fails(name: str) -> None:
    """A wrong attention fails, and the report has the place, the case and the replay line."""
    target = f"{SUBJECTS / name}.py:f"
    verdict = check(bind(load(target)), Options(cases=50), target=target)
    worst = verdict.failures[0]

    assert Outcome.FAIL is verdict.outcome
    assert worst.check_result.where is not None
    assert worst.check_result.error > worst.check_result.allowed
    assert worst.replay.startswith(f"mha-parity replay {worst.case.id} ")
    assert worst.shrunk_from is not None
    assert worst.case.embed_dim <= worst.shrunk_from.embed_dim
