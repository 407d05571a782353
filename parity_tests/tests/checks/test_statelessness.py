"""What stays from other calls, or depends on a mode, fails statelessness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mha_numpy import MultiheadAttention
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue, kept_state
from mha_parity.catalogue.plain_layer import Layer, bound_layer
from mha_parity.checks import statelessness
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.case import parse
from mha_parity.core.options import Options
from mha_parity.core.verdict import Verdict
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from subject_checks import check_subject


def kept_state_bugs() -> list[str]:
    """Return the ids of the layers that keep something from call to call."""
    return [name for name, bug in catalogue().items() if bug.layer is not None
            and bug.layer().__module__ == kept_state.__name__]  # fmt: skip


# Calls are repeated on plain cases alone.
PLAIN = {"features": (("regime", "normal"), ("masked_rows", "none")), "diagnose": False,
         "shrink": False, "draw": False}  # fmt: skip


class KeepsKeys(MultiheadAttention):
    """Keep keys and values of the longest call, and use their beginning in shorter ones."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return attention to the kept keys where they are more than those given."""
        axis = 0 if query.ndim == 2 or not self.batch_first else 1
        kept = getattr(self, "kept", None)
        if kept is not None and kept[0].shape[axis] > key.shape[axis]:
            part = [slice(None)] * key.ndim
            part[axis] = slice(-key.shape[axis], None)
            key, value = (array[tuple(part)] for array in kept)
        else:
            self.kept = (key.copy(), value.copy())
        return super().forward(query, key, value, **options)

    __call__ = forward  # type: ignore[assignment]  # narrower than the base


class KeepsLength(MultiheadAttention):
    """Scale by the square root of the shortest length ever seen over the present one."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return the output scaled by what an earlier, shorter call left."""
        axis = 0 if query.ndim == 2 or not self.batch_first else 1
        self.least = min(getattr(self, "least", key.shape[axis]), key.shape[axis])
        output, weights = super().forward(query, key, value, **options)
        factor = np.sqrt(self.least / max(key.shape[axis], 1))
        return output * output.dtype.type(factor), weights

    __call__ = forward  # type: ignore[assignment]  # narrower than the base


class KeepsLongest(MultiheadAttention):
    """Scale by the square root of the present length over the longest ever seen."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return the output scaled by what an earlier, longer call left."""
        axis = 0 if query.ndim == 2 or not self.batch_first else 1
        self.longest = max(getattr(self, "longest", 1), key.shape[axis])
        output, weights = super().forward(query, key, value, **options)
        factor = np.sqrt(key.shape[axis] / self.longest)
        return output * output.dtype.type(factor), weights

    __call__ = forward  # type: ignore[assignment]  # narrower than the base


class KeepsMasks(MultiheadAttention):
    """Keep the masks of the first call of each size."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return attention with the masks that came with these shapes first."""
        kept = self.__dict__.setdefault("kept", {})
        masks = {name: options.get(name) for name in ("key_padding_mask", "attn_mask")}
        options |= kept.setdefault((query.shape, key.shape), masks)
        return super().forward(query, key, value, **options)

    __call__ = forward  # type: ignore[assignment]  # narrower than the base


class KeepsOneMask(KeepsMasks):
    """Keep the boolean key_padding_mask of the first call of each size, and no attn_mask."""

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any
    ) -> Any:
        """Return attention with the padding that came with these shapes first."""
        given = options.get("key_padding_mask")
        if given is not None and given.dtype == bool:
            kept = self.__dict__.setdefault("kept", {})
            options["key_padding_mask"] = kept.setdefault((query.shape, key.shape), given.copy())
        return MultiheadAttention.forward(self, query, key, value, **options)

    __call__ = forward


class OfThree(MultiheadAttention):
    """Answer twice the output by each third object."""

    made = 0

    def __init__(self, *sizes: Any, **options: Any) -> None:
        """Count the objects."""
        super().__init__(*sizes, **options)
        OfThree.made += 1
        self.factor = 1 + (OfThree.made % 3 == 0)

    def forward(self, *arrays: Any, **options: Any) -> Any:
        """Return attention by a factor of the object."""
        output, weights = super().forward(*arrays, **options)
        return self.factor * output, weights

    __call__ = forward


class KeepsLengths(torch.nn.Module):
    """Build the mask of the lengths once for each size; calls without lengths have none."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Make four projections."""
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            torch.nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )
        self.built: dict[tuple[int, int], torch.Tensor] = {}

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return attention to the keys within the lengths that came with these sizes first."""
        linears = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (
            linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, x in zip(linears, (query, key, value), strict=True)
        )
        keep = None
        if lengths is not None:
            built = (torch.arange(key.shape[1]) < lengths[:, None])[:, None, None]
            keep = self.built.setdefault((len(key), key.shape[1]), built)
        heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        output: torch.Tensor = self.out_proj(heads.transpose(1, 2).flatten(-2))
        return output


class ForInference(torch.nn.MultiheadAttention):
    """Forget the scale where no gradient is asked for."""

    def forward(self, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
        """Return attention of other scores without autograd."""
        return super().forward(query * (1 + (not torch.is_grad_enabled())), *rest, **options)


class ForEvaluation(torch.nn.MultiheadAttention):
    """Forget the scale in evaluation mode; no dropout gives a reason to ask for that mode."""

    def __init__(self, embed_dim: int, num_heads: int, *, bias: bool = True) -> None:
        """Leave most of torch's options out."""
        super().__init__(embed_dim, num_heads, bias=bias)

    def forward(self, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
        """Return attention of other scores in evaluation mode."""
        return super().forward(query * (1 + (not self.training)), *rest, **options)


class CachesForInference(torch.nn.MultiheadAttention):
    """Keep the keys and values of the first call without autograd; ``reads`` says when."""

    kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def reads(self, key: torch.Tensor) -> bool:
        """Return whether the kept ones have the shapes of these."""
        return self.kept is not None and self.kept[0].shape == key.shape

    def forward(  # type: ignore[override]  # the other parameters are passed on
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
    ) -> Any:
        """Return attention to the kept keys where no gradient can be asked for."""
        if not torch.is_grad_enabled() and not self.training:
            if self.kept is None or not self.reads(key):
                self.kept = key.clone(), value.clone()
            key, value = self.kept
        return super().forward(query, key, value, **options)


class CachesByValue(CachesForInference):
    """Keep keys and values of a call without autograd, and use them for equal ones alone."""

    def reads(self, key: torch.Tensor) -> bool:
        """Return whether the kept ones are these."""
        return self.kept is not None and torch.equal(self.kept[0], key)


class FoldsForEvaluation(torch.nn.MultiheadAttention):
    """Keep the output projection of the first call in evaluation mode."""

    def forward(self, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
        """Return the product with the kept projection."""
        if not self.training:
            with torch.no_grad():
                kept = self.__dict__.setdefault("kept", self.out_proj.weight.clone())
                self.out_proj.weight.copy_(kept)
        return super().forward(query, *rest, **options)


class ReusesBuffer(Layer):
    """Write each output into one buffer of its shape; ``handed`` is what the caller gets."""

    def output(self, query: np.ndarray, output: np.ndarray) -> np.ndarray:
        """Fill the buffer."""
        buffers = self.__dict__.setdefault("buffers", {})
        buffer = buffers.setdefault((output.shape, output.dtype), np.empty_like(output))
        buffer[...] = output
        return self.handed(super().output(query, buffer))

    def handed(self, buffer: np.ndarray) -> np.ndarray:
        """Return the buffer itself."""
        return buffer


class CopiesBuffer(ReusesBuffer):
    """Write each output into one buffer of its shape, and return a copy."""

    def handed(self, buffer: np.ndarray) -> np.ndarray:
        """Return a copy of the buffer."""
        return buffer.copy()


class CutsBuffer(Layer):
    """Write keys and values into buffers of the longest call, and use the part that is theirs."""

    def inputs(self, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        """Count the calls, and take the rows of this one out of the buffers again."""
        query, *pair = super().inputs(*given)
        self.calls = getattr(self, "calls", 0) + 1
        buffers = self.__dict__.setdefault("buffers", [each.copy() for each in pair])
        for place, each in enumerate(pair):
            if any(b < a for a, b in zip(each.shape, buffers[place].shape, strict=True)):
                buffers[place] = each.copy()
            part = tuple(slice(size) for size in each.shape)
            buffers[place][part] = each
            pair[place] = buffers[place][part]
        return query, *pair


def judged(target: object) -> Verdict:
    """Judge a target over the first cases, in which each call is repeated."""
    return check(MonitoredCandidate(bind(target)), Options(cases=12, **PLAIN))  # type: ignore[arg-type]  # options vary


def found(target: object, check_name: str) -> list[str]:
    """Return what the failures of a check say."""
    return [
        each.check_result.detail
        for each in judged(target).failures
        if each.check_result.check == check_name
    ]


@pytest.mark.repeats(6)
@pytest.mark.parametrize(
    ("target", "name", "sentence"),
    [(KeepsKeys, "statelessness", "before: the first of the two was longer"),
     (KeepsLength, "statelessness", "before: the first of the two was shorter"),
     (KeepsLongest, "statelessness", "before: something of the length of that call is kept"),
     (KeepsMasks, "statelessness", "before: it is right with the masks of that call"),
     (KeepsOneMask, "statelessness", "before: it is right with the masks of that call"),
     (KeepsLengths, "statelessness", "before: it is right with the masks of that call"),
     (ForInference, "statelessness", "in the answer without autograd"),
     (ForEvaluation, "statelessness", "in the answer in evaluation mode"),
     (CachesForInference, "statelessness", "it is right with the keys and values of that"),
     (FoldsForEvaluation, "weights reloaded", "from a newly constructed layer in evaluation mode"),
     (ReusesBuffer, "output aliasing", "other rows of the same shapes after this problem")],
)  # fmt: skip
def test_what_stays_or_depends_on_a_mode_is_named(target: type, name: str, sentence: str) -> None:
    """Each is a finding that names the two calls, or the mode."""
    said = found(target, name)

    assert any(sentence in detail for detail in said), said


@pytest.mark.parametrize("target", [CachesByValue, CopiesBuffer, CutsBuffer])
def test_state_that_changes_no_answer_passes(target: type) -> None:
    """A cache keyed by values, a buffer that is copied or cut, and a counter fail nothing."""
    assert () == judged(target).failures


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", [*kept_state_bugs(), "output-buffer-reused"])
def test_a_planted_state_is_named(name: str, seed: int) -> None:
    """The diagnosis names each state that the catalogue plants in a layer, and no other."""
    bug = catalogue()[name]
    assert bug.layer is not None
    candidate = MonitoredCandidate(bound_layer(bug.layer()))
    verdict = check(candidate, Options(cases=4, seed=seed, shrink=False, draw=False))

    assert name == verdict.diagnosis[0].bug, verdict.diagnosis
    assert verdict.diagnosis[0].confident


@pytest.mark.parametrize("target", [MultiheadAttention, torch.nn.MultiheadAttention])
def test_a_layer_without_state_passes(target: type) -> None:
    """The own layer and torch's fail nothing of it."""
    assert () == judged(target).failures


@pytest.mark.parametrize(
    ("name", "fails"), [("OfEachCall", False), ("OfConstructor", False), ("OfFirstCall", True)]
)
def test_heads_of_another_width_follow_in_one_object(name: str, fails: bool) -> None:
    """Where an object takes any width, a scale that its first call left shows; a constructor's is.

    Kills the calls of one width alone.
    """
    verdict = check_subject(f"keeps_scale.py:{name}", cases=24, dtypes=("float64",))
    assert fails is (verdict.failed > 0), verdict
    said = {str(each.check_result.detail) for each in verdict.failures}
    assert fails is any("something of the head width of that call is kept" in s for s in said)


@pytest.mark.parametrize("given", [True, False])
def test_a_layer_that_is_given_as_it_is_answers_the_problem_itself(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is plain; it may refuse other sizes. Any other answers a small one of its kind.

    Kills either condition negated.
    """
    asked: list[object] = []
    plain = make_problem(parse("mha-N2-L3-S3-H2-D2-float64-s1"))

    class Sequence:
        this = SimpleNamespace(problem=plain)

        def __init__(self, _: object, problem: object) -> None:
            asked.append(problem)

        def departure(self, *_: object) -> str:
            return "it departs by itself"

        @property
        def half(self) -> tuple[()]:
            asked.append("any sizes")
            return ()

        def ask(self, *_: object) -> bool:
            return True

        after = expected = ask

    monkeypatch.setattr(statelessness, "CallSequence", Sequence)
    monkeypatch.setattr(statelessness, "small_problem", lambda *_: "small")
    bound: Any = SimpleNamespace(own_weights=object() if given else None, offer={})
    assert not list(statelessness.check_statelessness(bound, plain, 0))
    assert asked == ([plain] if given else ["small", "any sizes"])
    asked.clear()
    peaky = make_problem(parse("mha-N2-L3-S3-H2-D2-float64-peaky-s1"))
    assert not list(statelessness.check_statelessness(bound, peaky, 0))
    assert asked == ([] if given else ["small", "any sizes"])


def test_new_objects_that_answer_unlike_each_other_are_said_as_that() -> None:
    """No call was made before. Kills "by an object that answered 0 other calls before"."""
    bound, plain = bind(OfThree), make_problem(parse("mha-N2-L3-S3-H2-D2-float64-s1"))
    found: list[str] = []
    for OfThree.made in range(3):
        found += statelessness.check_statelessness(bound, plain, 0)
    assert any(each.endswith(f"by a new object: {statelessness.NEW_OBJECTS}.") for each in found), (
        found
    )
    assert not any(" 0 other calls" in each for each in found)
