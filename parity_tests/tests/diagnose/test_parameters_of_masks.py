"""A mask without effect beside another is named with the parameter that it was passed in."""

from __future__ import annotations

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.masks.masks import mask_pairs
from mha_parity.worker.open_target import bind_in_process
from subject_checks import load_subject


def test_padding_that_is_passed_as_another_mask_is_named_by_it() -> None:
    """`is_causal` overwrites `attn_mask`: the parameter `key_padding_mask` is not at fault."""
    subject = load_subject("overwritten_masks.py:Attention")
    target = bind_in_process(subject, Options(cases=18))
    found = [each.effect for each in mask_pairs(Caller(target, lambda: True)) if each.effect]
    assert {"key_padding_mask, passed as `attn_mask`, has no effect"} == set(found)
