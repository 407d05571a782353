"""Targets of any style are called as experiments show, and wrong ones are not explained away."""

from __future__ import annotations

import time
from itertools import count

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import TargetError
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.oracle.error_bound import roundoff
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.calls.target_call import Call
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64
from mha_parity.targets.layers.module_constants import globals_read
from mha_parity.targets.trials.fitted_target import Fitted
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS, assert_named, check_subject

RIGHT = {
    "styles.py:Widths": "toqueries",
    "styles.py:Configured": "qkv, proj as Linears; (N, L, E)",
    "styles.py:KeywordsFirstAxis": "(L, N, E)",
    "styles.py:ListAndOne": "layers.0, layers.1, layers.2, output_linear as Linears",
    "styles.py:Bare": "W_Q, W_K, W_V, W_O with an axis of heads",
    "styles.py:Lazy": "W_q, W_k, W_v, W_o as Linears",
    "styles.py:Grid": "(N, height, width, E)",
    "along_one_axis.py:AlongFrames": "(N, L, columns, E)",
    "along_one_axis.py:FramesToFrames": "(N, L, columns, E); `q` the query, `kv` the key",
    "styles.py:Stacked": "c_q, c_kv, c_proj as Linears; (N, rows, L, E)",
    "styles.py:OnlyMatrices": "applied as X @ W; (L, E)",
    "styles.py:Normed": "`norm` taken out; the input that is added to the output taken off",
    "styles.py:MaskWanted": "`q` the query, `k` the key, `v` the value",
    "styles.py:Weightless": "no projection weights",
    "styles.py:GlobalWidth": "qkv, proj as Linears",
    "styles.py:NamedLongest": "q_net, k_net, v_net, proj_net as Linears",
    "styles.py:UnnamedLongest": "q_net, k_net, v_net, proj_net as Linears",
    "functions_of_weights.py:all_seven": "W_q, W_k, W_v, W_o applied as X @ W",
    "functions_of_weights.py:packed": "W, Wp applied as X @ W",
    "functions_of_weights.py:lists": "Wqs, Wks, Wvs, Wp",
    "functions_of_weights.py:dicts": "c_attn, c_proj applied as X @ W",
    "functions_of_weights.py:heads_by_name": "(N, L, H, D); `query_heads` the query",
    "functions_of_weights.py:objects": "c_attn, c_proj applied as X @ W",
    "functions_of_weights.py:keys_first": "Wk, Wq, Wv applied as X @ W",
    "functions_of_weights.py:transposed": "applied as X @ W.T",
    "functions_of_weights.py:tiled": "no projection weights; (N, L, E)",
    "functions_of_weights.py:columns": "(E, L)",
    "functions_of_weights.py:columns_of_biases": "(E, L)",
    "functions_of_weights.py:dicts_of_a_decoder": "c_attn, c_proj applied as X @ W; (L, E)",
    "own_layers.py:NumpyLayer": "K_linear.w, Q_linear.w, V_linear.w, O_linear.w applied as X @ W",
    "own_layers.py:OfMaps": "as convolutions of width 1; (N, E, height, width)",
    "own_layers.py:OfChannels": "as convolutions of width 1; (N, E, L)",
    "own_layers.py:NumbersOfAxes": "W_q, W_k, W_v as Linears; (L, E)",
    "full_width.py:ListOfWideHeads": "each head as wide as the input",
    "full_width.py:OneLinearOfWideHeads": "toqueries, tovalues, unify as Linears; (N, L, E); each",
    "full_width.py:WideHeadsSideBySide": "tokeys, toqueries, tovalues as Linears; (N, L, E); each",
    "given_weights.py:ByTorchsNames": "W.0, W.1, W.2, Wo applied as X @ W.T; (N, L, E)",
    "given_weights.py:OneKernel": "applied as X @ W and rows column by column; (N, L, E)",
    "given_weights.py:rows_of_heads": "no projection weights; (N, L, H, D)",
    "given_weights.py:transposed_by_name": "Wq_t, Wk_t, Wv_t, Wo_t applied as X @ W.T; (L, E)",
    "given_weights.py:with_probability": "no projection weights; (N, L, H, D); `query` the query",
    "whole_masks.py:WholeMaskWanted": "w_q, w_k, w_v, w_o applied as X @ W; (N, L, E); `query`",
    "whole_masks.py:HeadOfMany": "key, query, value as Linears; (N, L, E)",
    "whole_masks.py:OutputByTorchsPrefix": "in_proj_weight, out_proj_weight applied as X @ W.T",
    "whole_masks.py:TwoOfOneName": "c_attn, c_attn2, c_proj as Linears; (N, L, E); `x` the query",
    "residual.py:PostNormed": "`layer_norm` taken out; the input that is added",
    "residual.py:Float32Inside": "`layer_norm` taken out; the input that is added",
    "around_torchs.py:Around": "X @ W.T; (N, L, E); `x` the query, `y` the key; `query`, `key`, ",
    "around_torchs.py:OneHeadOfAConfig": "query_gen, key_gen, value_gen as Linears; (N, L, E)",
    "around_torchs.py:KeysOfAWidth": "query_gen, key_gen, value_gen, merge as Linears; (N, L, E)",
    "functions_of_weights.py:ByName": "W.q, W.k, W.v, W.o applied as X @ W",
    "functions_of_weights.py:GivenWeights": "w_q, w_k, w_v, w_o applied as X @ W",
    "functions_of_weights.py:in_pairs": "lin_q, lin_k, lin_v, lin_o applied as X @ W; (N, L, E)",
    "functions_of_weights.py:transposed_pairs": "applied as X @ W.T; (N, L, E)",
    "functions_of_weights.py:stacked": "w_in, w_out applied as X @ W.T; (N, L, E)",
}
WRONG = [
    "styles.py:UnnamedLongestLoose", "styles.py:StackedUnscaled",
    "along_one_axis.py:ScaledByWidth", "along_one_axis.py:MixedJoints",
    "without_counterpart.py:SlopesUnused",
    "without_counterpart.py:SharpensThreeInputs", "without_counterpart.py:SharpensByName",
    "functions_of_weights.py:stacked_crossed", "functions_of_weights.py:in_pairs_crossed",
    "functions_of_weights.py:lists_crossed", "functions_of_weights.py:two_swapped",
    "own_layers.py:UnscaledNumpyLayer", "own_layers.py:DropsAlways",
    "own_layers.py:KnowsNoEvaluation",
    "own_layers.py:UnscaledOfMaps", "own_layers.py:MaskForgotten",
    "given_weights.py:KeysAndValuesCrossed", "given_weights.py:rows_of_heads_unscaled",
    "given_weights.py:with_probability_unscaled",
    "whole_masks.py:WholeMaskUnscaled", "whole_masks.py:HeadOfManyDoubled",
    "whole_masks.py:OutputByTorchsPrefixDoubled", "whole_masks.py:TwoOfOneNameUnscaled",
    "whole_masks.py:CausalWithoutItself", "whole_masks.py:Float32HeadsShifted",
    "whole_masks.py:TwoInputsOtherBiases", "given_weights.py:unmoved",
    "given_weights.py:width_first",
    "residual.py:AddsTwice", "residual.py:Float32Twice", "residual.py:Float32SlightlyMore",
    "residual.py:Float32TwiceWhereLong", "full_width.py:WideHeadsScaledAsNarrow",
    "full_width.py:WideHeadsInterleaved", "full_width.py:WideHeadsReversed",
    "full_width.py:WideHeadsReversedSideBySide", "around_torchs.py:OneHeadUnscaled",
]  # fmt: skip
REFUSED = {
    "without_counterpart.py:TalkingHeads": "but `talk` has no counterpart in torch's layer",
    "without_counterpart.py:Rotary": "but `freqs_cis` has no counterpart in torch's layer",
    "without_counterpart.py:CosineAttention": "does not compute attention and is called cosine",
    "without_counterpart.py:KeptSlopes": "but `slopes` has no counterpart in torch's layer",
    "styles.py:make_attention": "but `head_dim`, `scale` are sizes and no inputs, so that it may",
    "given_weights.py:unknown_among_biases": "`W_second`, `W_third`, `n_heads` do not say which is",
    "styles.py:OneQueryASample": "computes attention; nearest tried: W_q, W_k, W_v, W_o as Line",
    "miscalled.py:raises_always": "but every call that was tried raised RuntimeError: boom [",
    "miscalled.py:CallsWhatIsGone": "nearest tried: c_attn, c_proj as Linears, (L, E): raised "
    "AttributeError: module 'torch.nn.functional' has no attribute 'attention_of_old'",
    "weight_dictionaries.py:of_a_stack": "tried raised KeyError: 'layers' [",
    "around_torchs.py:TwelveHeads": "but it has 12 heads, and no parameter that sets",
    "around_torchs.py:AroundCrossed": "but `query`, `key`, `value`, `proj` have no counterpart in",
    "around_torchs.py:AroundActivated": "but `query`, `key`, `value`, `proj` have no "
    "counterpart in torch's layer; judge its `attn`, an attention of torch, alone",
    "around_torchs.py:TwoStreams": "but `second` has no counterpart in torch's layer",
    "without_counterpart.py:TurnsValues": "computes attention; nearest tried: ask, ",
    "without_counterpart.py:Sharpens": "with `ask.weight` for q, `answer.weight` for k, `say.weig",
    "without_counterpart.py:SharpensAList": "with `linears.0.weight` for q, `linears.1.weight` fo",
    "without_counterpart.py:Block": "but `mlp.0`, `mlp.2` have no counterpart in torch's layer; "
    "judge its `attn`, of the class SharpensByName, alone, or judge an adapter",
    "without_counterpart.py:BlockOfUnfit": "but `c_fc`, `c_proj` have no counterpart in torch's",
    "without_counterpart.py:Activated": "but `tanh` has no counterpart in torch's layer",
    "without_counterpart.py:ActivatedInSequence": "but `ReLU` has no counterpart in torch's layer",
    "without_counterpart.py:OfATokenizer": "by OfATokenizer(tokenizer=24, dim=24, heads=4); judge",
    "without_counterpart.py:WithoutForward": "but it has no `forward` and no `__call__`; name the",
    "without_counterpart.py:three": "got three, but it takes no arguments; judge an adapter",
    "without_counterpart.py:nothing_back": "is a NoneType, but should be an array; judge an adap",
    "without_counterpart.py:Settings": "name the method that computes, Class.method; judge an adap",
    "without_counterpart.py:RandomWidth": "building one of width 24 with 4 heads raised FileNot",
    "functions_of_weights.py:Downloads": "tried to open a network connection",
}


def options(*, cases: int = 24, fail_fast: bool = False) -> Options:
    """Return the options of each check here."""
    return Options(cases=cases, diagnose=False, shrink=False, fail_fast=fail_fast)


def judged(name: str, *, fail_fast: bool = False) -> Verdict:
    """Return the verdict on a subject."""
    asked = options(fail_fast=fail_fast)
    return check(bind_in_process(load.load(f"{SUBJECTS}/{name}"), asked), asked)


# All are found and said, every third is judged; `make test-all` judges the others.
FOUND = [pytest.param(*each, i % 3 == 0, id=each[0]) for i, each in enumerate(RIGHT.items())]
FOUND += [
    pytest.param(*each, True, id=f"{each[0]}-judged", marks=pytest.mark.slow)
    for i, each in enumerate(RIGHT.items())
    if i % 3
]


@pytest.mark.repeats(15)
@pytest.mark.parametrize(("name", "said", "is_judged"), FOUND)
def test_right_ones_are_found_said_and_pass(name: str, said: str, is_judged: bool) -> None:
    """What was found fits to rounding, is said in one line, and no case of the offer is wrong."""
    candidate = bind_in_process(load.load(f"{SUBJECTS}/{name}"), options())
    assert isinstance(candidate.bound, Fitted)
    assert candidate.bound.fit.exact, candidate.bound.fit
    assert said in str(candidate.bound.how)
    if not is_judged:
        return
    verdict = check(candidate, options(cases=14))
    assert 0 == verdict.failed, verdict
    assert any("called with" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("name", "most"), [("styles.py:MaskWanted", 850), ("styles.py:Widths", 60)]
)
def test_the_longest_searches_make_few_calls(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """A search and the trials after it make at most `most` calls: small ones, of 1 to 2 ms."""
    made = count()
    make = Call.make
    monkeypatch.setattr(Call, "make", lambda self: (next(made), make(self))[1])
    bind(load.load(f"{SUBJECTS}/{name}"))
    assert 10 < next(made) <= most


def test_what_a_search_finds_does_not_depend_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 49th interpretation is found where each look at a clock is a second after the last."""
    for name in ("thread_time", "process_time", "perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, count().__next__)
    bound = bind(load.load(f"{SUBJECTS}/functions_of_weights.py:dicts"))
    assert isinstance(bound, Fitted)
    assert bound.fit.exact, bound.fit


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("MaskedSelf", "call.attn_mask", "True keeps"),
        (
            "CausalOfEqualLengths",
            "call.causal",
            "hides the keys behind a query, taken at L = S alone",
        ),
        ("Float32Heads", "call.padding_mask", "True keeps"),
    ],
)
def test_masks_are_tried_as_they_can_be(name: str, key: str, said: str) -> None:
    """A mask is no key, a square switch gives way to a mask, and float32 serves where it must."""
    bound = bind(load.load(f"{SUBJECTS}/whole_masks.py:{name}"))
    assert said in bound.meanings[key]
    assert ("cross" in bound.offer["inputs"]) == (name == "CausalOfEqualLengths")
    assert ("float64" in bound.offer["dtype"]) == (name != "Float32Heads")
    verdict = judged(f"whole_masks.py:{name}")
    assert (0, {}) == (verdict.failed, bound.untried), verdict


@pytest.mark.repeats(8)
@pytest.mark.parametrize("name", WRONG)
def test_names_win_over_the_fit(name: str) -> None:
    """Where another reading of the names would fit, the departure is the finding."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome


@pytest.mark.parametrize(
    ("name", "bugs"),
    [
        ("torchs_rows", []),
        ("rows_head_by_head", ["qkv-interleaved-heads"]),
        ("own_rows_head_by_head", []),
    ],
)
def test_packed_weights_of_torchs_name_have_torchs_rows(name: str, bugs: list[str]) -> None:
    """An order of rows that is found for another name is a bug by ``in_proj_weight``, and named."""
    verdict = check_subject(f"functions_of_weights.py:{name}", cases=24, diagnose=True)
    assert bugs == [each.bug for each in verdict.diagnosis], verdict.sentence
    assert bool(bugs) == bool(verdict.failed)


def test_transposed_output_weights_hide_no_other_reading() -> None:
    """No output correlates with the right one then: the reading is that of all other weights."""
    bound = bind(load.load(f"{SUBJECTS}/functions_of_weights.py:output_transposed"))
    assert isinstance(bound, Fitted)
    assert not bound.fit.exact
    assert "Wq, Wk, Wv, Wo applied as X @ W; (N, L, E)" == str(bound.how)
    asked = Options(cases=24, shrink=False)
    verdict = check(bind_in_process(bound.subject, asked), asked)
    assert ["out-proj-transposed"] == [each.bug for each in verdict.diagnosis]


def test_heads_that_are_mixed_are_not_passed_over() -> None:
    """A function that is right of one head, and takes arrays of several, is not judged of one."""
    function = load.load(f"{SUBJECTS}/given_weights.py:first_keys")
    with pytest.raises(TargetError, match=r"otherwise than each of their heads alone, .*`--conv"):
        bind(function)
    assert ("one",) == bind(function, "qkv").offer["heads"]


@pytest.mark.parametrize(("name", "sentence"), REFUSED.items(), ids=REFUSED)
def test_refusals_name_their_reason(name: str, sentence: str) -> None:
    """What has no counterpart is named, and what a constructor raised is quoted."""
    with pytest.raises(ValueError, match=r"got .*") as caught:
        bind(load.load(f"{SUBJECTS}/{name}"))
    assert sentence in str(caught.value)
    assert "an adapter that calls it, which `mha-parity adapt` begins" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["NeedsALibrary", "MadeOfALibrary"])
def test_the_remedy_for_a_library_that_is_missing_is_to_install_it(name: str) -> None:
    """In its call and in its constructor; kills an adapter, which would call the same."""
    with pytest.raises(ValueError, match=r"but tracker is not installed .*; install tracker\.$"):
        bind(load.load(f"{SUBJECTS}/without_counterpart.py:{name}"))


def test_layers_of_one_head_may_differ() -> None:
    """Where one head leaves a weight out, one head is not offered, and the reason says so."""
    bound = bind(load.load(f"{SUBJECTS}/styles.py:ShortMask"), "fitted")
    assert ("many",) == bound.offer["heads"]
    assert "with one head it has no `to_out.weight`" == bound.reasons["heads", "one"]


def test_default_lengths_give_way_to_long_cases() -> None:
    """A mask of 16 keys by default is built as long as the case."""
    bound = bind(load.load(f"{SUBJECTS}/styles.py:ShortMask"), "fitted")
    case = bound.plain_case().replace(queries=300, keys=300)
    assert (2, 300, 6) == bound(make_problem(case)).output.shape


@pytest.mark.parametrize("name", ["NamedLongest", "UnnamedLongest"])
def test_required_lengths_give_way_to_long_cases(name: str) -> None:
    """A largest length is known by its name, or by a call of twice the length, which raises."""
    bound = bind(load.load(f"{SUBJECTS}/styles.py:{name}"), "fitted")
    case = bound.plain_case().replace(queries=300, keys=300)
    assert (2, 300, 6) == bound(make_problem(case)).output.shape


@pytest.mark.parametrize(("heads", "width"), [(1, 6), (6, 1), (1, 1), (3, 2)])
def test_weights_one_wide_are_filled(heads: int, width: int) -> None:
    """A head of width 1 has weights of one row, which are no biases: all are filled."""
    bound = bind(load.load(f"{SUBJECTS}/layers_in_the_wild.py:ListOfHeads"), "fitted")
    more = {"bias": bound.offer["bias"][-1], "out_proj": bound.offer["out_proj"][-1]}
    case = bound.plain_case().replace(heads_count=heads, head_dim=width, **more)
    problem = make_problem(case)
    expected = attention_in_float64(problem, causal=bound.hides_future)
    np.testing.assert_allclose(bound(problem).output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("heads", "width"), [(1, 5), (2, 3), (5, 2), (4, 4)])
@pytest.mark.parametrize("name", ["ListOfWideHeads", "WideHeadsSideBySide"])
def test_wide_heads_hold_narrow_ones_exactly(name: str, heads: int, width: int) -> None:
    """Zeros and a power of two round nothing: torch's layer is computed for any H and D."""
    bound = bind(load.load(f"{SUBJECTS}/full_width.py:{name}"))
    assert "float16" not in bound.offer["dtype"]  # the larger products would leave its range
    more = {"bias": bound.offer["bias"][-1], "out_proj": bound.offer["out_proj"][-1]}
    case = bound.plain_case().replace(heads_count=heads, head_dim=width, **more)
    problem = make_problem(case)
    expected = attention_in_float64(problem, causal=False)
    np.testing.assert_allclose(bound(problem).output, expected, rtol=0, atol=1e-13)


def test_the_second_of_two_widths_is_tried_as_that_of_a_head() -> None:
    """Right with heads as wide as the input, a layer may still scale by the wrong one of them."""
    right = judged("full_width.py:TwoWidths")
    assert right.outcome is not Outcome.FAIL, right.sentence
    assert not any("each head as wide as the input" in note for note in right.notes)
    wrong = check(
        bind(load.load(f"{SUBJECTS}/full_width.py:TwoWidthsScaledByTheFirst")),
        Options(cases=24, shrink=False),
    )
    assert ["scale-dmodel"] == [each.bug for each in wrong.diagnosis]


def test_larger_weights_get_no_largest_numbers() -> None:
    """The weights that keep what is added from rounding would make these infinite."""
    bound = bind(load.load(f"{SUBJECTS}/residual.py:PostNormed"))
    assert "infinite_value" in bound.offer["regime"]
    assert "largest_value" not in bound.offer["regime"]
    assert "larger weights leave" in bound.reasons["regime", "largest_value"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_what_is_added_to_the_output_does_not_round_it(dtype: str) -> None:
    """Values a thousandth of the query keep all their digits. Kills the plain difference."""
    bound = bind(load.load(f"{SUBJECTS}/residual.py:PostNormed"))
    assert "float16" not in bound.offer["dtype"]
    problem = make_problem(bound.plain_case().replace(dtype=dtype, out_proj="general"))
    assert problem.w_v is not None
    small = problem.replace(w_v=problem.w_v * problem.w_v.dtype.type(2.0**-10))
    output = bound(small).output.astype(np.float64)
    expected = attention_in_float64(small, causal=False)
    worst = np.abs(output - expected).max() / np.abs(expected).max()
    assert worst < 16 * roundoff(problem.dtype)


class OneHead:
    """A head whose buffer has the size of a number of the module."""

    def forward(self) -> int:
        """Read it."""
        return block_size


class HeadsInAList:
    """Heads that a comprehension builds, as in a well-known lecture."""

    def __init__(self) -> None:
        """Build them."""
        self.heads = [OneHead() for _ in range(3)]


block_size = 8


def test_a_number_that_a_comprehension_leads_to_is_found() -> None:
    """The class of the heads is named inside the comprehension's own code. Kills its loss."""
    assert {"block_size": "length"} == dict(globals_read(HeadsInAList))


def test_weights_keep_their_side_where_heads_are_merged_wrongly() -> None:
    """Nothing correlates with attention then: the output with that one mistake tells X @ W."""
    verdict = judged("given_weights.py:width_first")
    assert any("Wq, Wk, Wv, Wo applied as X @ W;" in note for note in verdict.notes), verdict.notes


def test_a_backward_pass_of_its_own_is_not_denied() -> None:
    """A layer of NumPy's arrays has one: the reason is what it returns where it was called."""
    plain = load.load(f"{SUBJECTS}/own_layers.py:NumpyLayer")
    own = type("Own", (plain,), {"backward": lambda _, cotangent: cotangent})
    reasons = [bind(each).reasons["gradients", "yes"] for each in (plain, own)]
    assert "has no `vjp` or `backward`" == reasons[0].partition(", and ")[2]
    assert reasons[1].startswith("`backward` returns no gradient for each of query and")


def test_an_output_projection_that_is_left_out_hides_nothing_else() -> None:
    """No answer is near the right one in any layout: kills the layout by the nearest alone."""
    assert_named("around_torchs.py:OutputUnapplied", ["out-proj-skipped"], cases=60)
