"""A program of any language, asked by the protocol of ``targets.command``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import cotangent
from mha_parity.core.candidate import Answer, CandidateError, TargetError
from mha_parity.core.case import Case
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.targets.calls.call_source import python_of_call
from mha_parity.targets.calls.canonical_layout import canonical_weights
from mha_parity.targets.calls.target_call import Arguments, Call
from mha_parity.targets.calls.vjp import as_state_dict
from mha_parity.targets.convention_base.convention import Convention
from mha_parity.targets.programs.command import Command

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.parameters import Parameter

# Those of a problem that are sent where it has them.
MORE = (
    "w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "bias_k", "bias_v", "w_out", "b_out",
    "key_padding_mask", "attn_mask",
)  # fmt: skip
PARTS = ("q", "k", "v", "out")
GRADIENT = "gradient."  # what the names of gradients begin with


class ExecProtocol(Convention):
    """A program: arrays and options go to its standard input, arrays come from its output.

    It says itself what it offers: nothing is tried, and what fails is a failure.
    """

    name = "exec"
    call = "--exec COMMAND: safetensors over standard input and output, any language"
    states_offer = True

    def claims(self) -> Offer:
        """Return what the program said."""
        if not isinstance(self.subject, Command):
            raise TargetError(
                f"got {self.name}, but the convention exec asks a command; name it by --exec."
            )
        return self.subject.offer

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """None: a request always has all that the problem has."""
        return ()

    def record(self, call: Call) -> None:
        """Nothing: it has no parameters."""

    def plain_case(self) -> Case:
        """Two samples, two heads of width 3."""
        form = self.offer["form"][0]
        return Case(
            seed=7, batch=2, queries=5, keys=5, heads_count=2, head_dim=3, form=form,
            projection="none" if form == "qkv" else "packed",
        )  # fmt: skip

    def prepare(self, problem: Problem) -> Call:
        """Send all arrays as the problem has them, batch first, and the options as text."""
        arguments = Arguments(problem, self.library)
        lengths = problem.lengths
        named = {name: getattr(problem, name) for name in MORE}
        if lengths is not None:
            named |= {"key_padding_mask": None, "valid_lens": lengths}
        if problem.case.gradients == "yes":
            named["cotangent"] = cotangent(problem)
        arrays = {name: array for name, array in named.items() if array is not None}
        return Call(
            self._ask,
            arguments.rows(lambda rows: rows),
            {
                "more": {name: arguments.array(name, array) for name, array in arrays.items()},
                "options": options(problem),
            },
            tuple(arguments.given),
            partial(_gradients, problem) if problem.case.gradients == "yes" else None,
        )

    def request(self, problem: Problem) -> bytes:
        """Return the block that is sent for a problem."""
        call = self.prepare(problem)
        arrays = dict(zip(INPUTS, call.args, strict=True)) | call.kwargs["more"]
        block: bytes = self.subject.request(arrays, call.kwargs["options"])
        return block

    def as_python(self, call: Call) -> str:
        """Return the request that is sent: the rows, further arrays and options."""
        return python_of_call(self.subject, None, (), call)

    def answer(self, problem: Problem, result: dict[str, Array]) -> Answer:
        """Return the arrays `output` and `weights`."""
        if "output" not in result:
            named = ", ".join(f"`{name}`" for name in result) or "no array"
            message = f"answered {named}, but should answer `output`."
            raise CandidateError("structure", message)
        wants = problem.case.weights != "none"
        weights = canonical_weights(problem, result.get("weights")) if wants else None
        return Answer(output=result["output"], weights=weights)

    def _ask(self, *rows: Array, more: dict[str, Array], options: dict[str, str]) -> Any:
        return self.subject(dict(zip(INPUTS, rows, strict=True)) | more, options)


def options(problem: Problem) -> dict[str, str]:
    """Return the options of a problem as a request has them."""
    case = problem.case
    return {
        "case": case.id,
        "form": case.form,
        "num_heads": str(problem.num_heads),
        "num_kv_heads": str(problem.num_kv_heads),
        "scale": repr(problem.scale),
        "is_causal": _yes(problem.is_causal),
        "add_zero_attn": _yes(problem.add_zero_attn),
        "weights": case.weights,
        "gradients": case.gradients,
    }


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _gradients(problem: Problem, result: dict[str, Array]) -> dict[str, Array]:
    """Return the gradients of the arrays, those of weights under the names of a state dict."""
    found = {
        name.removeprefix(GRADIENT): array
        for name, array in result.items()
        if name.startswith(GRADIENT)
    }
    weights = {part: found.pop(f"w_{part}") for part in PARTS if f"w_{part}" in found}
    biases = {part: found.pop(f"b_{part}") for part in PARTS if f"b_{part}" in found}
    appended = {name: found.pop(name)[None, None] for name in ("bias_k", "bias_v") if name in found}
    return found | appended | as_state_dict(problem, weights, biases)
