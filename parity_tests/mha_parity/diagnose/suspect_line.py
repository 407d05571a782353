"""The line of a target's source in which a known cause most likely lies, where one is possible.

The cause says which operation is wrong: by the catalogue's entry (``OPERATIONS``), or by what was
measured. The source says where that operation stands. Two places are no answer.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from mha_parity.diagnose.source_operations import Operation, SourceOperations, operations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.verdict import Diagnosis

    Finder = Callable[[SourceOperations], Sequence[Operation]]

# Which operation the entries of the catalogue get wrong.
OPERATIONS = {
    "scale": "scale-dmodel scale-num-heads scale-linear scale-inverted scale-after-softmax "
    "scale-padded-dim scale-hardcoded-64 scale-seqlen scale-batch scale-v-width scale-off-by-one "
    "scale-none",
    "axis of the softmax": "softmax-query-axis softmax-head-axis softmax-batch-axis "
    "softmax-joint-heads softmax-whole-matrix",
    "exponential": "softmax-base2 softmax-no-max softmax-fixed-max exp-approximated",
    "denominator": "softmax-add-eps softmax-plus-one",
    "inverted mask": "bool-inverted",
    "axis of a mask": "kpm-query-axis mask-batch-on-head-axis",
    "mask as boolean": "float-mask-as-bool",
    "mask as number": "bool-mask-added",
    "number for hidden keys": "mask-as-zero-logit mask-minus-10 mask-finite-sentinel "
    "mask-1e9-full-row",
    "mask times infinity": "mask-zero-times-inf",
    "mask behind the softmax": "mask-after-softmax",
    "order of masks": "mask3d-tile-order",
    "key heads": "gqa-tile gqa-repeat-wrong-axis",
    "causal rule": "causal-bottom-right causal-strict causal-loose causal-anti",
    "split of heads": "split-no-transpose heads-interleaved split-d-major",
    "merge of heads": "merge-no-transpose merge-d-major merge-batch-head-swap",
    "packed projection": "qkv-order-qvk qkv-order-kqv qkv-interleaved-heads",
    "output projection": "out-proj-transposed",
    "narrower dtype": "low-precision-softmax low-precision-matmul f64-capped-at-f32 "
    "silent-downcast",
    "rounding": "output-rounded",
    "dropout": "dropout-before-softmax dropout-on-output dropout-in-eval",
    "non-finite values": "nan-replaced",
}
OPERATION_OF = {bug: name for name, bugs in OPERATIONS.items() for bug in bugs.split()}
MASKS = re.compile(r"mask|kpm|pad|keep|hidden|valid")
NARROW = re.compile(r"(float32|float16|bfloat16|\bhalf\b|\.half\(|single|\.float\()")


def operation_of(diagnosis: Diagnosis) -> str:
    """Return which operation a certain diagnosis says is wrong; "" where it does not say."""
    if diagnosis.bug is None:
        return diagnosis.operation if diagnosis.explains >= 1 else ""
    return OPERATION_OF.get(diagnosis.bug, "") if diagnosis.confident else ""


def operation_lines(tree: ast.Module, names: list[str], operation: str) -> tuple[int, ...]:
    """Return the lines in which an operation stands, if that is one place; else ().

    Several lines next to each other are one place where they differ in names alone, as the
    splits of q, k and v do.
    """
    finder = FINDERS.get(operation)
    found = operations(tree, names) if finder else None
    if finder is None or found is None:
        return ()
    places = {each.line: each for each in finder(found)}
    lines = sorted(places)
    if len(lines) == 1 or _alike([places[line] for line in lines]):
        return tuple(lines)
    return ()


def _alike(places: Sequence[Operation]) -> bool:
    """Return whether statements stand next to each other and differ in names alone."""
    shapes = {_without_names(each.statement) for each in places}
    ends = [(each.statement.lineno, each.statement.end_lineno or 0) for each in places]
    adjacent = all(b[0] - a[1] <= 1 for a, b in pairwise(ends))
    return len(shapes) == 1 and adjacent


def _without_names(statement: ast.stmt) -> str:
    return re.sub(r"\b(id|attr)='\w+'", r"\1=''", ast.dump(statement))


def _before_softmax(found: SourceOperations) -> list[Operation]:
    return found.call[: _softmax_at(found)]


def _after_softmax(found: SourceOperations) -> list[Operation]:
    return found.call[_softmax_at(found) + 1 :]


def _softmax_at(found: SourceOperations) -> int:
    """Return where the softmax stands, or what is exponentiated first; the end without either."""
    kinds = [each.kind for each in found.call]
    positions = [kinds.index(kind) for kind in ("softmax", "exp") if kind in kinds]
    return min(positions, default=len(kinds))


def _of(kinds: str, found: Sequence[Operation]) -> list[Operation]:
    return [each for each in found if each.kind in kinds.split(", ")]


def _scale(found: SourceOperations) -> Sequence[Operation]:
    """Return the root of the scale, else what multiplies the scores, else their product.

    A fused kernel scales as well: with a root besides there are two places.
    """
    if fused := _of("fused", found.call):
        return [*fused, *_of("root", [*found.call, *found.constructor])]
    for part in (found.call, found.constructor):
        if roots := _of("root", part):
            return roots
    before = _before_softmax(found)
    scores = [i for i, each in enumerate(before) if each.kind == "product"]
    if not scores:
        return ()
    scaled = _of("quotient, multiple", before[scores[-1] :])
    return scaled or [before[scores[-1]]]


def _axis(found: SourceOperations) -> Sequence[Operation]:
    """Return the softmax that is given an axis, else the sum behind the exponential."""
    given = [
        each for each in _of("softmax", [*found.call, *found.constructor])
        if isinstance(each.node, ast.Call) and (each.node.args[1:] or each.node.keywords)
    ]  # fmt: skip
    method = [e for e in _of("softmax", found.call) if _is_method_with_axis(e.node)]
    return given or method or [e for e in _of("sum", _after_softmax(found)) if _has_axis(e.node)]


def _is_method_with_axis(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(node.args)


def _has_axis(node: ast.AST) -> bool:
    """Return whether a call gives its axis as a number: a parameter is chosen by the caller."""
    if not isinstance(node, ast.Call):
        return False
    chosen = [k.value for k in node.keywords if k.arg in {"axis", "dim"}] or node.args[-1:]
    return any(isinstance(each, ast.Constant | ast.UnaryOp) for each in chosen)


def _exponential(found: SourceOperations) -> Sequence[Operation]:
    return _of("exp", found.call)


def _denominator(found: SourceOperations) -> Sequence[Operation]:
    """Return what is added to a sum of exponentials, else that sum."""
    after = _after_softmax(found)
    constants = [
        each for each in _of("sum of two", after)
        if isinstance(each.node, ast.BinOp)
        and any(isinstance(n, ast.Constant) for n in (each.node.left, each.node.right))
    ]  # fmt: skip
    return constants or _of("sum", after)


def _inverted(found: SourceOperations) -> Sequence[Operation]:
    """Return what fills hidden scores, and what inverts a mask or joins it to another one."""
    return [*_of("fill", found.call), *_about_masks("inverse, joint", found)]


def _filled(found: SourceOperations) -> Sequence[Operation]:
    """Return what gives hidden scores a finite number, or multiplies them."""
    fills = [each for each in _of("fill", found.call) if _has_finite_number(each.node)]
    return [*fills, *_about_masks("multiple", found)]


def _has_finite_number(node: ast.AST) -> bool:
    """Return whether a number is written into what fills, or taken from a dtype's range."""
    given = node.value if isinstance(node, ast.Assign) else node
    return bool(re.search(r"\d|finfo", ast.unparse(given).replace("float32", "")))


def _about_masks(kinds: str, found: SourceOperations) -> list[Operation]:
    return [e for e in _of(kinds, found.call) if MASKS.search(ast.unparse(e.node).lower())]


def _causal(found: SourceOperations) -> Sequence[Operation]:
    parts = [*found.call, *found.constructor]
    return _of("triangle", parts) or _of("comparison of positions", parts)


def _repeat(found: SourceOperations) -> Sequence[Operation]:
    return _about_masks("repeat", found)


def _split(found: SourceOperations) -> Sequence[Operation]:
    shapes = _of("reshape, chunk", _before_softmax(found))
    return [e for e in shapes if "mask" not in ast.unparse(e.node).lower()]


def _values_at(found: SourceOperations) -> tuple[list[Operation], int]:
    """Return what follows the softmax, and where in it the values are mixed."""
    after = _after_softmax(found)
    kinds = [each.kind for each in after]
    return after, kinds.index("product") if "product" in kinds else len(kinds)


def _merge(found: SourceOperations) -> Sequence[Operation]:
    after, mixed = _values_at(found)
    return _of("reshape, join", after[mixed:])


def _packed(found: SourceOperations) -> Sequence[Operation]:
    return _of("chunk", _before_softmax(found))


def _output(found: SourceOperations) -> Sequence[Operation]:
    after, mixed = _values_at(found)
    return _of("product, linear", after[mixed + 1 :])


def _narrow(found: SourceOperations) -> Sequence[Operation]:
    casts = _of("cast", found.call)
    return [each for each in casts if NARROW.search(ast.unparse(each.node))]


FINDERS: dict[str, Finder] = {
    "scale": _scale,
    "axis of the softmax": _axis,
    "exponential": _exponential,
    "denominator": _denominator,
    "clipped scores": lambda found: _of("clip", _before_softmax(found)),
    "capped scores": lambda found: _of("tanh", _before_softmax(found)),
    "largest scores": lambda found: _of("top", found.call),
    "inverted mask": _inverted,
    "axis of a mask": lambda found: _about_masks("new axis", found),
    "mask as boolean": lambda found: _about_masks("boolean", found),
    "mask as number": lambda found: _about_masks("cast", found),
    "number for hidden keys": _filled,
    "mask times infinity": lambda found: [
        each for each in _about_masks("multiple", found) if "inf" in ast.unparse(each.node)
    ],
    "mask behind the softmax": lambda found: _of("fill, multiple", _after_softmax(found)),
    "order of masks": _repeat,
    "key heads": lambda found: [e for e in _of("repeat", found.call) if e not in _repeat(found)],
    "causal rule": _causal,
    "split of heads": _split,
    "merge of heads": _merge,
    "packed projection": _packed,
    "output projection": _output,
    "narrower dtype": _narrow,
    "rounding": lambda found: _of("round", found.call),
    "dropout": lambda found: _of("dropout", found.call),
    "non-finite values": lambda found: _of("nonfinite", found.call),
}
