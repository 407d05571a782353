"""Other libraries' arrays: to a candidate in its own kind, and back as NumPy's.

A library is imported only when a candidate belongs to it or returns its arrays. What NumPy can read
by itself (``__dlpack__``, ``__array__``) needs no adapter.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import NOT_ASKED, CandidateError
from mha_parity.targets.backends.numpy_arrays import NumpyArrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.targets.backends.base import Library

# Top-level module of a class -> the module with the adapter, and its class.
_HOMES = {
    "torch": ("torch_arrays", "TorchArrays"),
    "jax": ("jax_arrays", "JaxArrays"),
    "jaxlib": ("jax_arrays", "JaxArrays"),
    "keras": ("keras_arrays", "KerasArrays"),
    "tensorflow": ("tensorflow_arrays", "TensorflowArrays"),
}
COMPILED = "_torchdynamo_orig_callable"  # what torch.compile leaves on a function
_LACKED = re.compile(r"UNIMPLEMENTED|INVALID_ARGUMENT: Algorithm not supported")
# Kinds of dtypes that can be compared as real numbers.
_NUMBERS = "biuf"


def library(name: str, device: str = "cpu") -> Library:
    """Return the adapter of the library called ``name``; NumPy's for an unknown one."""
    if name not in _HOMES:
        return NumpyArrays()
    module, attribute = _HOMES[name]
    made: Library = getattr(import_module(f"{__name__}.{module}"), attribute)(device)
    return made


def likely_libraries(subject: object) -> Iterator[str]:
    """Yield the libraries whose arrays ``subject`` may want, the likeliest first.

    A class or function of a library wants that library's arrays; a function that sees a library
    among its globals may want NumPy's or the library's.
    """
    own = [_root(base.__module__) for base in subject.__mro__] if isinstance(subject, type) else []
    own += [_root(_attribute(subject, "__module__") or "")]
    known = [name for name in own if name in _HOMES]
    if known:
        yield "keras" if "keras" in known else known[0]
        return
    # torch.compile takes NumPy's arrays for tensors, in some operations.
    compiled = inspect.isroutine(subject) and hasattr(subject, COMPILED)
    yield from ("torch",) * compiled
    yield "numpy"
    seen = {_root(getattr(value, "__name__", "")) for value in _modules_in_reach(subject)}
    seen |= {_root(_attribute(value, "__module__") or "") for value in _in_reach(subject)}
    yield from (name for name in ("torch", "jax", "keras", "tensorflow")[compiled:] if name in seen)


def library_computed_with(subject: object) -> str:
    """Return the library that a target computes with: of its class, of its code, or of its file.

    Keras is none by itself: its layers take arrays of NumPy's, and of the library of their file.
    """
    likely = [*likely_libraries(subject)]
    if likely[0] not in {"numpy", "keras"}:
        return likely[0]
    seen = {_root(_attribute(value, "__name__")) for value in _modules_in_reach(subject)}
    for names in (libraries_named(subject), seen):
        found = [each for each in ("torch", "jax", "tensorflow", "numpy") if each in names]
        if found:
            return found[0]
    return "numpy"


def libraries_named(subject: object) -> frozenset[str]:
    """Return the libraries of arrays, NumPy too, that the code of a function or class names."""
    kind = vars(subject).values() if isinstance(subject, type) else (subject,)
    codes = [_attribute(_attribute(each, "__wrapped__") or each, "__code__") for each in kind]
    scope = {name: value for each in _scopes_in_reach(subject) for name, value in each.items()}
    found = (scope.get(name) for code in codes for name in _names_in(code))
    roots = {_root(_attribute(v, _says_home(v))) for v in found}
    return frozenset(roots & {*_HOMES, "numpy"})


def _says_home(value: object) -> str:
    """Return the attribute that names the module of something, or the module itself."""
    return "__name__" if type(value) is type(sys) else "__module__"


def _names_in(code: Any) -> Iterator[str]:
    """Yield the names that code reads, and the functions within it."""
    yield from getattr(code, "co_names", ())
    for each in getattr(code, "co_consts", ()):
        yield from _names_in(each)


def _modules_in_reach(subject: object) -> list[object]:
    return [value for value in _in_reach(subject) if type(value) is type(sys)]


def _in_reach(subject: object) -> list[object]:
    return [value for scope in _scopes_in_reach(subject) for value in scope.values()]


def _scopes_in_reach(subject: object) -> list[dict[str, object]]:
    """Return the globals of a function, or of the method that a class is called by."""
    subject = subject.func if isinstance(subject, functools.partial) else subject
    # What jax.jit has wrapped shows it under this name, as any decorator's function does.
    subject = _attribute(subject, "__wrapped__") or subject
    function = _attribute(subject, "forward") or _attribute(subject, "__call__")
    scopes = (_attribute(found, "__globals__") for found in (subject, function))
    return [scope for scope in scopes if isinstance(scope, dict)]


def _attribute(subject: object, name: str) -> Any:
    """Return an attribute; None where there is none, or the subject's own ``__getattr__`` fails."""
    with suppress(Exception):
        return getattr(subject, name, None)
    return None


def _root(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


def library_of(result: object) -> str:
    """Return the library whose array came back, alone or first of several; "" of any other."""
    first = result[0] if isinstance(result, tuple | list) and result else result
    root = _root(type(first).__module__)
    return {"jaxlib": "jax"}.get(root, root) if root in _HOMES else ""


def to_numpy(value: Any, what: str) -> Array:
    """Return a library's array as NumPy's, of the dtype and shape it has.

    Raises
    ------
    CandidateError
        ``value`` is no array of numbers; ``what`` says in the message what it should have been.

    """
    try:
        array = _as_numpy(value)
    except Exception as error:  # noqa: BLE001  (whatever the library's array raises)
        if lacks := lacked_by_compiler(error):  # which may run a program after it was called
            raise CandidateError("inconclusive", f"{NOT_ASKED}: {lacks}") from None
        said = str(error).partition("\n")[0]
        unreadable = f"{_describe(value)} that cannot be read ({type(error).__name__}: {said})"
        raise CandidateError(
            "structure", f"{what} is {unreadable}, but should be an array."
        ) from None
    if array is None:
        raise CandidateError("structure", f"{what} is {_describe(value)}, but should be an array.")
    if array.dtype.kind not in _NUMBERS and array.dtype.name != "bfloat16":
        message = f"{what} has dtype {array.dtype}, but should hold real floating-point numbers."
        raise CandidateError("structure", message)
    return array


def lacked_by_compiler(error: BaseException) -> str:
    """Return what XLA says that it lacks for this processor, "" if it raised nothing of that."""
    if type(error).__name__ not in {"JaxRuntimeError", "XlaRuntimeError"}:
        return ""
    said = str(error).partition("\n")[0]
    return f"XLA lacks it here ({said})" if _LACKED.match(said) else ""


def _as_numpy(value: Any) -> Array | None:
    """Return ``value`` as a plain ndarray, or None where it is not an array.

    A subclass is taken for the numbers it holds; a masked array does not hold all of them.
    """
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return value.view(np.ndarray)
    root = _root(type(value).__module__)
    if root in _HOMES:
        return library(root).to_numpy(value)
    if isinstance(value, np.ndarray | np.generic):
        return None
    if hasattr(value, "__dlpack__"):
        return _by_dlpack(value)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    held = getattr(value, "data", None)
    return held if type(held) is np.ndarray else None  # a tensor of the target's own


def _by_dlpack(value: Any) -> Array:
    """Return an array from where it lies: CuPy's, for one, come as NumPy's own."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):  # it does not lie where NumPy can read
        import array_api_compat

        held = array_api_compat.to_device(value, "cpu")
        return held if type(held) is np.ndarray else np.from_dlpack(held)


def _describe(value: Any) -> str:
    """Name the type of a value, for a sentence."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if isinstance(value, list | tuple):
        inner = ", ".join(sorted({type(item).__name__ for item in value}))
        return f"a {name} of {len(value)} ({inner})" if value else f"an empty {name}"
    return f"a {name}"
