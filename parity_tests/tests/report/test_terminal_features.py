"""What reports say of features: common to failures or absent, untested, not offered, not asked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from mha_parity.core.features import AXES
from mha_parity.core.verdict import (
    FailureGroup,
    FeatureRow,
    Outcome,
    Verdict,
)
from mha_parity.report import correlations, wording


def test_failing_runs_name_what_is_common(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """All failing cases are causal; of dtype and regime nothing is said."""
    text = " ".join(shown(make_verdict()).split())
    assert "common to all failures ✗ causal 40 of 50" in text
    assert "regime" not in text
    assert "✓ float64" not in text


def test_groups_of_failures_are_listed_separately(
    make_verdict: Callable[..., Verdict],
    make_rows: Callable[..., list[FeatureRow]],
    shown: Callable[..., str],
) -> None:
    """Two bugs have a line each; what narrows one down follows it."""
    rows = (
        *make_rows("attn", none=(150, 5), causal=(50, 30)),
        *make_rows("padding", none=(120, 0), bool=(80, 35)),
        *make_rows("dtype", float64=(100, 0), float16=(100, 35)),
    )
    groups = (
        FailureGroup(common=(("attn", ("causal",)), ("padding", ("bool",)))),
        FailureGroup(common=(("dtype", ("float16",)),)),
    )
    text = " ".join(shown(make_verdict(features=rows, failure_groups=groups)).split())
    assert (
        "common to some failures ✗ causal 30 of 50 and ✗ boolean key_padding_mask 35 of 80 "
        "common to others ✗ float16 35 of 100"
    ) in text
    assert "common to all failures" not in text


def test_values_that_no_failure_has_all_of_are_said_as_such(
    make_verdict: Callable[..., Verdict],
    make_rows: Callable[..., list[FeatureRow]],
    shown: Callable[..., str],
) -> None:
    """A case has one regime: several are not common to all failures, and one alone is."""
    regimes = make_rows("regime", normal=(60, 0), huge=(40, 20), wide_range=(40, 20))
    rows = (*regimes, *make_rows("attn", none=(90, 0), bool2d=(30, 25), causal=(20, 15)))
    several = (("regime", ("huge", "wide_range")), ("attn", ("bool2d", "causal")))
    groups = (FailureGroup(common=several),)
    text = " ".join(shown(make_verdict(features=rows, failure_groups=groups)).split())
    assert "common to" not in text
    assert "each failure has one of ✗ logits past the range of exp 20 of 40 ✗ wide range" in text
    assert "and one of ✗ boolean attn_mask (L, S) 25 of 30 · ✗ causal 15 of 20" in text
    separate = (FailureGroup(common=several[:1]), FailureGroup(common=several[1:]))
    text = " ".join(shown(make_verdict(features=rows, failure_groups=separate)).split())
    assert "some failures have one of ✗ logits" in text
    assert "others have one of ✗ boolean attn_mask" in text


def test_few_absent_values_are_named_as_such(
    make_verdict: Callable[..., Verdict],
    make_rows: Callable[..., list[FeatureRow]],
    shown: Callable[..., str],
) -> None:
    """Where most values fail and a plain one too, the absent ones are named instead."""
    regime = make_rows("regime", normal=(60, 30), tiny=(40, 20), huge=(40, 20), constant=(60, 0))
    groups = (FailureGroup(absent=(("regime", ("constant",)),)),)
    subject = make_verdict(failed=70, features=tuple(regime), failure_groups=groups)
    assert [] == correlations.common(subject)
    assert "absent from all failures ✓ constant key rows none of 60" in " ".join(
        shown(subject).split()
    )


def test_untested_features_say_what_to_do(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """A feature that is offered and in no case has a question mark and a remedy."""
    open_row = FeatureRow("attn", "causal", "inconclusive", 0, "no case drawn")
    plain = FeatureRow("attn", "none", "pass", 10)
    subject = make_verdict(failed=0, features=(plain, open_row), outcome=Outcome.INCONCLUSIVE)
    text = " ".join(shown(subject, verbose=True).split())
    assert "✓ no attn_mask 10 cases · ? causal 0" in text
    assert "untested ? causal 0 1 feature is offered, but no case could have shown a bug" in text
    assert "run more cases (--cases)" in text
    assert [open_row] == wording.untested(subject)


def test_the_sentence_names_few_of_many_untested_features(
    make_verdict: Callable[..., Verdict],
) -> None:
    """Of 12 features that no case could tell about, the verdict names three and counts the rest."""
    open_rows = [FeatureRow("regime", name, "inconclusive", 0) for name in AXES["regime"]]
    subject = make_verdict(failed=0, features=tuple(open_rows), outcome=Outcome.INCONCLUSIVE)
    assert subject.sentence.endswith(
        "could have shown a bug in normal values; tiny inputs; peaked softmax (logit sd 10) "
        f"and {len(open_rows) - 3} more: ask for more."
    )


def test_gradients_that_were_not_asked_for_are_said(
    make_verdict: Callable[..., Verdict],
    make_rows: Callable[..., list[FeatureRow]],
    shown: Callable[..., str],
) -> None:
    """Offered and not judged is said; judged, or not offered, is not."""
    assert "not asked gradients: --grad judges them too" in " ".join(
        shown(make_verdict(failed=0)).split()
    )
    for cases in (-1, 200):
        known = (*make_verdict(failed=0).features, *make_rows("gradients", yes=(cases, 0)))
        assert "not asked" not in shown(make_verdict(failed=0, features=known))


def test_what_an_option_leaves_out_is_not_said_to_be_not_offered(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """A dtype that the target offers and the run did not ask has a line of its own."""
    left_out = FeatureRow("dtype", "float16", "left out", 0, "by an option of the run")
    missing = FeatureRow("dtype", "bfloat16", "not offered", 0)
    verdict = make_verdict(failed=0, features=(left_out, missing))
    said = " ".join(shown(verdict).split())

    assert ["bfloat16"] == wording.not_offered(verdict)
    assert ["float16"] == wording.left_out(verdict)
    assert "not offered bfloat16 left out float16" in said


def test_an_axis_of_which_an_option_leaves_a_part_out_is_not_said_to_be_missing(
    make_verdict: Callable[..., Verdict],
) -> None:
    """Of masks one kind was asked and one left out: the others are named, not every one but it."""
    status = {"bool2d": "pass", "none": "left out", "causal": "left out"}
    rows = [FeatureRow("attn", each, status.get(each, "not offered"), 9) for each in AXES["attn"]]
    said = wording.not_offered(make_verdict(features=tuple(rows)))

    assert len(AXES["attn"]) - len(status) == len(said)
    assert not any("every" in each for each in said)


def test_whole_axes_that_are_not_offered_take_one_entry(
    make_verdict: Callable[..., Verdict], make_rows: Callable[..., list[FeatureRow]]
) -> None:
    """An axis with one offered value is named once; single values of others by themselves."""
    assert {"every form", "every bias", "bias of any kind"}.isdisjoint(
        wording.not_offered(make_verdict())
    )
    padding = make_verdict(features=tuple(make_rows("padding", none=(10, 0))))
    assert ["key_padding_mask of any kind"] == wording.not_offered(padding)
    some = make_verdict(
        features=tuple(make_rows("padding", none=(10, 0), bool=(9, 0), float=(8, 0)))
    )
    assert ["valid lengths per sample"] == wording.not_offered(some)


def test_what_was_tried_in_vain_comes_first_with_its_reason(
    make_verdict: Callable[..., Verdict],
) -> None:
    """Features of one reason stand together, whole axes too; what was not tried has none."""
    reason = "answered in float64"
    features = (
        FeatureRow("dtype", "float64", "pass", 9),
        *(FeatureRow("dtype", each, "not offered", 0, reason) for each in ("float32", "float16")),
        FeatureRow("bias", "no", "pass", 9),
        FeatureRow("bias", "yes", "not offered", 0),
        FeatureRow("scale", "given", "not offered", 0),
    )
    said = wording.not_offered(make_verdict(features=features))
    assert [f"float32, float16 ({reason})", "in_proj bias", "scale given by the caller"] == said


def test_verbose_features_say_how_many_cases_fail(
    make_verdict: Callable[..., Verdict],
    make_rows: Callable[..., list[FeatureRow]],
    shown: Callable[..., str],
) -> None:
    """With -v a failing feature has its failures and its cases, a passing one its cases."""
    text = shown(
        make_verdict(features=tuple(make_rows("attn", none=(150, 0), causal=(50, 40)))),
        verbose=True,
    )
    assert re.search(r"✓ no attn_mask 150 cases · ✗ causal 40 of 50\b", text)


def test_what_follows_from_the_form_is_not_listed(
    make_verdict: Callable[..., Verdict], make_rows: Callable[..., list[FeatureRow]]
) -> None:
    """A function of projected Q, K, V has no biases and no projections: one entry says it."""
    layer = make_rows("form", qkv=(10, 0)), make_rows("bias", no=(10, 0))
    projections = make_rows("projection", none=(10, 0)), make_rows("bias_kv", no=(10, 0))
    found = make_verdict(features=tuple(itertools.chain(*layer, *projections)))
    assert ["multi-head attention with projections"] == wording.not_offered(found)
    other = make_verdict(features=tuple(make_rows("dtype", float32=(10, 0))))
    assert ["every dtype but float32"] == wording.not_offered(other)
