"""Where the axis of heads is, and whether one sample is served, shows at other lengths."""

from __future__ import annotations

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.worker.open_target import bind_in_process
from subject_checks import check_subject, load_subject

FILE = "heads_behind_rows.py"


def test_heads_behind_rows_are_called_so_though_the_scale_is_wrong() -> None:
    """No layout is exact for a wrong one: that which serves S unlike L is taken, and cases are."""
    right, wrong = (
        bind_in_process(load_subject(f"{FILE}:{name}"), Options(cases=18))
        for name in ("right", "unscaled")
    )
    assert right.offer["inputs"] == wrong.offer["inputs"] == ("self", "cross")
    assert "(N, L, H, D)" in " ".join(wrong.bound.remarks)


def test_the_finding_on_such_a_function_is_its_scale() -> None:
    """Read as (N, H, L, D) its heads would mix, which is no cause but a wrong call."""
    bound = bind_in_process(load_subject(f"{FILE}:unscaled"), Options(cases=18))
    found = [each.text for each in cause_findings(run_experiments(Caller(bound, lambda: True)))]
    assert ["the effective scale is 1, no scale at all"] == [t.partition(" (")[0] for t in found]


def test_one_sample_without_its_axis_is_left_out_where_its_masks_raise_at_some_lengths() -> None:
    """Batches are served at all lengths, and the reason names the mask: no case is red."""
    verdict = check_subject(f"{FILE}:in_tiles", cases=120)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    row = next(r for r in verdict.features if (r.axis, r.value) == ("layout", "unbatched"))
    assert ("not offered", "with `key_padding_mask` calls of other lengths raise") == (
        row.status, row.reason,
    )  # fmt: skip


def test_one_sample_is_left_out_where_a_mask_gives_its_weights_an_axis() -> None:
    """Documented of batches, it is right; and a wrong scale is found in batches all the same."""
    verdict = check_subject(f"{FILE}:WithMaps", cases=60)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    row = next(r for r in verdict.features if (r.axis, r.value) == ("layout", "unbatched"))
    assert "with a mask, what comes with the output has shape (1, 1, 5, 5)" == row.reason
    wrong = check_subject(f"{FILE}:WithMapsUnscaled", cases=60)
    assert Outcome.FAIL == wrong.outcome


def test_rows_behind_their_channels_are_found() -> None:
    """(N, E, L) of a function that gets the number of heads: it was refused."""
    right, wrong = (
        check_subject(f"{FILE}:{name}", cases=40)
        for name in ("behind_channels", "behind_channels_unscaled")
    )
    assert Outcome.PASS is right.outcome, right.sentence
    assert any("; (N, E, L);" in note for note in right.notes)
    assert Outcome.FAIL is wrong.outcome
