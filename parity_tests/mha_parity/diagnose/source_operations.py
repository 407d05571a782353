"""The operations of a target in the order of evaluation, read from its file without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
CALLS = {
    "softmax": ("softmax", "log_softmax", "Softmax"),
    "exp": ("exp", "exp2", "expm1"),
    "root": ("sqrt", "rsqrt", "isqrt"),
    "product": ("matmul", "einsum", "dot", "bmm", "inner", "tensordot", "baddbmm"),
    "fused": ("scaled_dot_product_attention",),
    "linear": ("linear", "Linear", "Dense"),
    "reshape": ("reshape", "view", "unflatten", "flatten", "rearrange"),
    "join": ("concatenate", "cat", "hstack"),
    "chunk": ("chunk", "split", "unbind", "array_split", "tensor_split"),
    "fill": ("masked_fill", "masked_fill_", "where", "putmask", "copyto"),
    "triangle": ("tril", "triu", "tri", "tril_", "triu_", "tril_indices", "triu_indices"),
    "repeat": ("repeat", "tile", "repeat_interleave"),
    "sum": ("sum",),
    "clip": ("clip", "clamp", "clamp_", "hardtanh"),
    "tanh": ("tanh",),
    "top": ("topk", "argpartition", "partition", "argsort", "sort", "kthvalue", "nlargest"),
    "cast": ("astype", "to", "half", "bfloat16", "float", "type", "asarray", "array"),
    "dropout": ("dropout", "Dropout"),
    "round": ("round", "rint", "around"),
    "inverse": ("logical_not", "invert", "bitwise_not"),
    "boolean": ("bool",),
    "new axis": ("unsqueeze", "expand_dims"),
    "nonfinite": ("nan_to_num", "nan_to_num_"),
}
KINDS = {name: kind for kind, names in CALLS.items() for name in names}
BINARY = {
    ast.Div: "quotient", ast.Mult: "multiple", ast.MatMult: "product", ast.Add: "sum of two",
    ast.BitAnd: "joint", ast.BitOr: "joint",
}  # fmt: skip
NORMS = ("sum", "mean", "var", "norm", "std")  # a root of these is no root of a width


class Operation(NamedTuple):
    """One operation: its kind, its node, and the statement in which it stands."""

    kind: str
    node: ast.expr | ast.stmt
    statement: ast.stmt

    @property
    def line(self) -> int:
        """The line of the operator's right side, or of the call."""
        node = self.node
        if isinstance(node, ast.BinOp):
            return node.right.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.end_lineno or node.lineno
        return node.lineno


@dataclass
class SourceOperations:
    """The operations of a call of a target, and of its constructor."""

    call: list[Operation] = field(default_factory=list)
    constructor: list[Operation] = field(default_factory=list)


def operations(tree: ast.Module, names: list[str]) -> SourceOperations | None:
    """Return the operations of a function, class or method of a module; None where it has none.

    Functions and methods of the module are followed; what other modules define is not.
    """
    module: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            module[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda | ast.Name):
            module |= {t.id: node.value for t in node.targets if isinstance(t, ast.Name)}
    found = module.get(names[0])
    while isinstance(found, ast.Name):
        found = module.get(found.id)
    reader = _Reader(module)
    if isinstance(found, ast.ClassDef):
        methods = names[1:] or ["forward", "__call__", "call"]
        reader.own = found
        call = next((m for name in methods if (m := reader.method(found, name))), None)
        built = reader.method(found, "__init__")
        if call is None:
            return None
        constructor = reader.read(built[1], built[0]) if built else []
        return SourceOperations(reader.read(call[1], call[0]), constructor)
    if isinstance(found, Function):
        return SourceOperations(reader.read(found, None))
    return None


class _Reader:
    """Reads the functions of one module."""

    def __init__(self, module: dict[str, object]) -> None:
        self.module = module
        self.own: ast.ClassDef | None = None
        self.found: list[Operation] = []
        self.inside: list[ast.AST] = []
        self.classes: list[ast.ClassDef | None] = [None]
        self.scopes: list[dict[str, object]] = [module]
        self.statement: ast.stmt = ast.Pass()

    def read(self, function: object, owner: ast.ClassDef | None) -> list[Operation]:
        """Return the operations of a function."""
        self.found = []
        self._enter(function, owner)
        return self.found

    def method(self, owner: ast.ClassDef, name: str) -> tuple[ast.ClassDef, object] | None:
        """Return a method of a class or of its bases, and whose it is."""
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return owner, node
        return self._inherited(owner, name)

    def _inherited(self, owner: ast.ClassDef, name: str) -> tuple[ast.ClassDef, object] | None:
        for base in owner.bases:
            known = self.module.get(base.id) if isinstance(base, ast.Name) else None
            if isinstance(known, ast.ClassDef) and known is not owner:
                found = self.method(known, name)
                if found:
                    return found
        return None

    def _enter(self, function: object, owner: ast.ClassDef | None) -> None:
        if not isinstance(function, Function) or function in self.inside:
            return
        self.inside.append(function)
        self.classes.append(owner)
        outer = self.statement
        if isinstance(function, ast.Lambda):
            self._visit(function.body)
        else:
            local = {n.name: n for n in function.body if isinstance(n, ast.FunctionDef)}
            self.scopes.append(dict(local))
            for each in function.body:
                self._visit(each)
            self.scopes.pop()
        self.statement = outer
        self.classes.pop()
        self.inside.pop()

    def _visit(self, node: ast.AST) -> None:
        """Note operations behind their operands; a definition is read where it is called."""
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            return
        if isinstance(node, ast.stmt):
            self.statement = node
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.scopes[-1][target.id] = node.value
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Assign | ast.AugAssign):
            children = [node.value]
        for child in children:
            self._visit(child)
            if isinstance(child, ast.stmt) and isinstance(node, ast.stmt):
                self.statement = node
        self._note(node)
        if isinstance(node, ast.Call):
            self._follow(node)

    def _note(self, node: ast.AST) -> None:
        kind = _kind(node)
        if kind and isinstance(node, ast.expr | ast.stmt):
            self.found.append(Operation(kind, node, self.statement))

    def _follow(self, call: ast.Call) -> None:
        """Read what a call of the module's own functions, methods and layers computes."""
        func = call.func
        if isinstance(func, ast.Name):
            known = next((s[func.id] for s in reversed(self.scopes) if func.id in s), None)
            self._enter(known, self.classes[-1])
        elif isinstance(func, ast.Attribute) and self.own is not None:
            base, owner = func.value, self.classes[-1]
            found = None
            if isinstance(base, ast.Name) and base.id in {"self", "cls", self.own.name}:
                found = self.method(self.own, func.attr)
            elif isinstance(base, ast.Name) and isinstance(self.module.get(base.id), ast.ClassDef):
                found = self.method(self.module[base.id], func.attr)  # type: ignore[arg-type]
            elif isinstance(base, ast.Call) and owner is not None and _name(base) == "super":
                found = self._inherited(owner, func.attr)
            if found:
                self._enter(found[1], found[0])


def _kind(node: ast.AST) -> str:
    """Return the kind of an operation; "" of what is none."""
    for types, kind_of in KIND_OF.items():
        if isinstance(node, types):
            return kind_of(node)
    return ""


def _called(node: ast.Call) -> str:
    if _name(node) == "astype" and node.args and "bool" in ast.unparse(node.args[0]):
        return "boolean"
    kind = KINDS.get(_name(node), "")
    return "" if kind == "root" and _mentions(node, NORMS) else kind


def _binary(node: ast.BinOp | ast.AugAssign) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _power(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_reciprocal(node.left):
        return "root"  # meant as one: ``D ** -1 / 2``
    return BINARY.get(type(node.op), "")


def _indexed(node: ast.Subscript) -> str:
    return "new axis" if "None" in ast.unparse(node.slice) else ""


def _filled(node: ast.Assign) -> str:
    """Return whether elements are assigned that a mask picks."""
    target = node.targets[0]
    return "fill" if isinstance(target, ast.Subscript) and not _is_position(target.slice) else ""


def _power(node: ast.BinOp) -> str:
    """Return whether a power is a root of a width, or one with a constant base."""
    exponent = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
    if isinstance(exponent, ast.Constant) and exponent.value in {0.5, 0.25, 1.5}:
        return "" if _mentions(node.left, NORMS) else "root"
    halves = isinstance(exponent, ast.BinOp) and isinstance(exponent.op, ast.Div)
    if halves and isinstance(node.left, ast.Name | ast.Attribute):
        return "root"
    return "exp" if isinstance(node.left, ast.Constant) else ""


def _is_reciprocal(node: ast.expr) -> bool:
    """Return whether a variable is raised to the power -1."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Pow):
        return False
    return ast.unparse(node.right) == "-1" and isinstance(node.left, ast.Name | ast.Attribute)


def _comparison(node: ast.Compare) -> str:
    """Return whether positions are compared, or a mask is inverted or made boolean."""
    sides = (node.left, *node.comparators)
    if any(isinstance(each, ast.Subscript) and "None" in ast.unparse(each.slice) for each in sides):
        return "comparison of positions"
    if isinstance(sides[1], ast.Constant) and sides[1].value == 0:
        return {ast.Eq: "inverse", ast.NotEq: "boolean"}.get(type(node.ops[0]), "")
    return ""


KIND_OF: dict[type | tuple[type, ...], Callable[[Any], str]] = {
    ast.UnaryOp: lambda node: "inverse" if isinstance(node.op, ast.Invert) else "",
    ast.Subscript: _indexed,
    ast.Call: _called,
    (ast.BinOp, ast.AugAssign): _binary,
    ast.Compare: _comparison,
    ast.Assign: _filled,
}


def _is_position(index: ast.expr) -> bool:
    """Return whether an index is a number or a slice, and no mask."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    positions = (ast.Slice, ast.Constant, ast.Name, ast.BinOp)
    if len(parts) == 1 and isinstance(parts[0], ast.Name):
        return not _is_mask_name(parts[0].id)
    return all(isinstance(each, positions) or ast.unparse(each) == "..." for each in parts)


def _is_mask_name(name: str) -> bool:
    return any(word in name.lower() for word in ("mask", "hidden", "pad", "future", "keep"))


def _name(call: ast.Call) -> str:
    """Return the last part of the name that is called."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _mentions(node: ast.AST, names: tuple[str, ...]) -> bool:
    return any(isinstance(n, ast.Call) and _name(n) in names for n in ast.walk(node))
