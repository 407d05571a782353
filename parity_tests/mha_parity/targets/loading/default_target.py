"""A file that is given without the name of a function or a class in it: which is likely meant."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TypeAlias

from mha_parity.targets.loading.notebook import python_cells

ATTENTION = re.compile(r"attention|attn|mha|sdpa|head", re.IGNORECASE)
WHOLE = re.compile(r"attention|attn|mha|sdpa|multi_?head", re.IGNORECASE)  # not one head of it
WIDER = re.compile(r"block|layer|model|encoder|decoder|former|network|gpt|bert", re.IGNORECASE)
HELPER = re.compile(r"mask|config|args|out(put)?$|batch$", re.IGNORECASE)
PART = re.compile(
    r"(mask|config|arg|output)s?$", re.IGNORECASE
)  # what an attention gets or returns
TEST = re.compile(r"test_|Test[A-Z]")
KINDS = (ast.FunctionDef, ast.ClassDef)
Definition: TypeAlias = ast.FunctionDef | ast.ClassDef
SUFFIXES = frozenset({".py", ".ipynb"})


def public_names(path: Path) -> list[str]:
    """Return the public functions and classes of a Python file or notebook, which is not run.

    Tests are none of them. Raises SyntaxError for a file that is no Python, TargetError for a
    notebook that is none.
    """
    return [each.name for each in _definitions(path)]


def _definitions(path: Path) -> list[Definition]:
    is_notebook = path.suffix == ".ipynb"
    texts = (
        [text for text, error in python_cells(path) if error is None]
        if is_notebook
        else [path.read_text(encoding="utf-8")]
    )
    body = ast.parse("\n".join(texts), path.name).body
    found = (each for each in body if isinstance(each, KINDS))
    return [e for e in found if not e.name.startswith("_") and not TEST.match(e.name)]


def _required(definition: Definition) -> int:
    """Return how many arguments a function must be given; a class counts as one of three."""
    if isinstance(definition, ast.ClassDef):
        return 3
    arguments = definition.args
    free = len(arguments.defaults) + sum(each is not None for each in arguments.kw_defaults)
    return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - free


def _is_helper(definition: Definition) -> bool:
    """Return whether it stands beside an attention: softmax(x), main(), not multihead(x).

    So do window_mask(n, width) and the class AttentionConfig.
    """
    needed = _required(definition)
    little = needed == 0 or (needed == 1 and not ATTENTION.search(definition.name))
    return little or PART.search(definition.name) is not None


def likeliest(names: list[str]) -> str:
    """Return the name that is most like an attention's, the last of equal ones: helpers come first.

    Names of attention come before those of a head, and before those of what has one, a block or a
    model; masks, settings and outputs come last.
    """
    return max(reversed(names), key=_likeness)


def _likeness(name: str) -> tuple[bool, int]:
    said = 2 * bool(WHOLE.search(name)) + bool(ATTENTION.search(name)) - bool(WIDER.search(name))
    return not HELPER.search(name), said


def with_only_name(target: str) -> str:
    """Return a target; a file of which one public name alone can be meant gets that name."""
    path = Path(target.strip()).expanduser()
    if path.suffix not in SUFFIXES or not path.is_file():
        return target
    try:
        found = _definitions(path)
    except (OSError, ValueError, SyntaxError):  # said once it is loaded
        return target
    own = found if len(found) == 1 else [each for each in found if not _is_helper(each)]
    return f"{target.strip()}:{own[0].name}" if len(own) == 1 else target
