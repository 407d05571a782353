"""Layers of torch as most people write them: one Linear each for queries, keys, values and output.

Their names vary, and so do those of masks and what a True in them means: masks are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.candidate import CandidateError
from mha_parity.conventions.base import Arguments, Call, Trial, blamed, lay_rows
from mha_parity.conventions.functions import returned
from mha_parity.conventions.signatures import constructor, forward
from mha_parity.conventions.torch_module import PLAIN, TorchModule
from mha_parity.features import offer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.features import Offer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

# What people call the four, in lower case and without "_".
_OF_ROWS = ("w{}", "{}", "{}proj", "proj{}", "to{}", "{}linear", "linear{}", "fc{}", "w{}s")
_WORDS = {"q": "query", "k": "key", "v": "value"}
_OF_OUTPUT = (
    "wo", "out", "outproj", "oproj", "proj", "projection", "toout", "output", "outputproj", "fc",
    "fcout", "fco", "linearout", "outlinear", "wout", "dense", "cproj", "linear",
)  # fmt: skip


def parts(names: Iterable[str]) -> dict[str, str]:
    """Return "q", "k", "v" and perhaps "out" -> the name of that Linear; {} where they are not so.

    ``names`` are those of a state dict.
    """
    linears = {_plain(name): name.removesuffix(".weight") for name in names if _is_weight(name)}
    spellings = {
        part: [form.format(each) for form in _OF_ROWS for each in (part, word)]
        for part, word in _WORDS.items()
    }
    found: dict[str, str] = {}
    for part, spelt in (spellings | {"out": [*_OF_OUTPUT]}).items():
        known = next((each for each in spelt if each in linears), None)
        if known is not None:
            found[part] = linears.pop(known)
    return found if {"q", "k", "v"} <= set(found) and not linears else {}


def _is_weight(name: str) -> bool:
    return name.endswith(".weight")


def _plain(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2].lower().replace("_", "")


def ordered(kind: Any, embed_dim: int, num_heads: int) -> tuple[int, int]:
    """Return both sizes in the order in which the constructor takes them."""
    made = constructor(kind)
    first = made.required[0].lower() if made is not None and made.required else ""
    heads_first = "head" in first or first == "h"
    return (num_heads, embed_dim) if heads_first else (embed_dim, num_heads)


def keeps_linears(kind: Any) -> bool:
    """Return whether a small layer of this class can be built and keeps the Linears meant here."""
    try:
        with blamed():
            return bool(parts(kind(*ordered(kind, 6, 2)).state_dict()))
    except CandidateError:
        return False


class LinearModule(TorchModule):
    """``C(embed_dim, num_heads)`` with a Linear each for q, k, v and out; ``(query, key, value)``.

    Also ``C(num_heads, embed_dim)``, and a call with ``(x)`` alone. Batch first.
    """

    name = "linear-module"
    drops_as_torch = False  # many drop of the output too, and keep clean weights for the eye
    dropouts = (
        "dropout", "dropout_p", "p_dropout", "dropout_rate", "attn_dropout", "attn_drop",
        "attention_dropout",
    )  # fmt: skip
    call = "C(embed_dim, num_heads) with Linears W_q, W_k, W_v, W_o; (query, key, value) or (x)"

    def claims(self) -> Offer:
        """Return what the names of the state dict and the call say.

        Raises
        ------
        ValueError
            The layer does not keep its weights in such Linears.

        """
        super().claims()  # looks at an instance
        self._called, names = self._look_at_instance()
        self._parts = parts(names)
        if not self._parts:
            kept = ", ".join(sorted(names)) or "no state dict"
            raise ValueError(
                f"got {self.name} with {kept}, but should have Linears named like W_q, W_k, W_v "
                "and W_o; rename them, or name another convention."
            )
        self._biased = f"{self._parts['q']}.bias" in names
        required = len(self._called.required)
        self._rows, self._more = (3, required - 3) if required >= 3 else (1, max(required - 1, 0))
        return offer(
            inputs=("self", "cross", "distinct") if self._rows == 3 else "self",
            bias=("no", "yes") if self._biased else "no",
            out_proj=("identity", "general") if "out" in self._parts else "identity",
            size=("small", "medium", "equal", "ones"),
            memory=self.library.memory,
        )

    def trials(self) -> Iterator[Trial]:
        """One sample, empty axes, and weights that come unasked."""
        case = PLAIN.replace(layout="batch_first")
        yield Trial("layout", "unbatched", (case.replace(layout="unbatched", batch=1),))
        yield Trial("size", "empty", (case.replace(batch=0), case.replace(queries=0, keys=0)))
        yield from returned(case)

    def load(self, module: Any, problem: Problem, arguments: Arguments) -> None:
        """Load the problem's weights, what it has none of written out."""
        state = module.state_dict()
        for part, name in self._parts.items():
            weight, bias = _of_problem(problem, part)
            state[f"{name}.weight"] = arguments.array(f"{name}.weight", weight)
            if f"{name}.bias" in state:
                state[f"{name}.bias"] = arguments.array(f"{name}.bias", bias)
        module.load_state_dict(state)

    def _sizes(self, embed_dim: int, num_heads: int) -> tuple[int, int]:
        return ordered(self.subject, embed_dim, num_heads)

    def _posed(self, module: Any, arguments: Arguments) -> Call:
        rows = arguments.rows(lay_rows(arguments.problem))[: self._rows]
        function = module if callable(module) else forward(module)
        return Call(function, (*rows, *[None] * self._more), given=tuple(arguments.given))


def _of_problem(problem: Problem, part: str) -> tuple[Array, Array]:
    """Return weight (out, in) and bias of one Linear; identity and zeros where there is none."""
    width = problem.query.shape[-1]
    weight: Array | None = getattr(problem, f"w_{part}")
    bias: Array | None = getattr(problem, f"b_{part}")
    return (
        np.eye(width, dtype=problem.dtype) if weight is None else weight,
        np.zeros(width, dtype=problem.dtype) if bias is None else bias,
    )
