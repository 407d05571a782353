"""What a candidate is called with: fresh arrays, in the case's layout, memory and polarity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.case import Case
from mha_parity.core.problem import Problem
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.calls.target_call import Call

QKV = Case(
    seed=5, batch=1, queries=5, keys=5, heads_count=2, head_dim=3, form="qkv", projection="none",
    layout="unbatched",
)  # fmt: skip
LAYER = Case(seed=5, batch=2, queries=5, keys=7, heads_count=3, head_dim=2, inputs="cross")


class Recorder:
    """A layer that looks like torch's and keeps what it was given."""

    def __init__(self, embed_dim: int, num_heads: int, **options: Any) -> None:
        """Keep the options."""
        self.options = options | {"embed_dim": embed_dim, "num_heads": num_heads}
        self.state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Name the entries of torch's layer."""
        names = ["in_proj_weight", "out_proj.weight"]
        names += ["in_proj_bias", "out_proj.bias"] if self.options.get("bias") else []
        return dict.fromkeys(names)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep the state."""
        self.state = state

    def forward(self, query: Any, key: Any, value: Any, **options: Any) -> Any:
        """Return the query."""
        del key, value, options
        return query


def prepared(problem: Problem, subject: Any = Recorder, name: str = "torch-module") -> Call:
    """Return the call that a problem makes."""
    return bind(subject, name, probe=False).prepare(problem)


def test_arrays_are_fresh_copies() -> None:
    """No argument shares memory with the problem, nor with a second call's."""
    problem = make_problem(LAYER)
    first, second = prepared(problem), prepared(problem)
    for mine, other in zip(first.args, second.args, strict=True):
        assert not np.shares_memory(mine, other)
        assert not any(np.shares_memory(mine, a) for a in (problem.query, problem.key))


def test_one_object_stays_one_object() -> None:
    """Self-attention passes one array three times, cross-attention key as value."""
    query, key, value = prepared(make_problem(LAYER)).args
    assert query is not key
    assert key is value
    query, key, value = prepared(make_problem(LAYER.replace(inputs="self", keys=5))).args
    assert query is key is value


@pytest.mark.parametrize("memory", ["c", "fortran", "sliced", "negative", "readonly"])
def test_memory_is_the_case_s(memory: str) -> None:
    """The same numbers arrive in the memory that the case asks for."""
    problem = make_problem(LAYER.replace(memory=memory))
    query = prepared(problem).args[0]
    np.testing.assert_array_equal(problem.query, query)
    seen = {
        "c": query.flags.c_contiguous,
        "fortran": query.flags.f_contiguous and not query.flags.c_contiguous,
        "sliced": query.strides[-1] == 2 * query.itemsize,
        "negative": query.strides[-1] < 0,
        "readonly": not query.flags.writeable,
    }
    assert seen[memory]


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("batch_first", (2, 5, 6)), ("sequence_first", (5, 2, 6)), ("unbatched", (5, 6))],
)
def test_layout_is_the_case_s(layout: str, shape: tuple[int, ...]) -> None:
    """Arrays go out in the case's layout and come back batch first."""
    batch = 1 if layout == "unbatched" else 2
    problem = make_problem(LAYER.replace(layout=layout, batch=batch))
    candidate = bind(Recorder, "torch-module", probe=False)
    call = candidate.prepare(problem)
    assert shape == call.args[0].shape
    np.testing.assert_array_equal(problem.query, candidate.answer(problem, call.make()).output)


def test_causal_is_an_explicit_mask_and_a_hint() -> None:
    """Torch's module wants the mask itself beside is_causal; True hides."""
    options = prepared(make_problem(LAYER.replace(attn="causal"))).kwargs
    assert options["is_causal"] is True
    np.testing.assert_array_equal(np.triu(np.ones((5, 7), dtype=bool), k=1), options["attn_mask"])


def test_no_hint_where_keys_are_appended() -> None:
    """Torch drops the mask for the hint and would hide the appended key by it."""
    options = prepared(make_problem(LAYER.replace(attn="causal", zero_attn="yes"))).kwargs
    assert "is_causal" not in options


def test_an_identity_is_written_out() -> None:
    """Without an out_proj of its own, a problem loads the identity and no bias."""
    problem = make_problem(LAYER.replace(bias="yes"))
    state = prepared(problem).function.__self__.state  # type: ignore[attr-defined]  # a bound method
    np.testing.assert_array_equal(np.eye(6), state["out_proj.weight"])
    np.testing.assert_array_equal(np.zeros(6), state["out_proj.bias"])
    assert {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"} == set(state)


def test_masks_have_the_polarity_of_sdpa() -> None:
    """For sdpa, True takes part: all masks joined to one and turned round."""

    def f(query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False) -> Any:
        return query, key, value, attn_mask, is_causal

    problem = make_problem(QKV.replace(padding="bool", attn="causal"))
    mask = prepared(problem, f, "sdpa").kwargs["attn_mask"]
    np.testing.assert_array_equal(~problem.hidden()[0, :1], mask)
    alone = prepared(make_problem(QKV.replace(attn="causal")), f, "sdpa").kwargs
    assert {"is_causal": True} == alone


def test_masks_of_a_textbook_layer_keep_ones() -> None:
    """module-mask gets numbers: 1 takes part, 0 is hidden."""

    class Layer:
        W_Q = W_K = W_V = W_O = 0

        def __init__(self, d_model: int, num_heads: int) -> None:
            """Nothing."""

        def forward(self, X: Any, mask: Any = None) -> Any:
            return X, mask

    problem = make_problem(
        LAYER.replace(inputs="self", keys=5, batch=1, layout="unbatched", attn="causal")
    )
    call = prepared(problem, Layer, "module-mask")
    np.testing.assert_array_equal(np.tril(np.ones((5, 5))), call.args[1])
    layer = call.function.__self__  # type: ignore[attr-defined]  # a bound method
    np.testing.assert_array_equal(problem.w_q.T, layer.W_Q)  # type: ignore[union-attr]  # an mha problem has it
    np.testing.assert_array_equal(np.eye(6), layer.W_O)


def test_a_layer_without_a_place_for_a_weight_is_refused() -> None:
    """The sentence names the attribute that is missing."""

    class Layer:
        W_Q = W_K = W_V = 0

        def __init__(self, d_model: int, num_heads: int) -> None:
            """Nothing."""

        def forward(self, X: Any, mask: Any = None) -> Any:
            return X, mask

    problem = make_problem(LAYER.replace(inputs="self", keys=5, out_proj="general"))
    with pytest.raises(CandidateError, match="no attribute like W_out, but should keep it there"):
        prepared(problem, Layer, "module-mask")


def test_lengths_are_whole_numbers() -> None:
    """module-valid-lens gets one length a sample, None without padding."""

    class Layer:
        W_q = W_k = W_v = W_o = 0

        def __init__(self, num_hiddens: int, num_heads: int) -> None:
            """Nothing."""

        def forward(self, queries: Any, keys: Any, values: Any, valid_lens: Any) -> Any:
            return queries, keys, values, valid_lens

    problem = make_problem(LAYER.replace(padding="lengths"))
    given = prepared(problem, Layer, "module-valid-lens").args[3]
    assert problem.lengths is not None
    assert problem.lengths.tolist() == given.tolist()
    assert prepared(make_problem(LAYER), Layer, "module-valid-lens").args[3] is None


def test_projections_are_completed_in_more_digits() -> None:
    """A wrong K is seen even where softmax alone would not notice: a constant along a row."""

    def f(X: Any, Wq: Any, Wk: Any, Wv: Any) -> Any:
        return X @ Wq, X @ Wk + 1.0, X @ Wv

    def right(X: Any, Wq: Any, Wk: Any, Wv: Any) -> Any:
        return X @ Wq, X @ Wk, X @ Wv

    problem = make_problem(LAYER.replace(inputs="self", keys=5, zero_attn="yes"))
    shifted, plain = (bind(each, "projections", probe=False)(problem).output for each in (f, right))
    assert np.abs(shifted - plain).max() > 1e-3


RETURNED = {
    "none": (None, "the output is a NoneType, but should be an array"),
    "text": ("text", "the output is a str"),
    "number": (1.5, "the output is a float"),
    "lists": ([[1.0]], r"the output is a list of 1 \(list\)"),
    "empty": ((), "the output is an empty tuple"),
    "three": ((1, 2, 3), r"the output is a tuple of 3 \(int\)"),
    "objects": (np.array([None]), "dtype object, but should hold real floating-point numbers"),
    "strings": (np.array(["a"]), "dtype <U1"),
    "complex": (np.zeros(3, complex), "dtype complex128, but should hold real floating-point"),
    "bytes": (np.zeros(3, "V8"), r"dtype \|V8, but should hold real floating-point numbers"),
    "matrix": (np.ma.masked_array([1.0]), "the output is a numpy.ma.MaskedArray"),
}


@pytest.mark.parametrize(("value", "message"), RETURNED.values(), ids=RETURNED)
def test_no_array_is_a_finding_of_structure(value: object, message: str) -> None:
    """Whatever is not an array of numbers is named by its type."""
    candidate = bind(lambda *_: value, "qkv-heads", probe=False)
    with pytest.raises(CandidateError, match=message) as caught:
        candidate(make_problem(QKV))
    assert "structure" == caught.value.severity


def test_wrong_shapes_and_dtypes_arrive_as_they_are() -> None:
    """What a judge has to see is not mended on the way."""
    wrong = np.zeros((2, 3, 4, 5), dtype=np.int16)
    answer = bind(lambda *_: wrong, "qkv-heads", probe=False)(make_problem(QKV))
    assert isinstance(answer, Answer)
    assert (wrong.shape, wrong.dtype) == (answer.output.shape, answer.output.dtype)


class Foreign:
    """An array of a library that is not known; on another device it has to be fetched."""

    def __init__(self, array: Any, device: str = "cpu") -> None:
        """Hold NumPy's array."""
        self.array = array
        self.device = device

    def to_device(self, device: str, *, stream: object = None) -> Foreign:
        """Return the array on a device, as the array API standard has it."""
        del stream
        return Foreign(self.array, device)

    def __dlpack__(self, **options: Any) -> Any:
        """Export what lies on the CPU."""
        if self.device != "cpu":
            raise BufferError("on another device")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        """Say that it lies on the CPU."""
        return self.array.__dlpack_device__()


class Stuck(Foreign):
    """An array that cannot leave its device."""

    def to_device(self, device: str, *, stream: object = None) -> Foreign:
        """Refuse."""
        raise RuntimeError(f"no way to {device}\nand more {stream}")


@pytest.mark.parametrize("device", ["cpu", "somewhere"])
def test_an_array_of_another_library_comes_by_dlpack(device: str) -> None:
    """Anything with __dlpack__ is read without knowing the library, from its device if need be."""
    candidate = bind(lambda q, *_: Foreign(q, device), "qkv-heads", probe=False)
    problem = make_problem(QKV)
    np.testing.assert_array_equal(problem.query, candidate(problem).output)


def test_an_array_that_cannot_be_read_is_a_finding() -> None:
    """An exception of a target's array on being read costs the case, not the process."""
    candidate = bind(lambda q, *_: Stuck(q, "somewhere"), "qkv-heads", probe=False)
    message = r"is a .*Stuck that cannot be read \(RuntimeError: no way to cpu\), but should be"
    with pytest.raises(CandidateError, match=message) as caught:
        candidate(make_problem(QKV))
    assert "structure" == caught.value.severity


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("torch.nn:MultiheadAttention", "got the device 'nowhere', but torch has none of that"),
        ("mha_numpy:MultiheadAttention", "got the device 'nowhere', but the target takes NumPy's"),
    ],
)
def test_a_device_that_is_not_there_is_refused(target: str, message: str) -> None:
    """One sentence says what was asked for and what to do."""
    with pytest.raises(ValueError, match=message):
        bind(load.load(target), device="nowhere")


def test_a_torch_module_runs_on_the_device_that_is_named() -> None:
    """Weights and inputs go there, and the answer comes back."""
    candidate = bind(load.load("torch.nn:MultiheadAttention"), device="cpu:0")
    problem = make_problem(LAYER)
    expected = bind(load.load("torch.nn:MultiheadAttention"))(problem).output
    np.testing.assert_array_equal(expected, candidate(problem).output)


def test_a_crash_names_the_candidate_s_own_line() -> None:
    """The sentence has the exception and the line; our own frames are left out."""
    candidate = bind(lambda q, *_: q / "x", "qkv-heads", probe=False)
    with pytest.raises(CandidateError, match=r"raised .*Error.*\[.*test_conventions_calls.py") as c:
        candidate(make_problem(QKV))
    assert "conventions/base.py" not in c.value.detail
